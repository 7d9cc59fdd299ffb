"""The only place where names in a scenario become objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from edgesim.assembly.gossip import (
    algorithm_named,
    check_one_graph,
    check_own_graph,
    schedule_of_algorithm,
)
from edgesim.assembly.gossip_limits import check_further_gossip
from edgesim.assembly.naming import other_devices, with_names
from edgesim.assembly.parts.checked_task import TASK, checked
from edgesim.assembly.parts.own_model import make_own_model
from edgesim.assembly.parts.own_parts import make_part, needs
from edgesim.assembly.parts.own_topology import own_schedule
from edgesim.data.arrays import image_remedy
from edgesim.errors import ScenarioError, count
from edgesim.learning.accelerator import (
    Accelerator,
    choose_accelerator,
    num_local_gpus,
    open_device,
)
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.tasks import Task
from edgesim.models.catalog import build_model, full_precision, norm_named
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.kind import ImageShape, ModelSize
from edgesim.models.layers import Layers
from edgesim.models.own import OwnModel
from edgesim.models.start_values import StartValues
from edgesim.quant.backends import BackendName, choose_backend, describe_backend, make_backend
from edgesim.quant.settings import QuantizationSettings
from edgesim.scenario.model import QuantizationSection
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.presence import make_presence
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import OtherTopology
from edgesim.streams import StreamPurpose, torch_seed
from topologies import (
    EVERYONE,
    ContactTrace,
    Intermittent,
    OtherDevicesError,
    Schedule,
    TopologyError,
    WithPresence,
    build_schedule,
    check_schedule,
    device_attributes,
    with_everyone,
)


@dataclass(frozen=True, slots=True)
class DataSpec:
    """Properties of the dataset that a device needs beside its own shard.

    Attributes:
        image_shape: channels, height, width; or the shape of an input that is no image.
        num_classes: of the whole dataset, though a shard may lack some.
        mean: of each channel, of pixels scaled to [0, 1].
        std: of each channel, of pixels scaled to [0, 1].
        input_dtype: `float32`, or `int64` for sequences of whole numbers.
    """

    image_shape: tuple[int, ...]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_dtype: str = "float32"


class ImageForm(Protocol):
    """Properties of its inputs that a model needs."""

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height, width; or the shape of an input that is no image."""
        ...

    @property
    def input_dtype(self) -> str:
        """`float32` or `int64`."""
        ...

    @property
    def num_classes(self) -> int:
        """Of the whole dataset."""
        ...


@dataclass(frozen=True, slots=True)
class Compute:
    """Accelerator and back end of models, chosen once for all hosts of a fleet.

    Attributes:
        accelerator: processor cores or GPUs.
        backend: of 8-bit arithmetic; None in fp32.
    """

    accelerator: Accelerator
    backend: BackendName | None

    def describe(self) -> str:
        """What this process computes with, in words; with others, last bits may be others."""
        backend = describe_backend(self.backend) if self.backend else "fp32"
        return f"{backend}, torch with {self._instructions()}"

    def _instructions(self) -> str:
        if self.accelerator == "cuda":
            return torch.cuda.get_device_name(0) if num_local_gpus() else "no GPU"
        return torch.backends.cpu.get_cpu_capability()


PLAIN = Compute("cpu", "reference")
"""CPU and the back end `reference`, which work everywhere; for results that do not depend on
them.
"""


def make_schedule(scenario: Scenario) -> Schedule:
    """Schedule of graphs; in lockstep without the edges of devices that are absent.

    Raises:
        ScenarioError: the graph or the churn can't work, with the reason.
    """
    return name_devices(scenario)[1]


def name_devices(scenario: Scenario) -> tuple[Scenario, Schedule]:
    """The scenario with its devices in the order of their numbers (naming.py), and its schedule.

    Raises:
        ScenarioError: the graph or the churn can't work, or devices could be meant in two ways.
    """
    check_one_graph(scenario)
    check_further_gossip(scenario, algorithm_named(scenario))
    seed = torch_seed(scenario.seed, StreamPurpose.TOPOLOGY)
    key = "topology"
    try:
        schedule = _links(scenario, seed)
        scenario = with_names(scenario, device_attributes(schedule))
        if (own := schedule_of_algorithm(scenario, schedule, seed)) is not None:
            schedule = own
        elif scenario.gossip.local_steps > 1:
            key = "gossip.local_steps"
            schedule = Intermittent(schedule, scenario.gossip.local_steps)
        presence = make_presence(scenario)
        if presence is not EVERYONE:
            key = "fleet.churn"
            schedule = WithPresence(schedule, presence)
    except OtherDevicesError as error:
        said = other_devices(error, scenario.fleet.listed_names)
        raise ScenarioError(f"{key}: {said}") from error
    except TopologyError as error:
        raise ScenarioError(f"{key}: {error}") from error
    check_length(scenario, schedule, scenario.training.rounds)
    return scenario, schedule


def _links(scenario: Scenario, seed: int) -> Schedule:
    """The graphs that the section `topology` says.

    Raises:
        ScenarioError, TopologyError: there are none, or they don't suit the algorithm.
    """
    section = scenario.topology
    if isinstance(section, OtherTopology):
        schedule = own_schedule(scenario, section)
        check_own_graph(scenario, schedule)
        return schedule
    kind, options = section.builder_options()
    return build_schedule(kind, scenario.fleet.num_devices, seed=seed, **options)


def check_length(scenario: Scenario, schedule: Schedule, num_rounds: int | None) -> None:
    """Check that the run is long enough for information of any device to reach every other.

    Args:
        scenario: of the run.
        schedule: of the scenario.
        num_rounds: of every device; None if that is not known yet.

    Raises:
        ScenarioError: it is, with the reason.
    """
    fleet = scenario.fleet
    in_rounds = fleet.churn is not None and not fleet.rules.goes_by_clock
    is_cut = in_rounds or schedule.seconds_per_round is not None
    if not is_cut and schedule.exchange_every == 1:  # the same graphs for ever
        return
    if in_rounds and num_rounds is not None:
        _check_everyone_comes(scenario, num_rounds)
    if num_rounds is not None:
        _check_first_contact(schedule, num_rounds)
    try:
        check_schedule(schedule, num_rounds)
    except TopologyError as error:
        key = "fleet.churn" if in_rounds else "topology"
        if schedule.exchange_every > 1:
            key = "gossip.local_steps"
        raise ScenarioError(f"{key}: {error}") from error


def _check_first_contact(schedule: Schedule, num_rounds: int) -> None:
    """Refuse a trace whose first contact comes after the training, as of Unix times."""
    trace = with_everyone(schedule)
    if isinstance(trace, ContactTrace) and trace.first_round >= num_rounds:
        first_s = trace.first_round * trace.seconds_per_round
        raise ScenarioError(
            f"topology.path: the first contact comes after {count(trace.first_round, 'round')} "
            f"({first_s:g} s), and the training has {count(num_rounds, 'round')}; times count from "
            "0: subtract that of the first contact from all, or train for more rounds"
        )


def _check_everyone_comes(scenario: Scenario, num_rounds: int) -> None:
    presence = make_presence(scenario)
    for device in range(scenario.fleet.num_devices):
        spans = presence.spans(device)
        if not spans or spans[0][0] >= num_rounds:
            come = f" (it comes in round {spans[0][0]})" if spans else ""
            raise ScenarioError(
                f"fleet.churn: {scenario.fleet.label(device)} is there in none of the "
                f"{num_rounds} rounds{come}; let it come earlier, or train for more rounds"
            )


def streams_of(scenario: Scenario, device: int) -> int:
    """Number of the device whose random streams of training and gossip a device uses."""
    return 0 if scenario.training.device_seeds == "shared" else device


def choose_compute(scenario: Scenario, num_gpus: float) -> Compute:
    """Choose accelerator and back end of a fleet, on machines with `num_gpus` GPUs.

    Raises:
        AcceleratorError: the scenario asks for a GPU, and there is none.
        BackendError: the back end that the scenario names can't work here.
    """
    accelerator = choose_accelerator(scenario.fleet.accelerator, num_gpus)
    if scenario.model.precision == "fp32":
        return Compute(accelerator, None)
    switches = scenario.model.quantization or QuantizationSection()
    settings = quantization_settings(switches)
    return Compute(accelerator, choose_backend(switches.backend, settings, accelerator))


def quantization_settings(switches: QuantizationSection | None = None) -> QuantizationSettings:
    """8-bit arithmetic of a section of a scenario; None: of a scenario that says nothing of it."""
    switches = switches or QuantizationSection()
    return QuantizationSettings(**switches.model_dump(exclude={"backend"}))


def make_layers(scenario: Scenario, compute: Compute) -> Layers:
    """Arithmetic of the model's layers."""
    section = scenario.model
    conv_bias = section.initialization == "full_precision"
    if section.precision == "fp32":
        return full_precision(section.norm_used, section.gate or "sigmoid", conv_bias=conv_bias)
    switches = section.quantization or QuantizationSection()
    settings = quantization_settings(switches)
    assert compute.backend is not None, "chosen with the precision"
    arithmetic = make_backend(compute.backend, settings)
    return EightBit(norm_named(section.norm_used), arithmetic, settings, conv_bias)


def make_flat_model(
    scenario: Scenario, data: ImageForm, compute: Compute, start: StartValues | None = None
) -> FlatModel:
    """The initial model, the same on all devices, as `make_model` makes it."""
    return flat_model_of(make_model(scenario, data, compute, start), scenario, compute)


def flat_model_of(model: nn.Module, scenario: Scenario, compute: Compute) -> FlatModel:
    """A model that `make_model` made, which must not be used otherwise from now on."""
    device, task = open_device(compute.accelerator), make_task(scenario)
    if isinstance(model, OwnModel):
        return FlatModel(model, device, model.around_step, task)
    return FlatModel(model, device, task=task, keeps_parameters=True)


def make_model(
    scenario: Scenario, data: ImageForm, compute: Compute, start: StartValues | None = None
) -> nn.Module:
    """The initial model as a module: an `OwnModel` around one's own, else one of the catalog.

    Args:
        scenario: whose seed its values depend on.
        data: what it is made for.
        compute: arithmetic.
        start: values that it begins with instead.

    Raises:
        ModelError: the model can't take such images, or the values don't fit.
    """
    section, seed = scenario.model, torch_seed(scenario.seed, StreamPurpose.INIT)
    layers = make_layers(scenario, compute)
    if isinstance(section.name, OwnPart):
        own = make_own_model(
            section.name,
            section.options or {},
            input_shape=data.image_shape,
            input_dtype=data.input_dtype,
            num_classes=data.num_classes,
            layers=layers,
            seed=seed,
        )
        if start is not None:
            start.begin_(own.inner)
        return own
    model = build_model(
        section.name,
        image_shape=image_shape_of(data),
        num_classes=data.num_classes,
        layers=layers,
        generator=torch.Generator().manual_seed(seed),
        initialization=section.initialization,
        size=ModelSize(section.depth, section.width),
    )
    if start is not None:
        start.begin_(model)
    return model


def make_task(scenario: Scenario) -> Task:
    """Task of the models.

    Raises:
        ScenarioError: it can't be made.
    """
    task = plain_task(scenario)
    is_shipped = type(task).__module__.startswith("edgesim.")  # as a function of one's own may give
    return task if is_shipped else checked(task)


def plain_task(scenario: Scenario) -> Task:
    """The same, which nobody checks if it is one's own."""
    section = scenario.training
    task: Task = make_part(section.task, TASK, section.task_options or {}, needs(Task))
    return task


def image_shape_of(data: ImageForm) -> ImageShape:
    """Channels, height and width, which models of the catalog take.

    Raises:
        ModelError: the inputs are no images, or have their channels last.
    """
    remedy = image_remedy(data.image_shape, data.input_dtype)
    given = f"give {remedy}, or " if remedy else ""
    if data.input_dtype != "float32" or len(data.image_shape) != 3 or remedy:
        mlp = "mlp, or " if data.input_dtype == "float32" else ""
        raise ModelError(
            f"this model takes images, and these inputs are {data.input_dtype} of shape "
            f"{data.image_shape}; {given}name {mlp}a model of your own (docs/own-parts.md)"
        )
    channels, height, width = data.image_shape
    return channels, height, width
