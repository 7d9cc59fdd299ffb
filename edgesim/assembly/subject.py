"""What is studied: a scenario's words as the objects that its costs follow from. Trains nothing."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from edgesim.assembly.build import PLAIN, make_algorithm, make_layers, make_optimizer, name_devices
from edgesim.assembly.equipment import check_hardware
from edgesim.assembly.known_data import DataShape, data_shape
from edgesim.costs.closed_form import ClosedForm, closed_form
from edgesim.costs.layer_plan import ModelForm
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Algorithm
from edgesim.learning.optimizers import Optimizer
from edgesim.learning.parameters import ParameterLayout
from edgesim.models.catalog import check_model
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.layers import FullPrecision, Layers
from edgesim.quant.arithmetic import Gate
from edgesim.quant.backends import BackendName
from edgesim.quant.settings import QuantizationSettings
from edgesim.scenario.model import QuantizationSection
from edgesim.scenario.schema import Scenario
from topologies import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A scenario, and what its devices compute and send with.

    Attributes:
        scenario: as its file has it.
        schedule: of its graphs.
        model: counts of its model and of a step on a full batch.
        algorithm: of gossip, with compressor and layout.
        optimizer: of each device.
        backend: of 8-bit arithmetic, as a device would have it; None in fp32.
        num_rounds: of the whole training, counted from the published number of samples.
    """

    scenario: Scenario
    schedule: Schedule
    model: ClosedForm
    algorithm: Algorithm[Any]
    optimizer: Optimizer
    backend: BackendName | None
    num_rounds: int


def subject_of(
    scenario: Scenario, shape: DataShape | None = None, schedule: Schedule | None = None
) -> Subject:
    """Put a scenario's words together.

    Args:
        scenario: what is studied.
        shape: of its data, where they have been read; None to find out.
        schedule: of its graphs, where it has been made and checked; None to do so.

    Raises:
        ScenarioError: the model can't take the images, or the graph can't work.
        DataError: the images' size is not known.
    """
    shape = shape or data_shape(scenario.data)
    layers = make_layers(scenario, PLAIN)
    num_devices = scenario.fleet.num_devices
    if num_devices > shape.num_train:
        raise ScenarioError(
            f"fleet.devices is {num_devices}, but there are only {shape.num_train} training "
            "samples; lower it"
        )
    try:
        check_model(scenario.model.name, shape.image_shape, layers)
    except ModelError as error:
        raise ScenarioError(f"model: {error}") from error
    form = _model_form(scenario.model.name, shape.image_shape, shape.num_classes, layers)
    model = closed_form(form, scenario.data.batch_size)
    if schedule is None:
        scenario, schedule = name_devices(scenario)
        check_hardware(scenario, schedule)
    layout = ParameterLayout.from_shapes(model.flat_shapes)
    # No cost depends on the averaging rate, which may not have been found yet.
    algorithm = make_algorithm(with_rate(scenario, 1.0), layout, schedule)
    return Subject(
        scenario=scenario,
        schedule=schedule,
        model=model,
        algorithm=algorithm,
        optimizer=make_optimizer(scenario),
        backend=device_backend(form.settings, scenario),
        num_rounds=_num_rounds(scenario, shape.num_train),
    )


def with_rate(scenario: Scenario, rate: float) -> Scenario:
    """The scenario with this averaging rate, if its algorithm has one."""
    if getattr(scenario.gossip, "averaging_rate", None) is None:
        return scenario
    gossip = scenario.gossip.model_copy(update={"averaging_rate": rate})
    return scenario.model_copy(update={"gossip": gossip})


def default_settings() -> QuantizationSettings:
    """8-bit arithmetic of a scenario that says nothing about it."""
    return QuantizationSettings(**QuantizationSection().model_dump(exclude={"backend"}))


def device_backend(
    settings: QuantizationSettings | None, scenario: Scenario | None = None
) -> BackendName | None:
    """Back end of a device: integers unless the scenario or its grid wants otherwise.

    Not asked is what the processor here has: it is not the device's.
    """
    if settings is None:
        return None
    switches = scenario.model.quantization if scenario else None
    is_plain = switches is not None and switches.backend == "reference"
    return "reference" if is_plain or not settings.has_integer_zero else "int8_cpu"


def _model_form(
    name: str, image_shape: tuple[int, int, int], num_classes: int, layers: Layers
) -> ModelForm:
    settings: QuantizationSettings | None = None
    gate: Gate = "hard_sigmoid"  # of 8 bits
    if isinstance(layers, EightBit):
        settings = layers.settings
    else:
        assert isinstance(layers, FullPrecision), "assembly makes no others"
        gate = layers.gate
    return ModelForm(
        name=name,
        image_shape=image_shape,
        num_classes=num_classes,
        norm=layers.norm,
        settings=settings,
        gate=gate,
        conv_bias=layers.conv_bias,
    )


def _num_rounds(scenario: Scenario, num_train: int) -> int:
    """Rounds as assembly plans them, shards taken to be of equal size."""
    section = scenario.training
    if section.rounds is not None:
        return section.rounds
    assert section.epochs is not None, "the schema asks for epochs or rounds"
    mean_size = num_train / scenario.fleet.num_devices
    return section.epochs * ceil(mean_size / scenario.data.batch_size)
