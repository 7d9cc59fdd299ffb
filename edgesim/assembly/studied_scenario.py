"""What a study of costs needs: the objects that a scenario names, without training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean
from typing import Any

from edgesim.assembly.batch_sizes import fill_of, mean_steps, shard_sizes, smaller_batch
from edgesim.assembly.build import (
    PLAIN,
    check_length,
    image_shape_of,
    make_flat_model,
    make_layers,
    name_devices,
)
from edgesim.assembly.equipment import check_hardware
from edgesim.assembly.gossip import make_algorithm, rounds_of_epoch, with_some_rate
from edgesim.assembly.known_data import can_resize_images, data_shape, data_to_read
from edgesim.assembly.optimization import make_optimizer
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.parts.own_model import measured_form
from edgesim.assembly.planned_leaves import check_leaves
from edgesim.assembly.rehearsal.rehearsal import check_declarations
from edgesim.assembly.training_plan import check_rounds, plan_of_epochs
from edgesim.costs.closed_form import closed_form
from edgesim.costs.layer_work import StepWork
from edgesim.costs.measured_model import MeasuredModel
from edgesim.costs.memory import CountedModel
from edgesim.costs.model_form import ModelForm
from edgesim.data.partition import label_skew_sizes
from edgesim.data.shape import DataShape
from edgesim.errors import ScenarioError, with_notes
from edgesim.gossip.algorithm import Algorithm
from edgesim.learning.optimizers import Optimizer
from edgesim.learning.parameters import ParameterLayout
from edgesim.models.catalog import check_model
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.kind import ModelSize
from edgesim.models.layers import FullPrecision, Layers
from edgesim.quant.arithmetic import Gate
from edgesim.quant.backends import BackendName
from edgesim.quant.settings import QuantizationSettings
from edgesim.scenario.data import LabelSkewPartition
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.schema import Scenario
from topologies import Schedule

_SHARDS_KNOWN_BEFORE = frozenset({"iid", "label_skew", "dirichlet", "file"})
"""Partitions of which the mean number of a device's samples is known without the data."""

_MOST_MEASURED = 64  # models that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiedScenario:
    """A scenario with model, algorithm and optimizer of its devices.

    Attributes:
        scenario: as its file has it.
        schedule: of its graphs.
        model: counts of its model and of a step on a full batch.
        algorithm: of gossip, with compressor and layout.
        optimizer: of each device.
        backend: of 8-bit arithmetic, as a device would have it; None in fp32.
        num_rounds: of the whole training, counted from the published number of samples.
        rounds_per_epoch: rounds in which the fleet sees about as many samples as it holds.
        batch_fill: mean samples of a batch, of a full one: an epoch's last batch may be smaller.
        shard_sizes: training samples of each device, where a file or the owners of data say them
            and were read; else None, and shards are taken to be alike.
        smaller_model: as `model`, on a smaller batch (batch_sizes.py); None without sizes.
    """

    scenario: Scenario
    schedule: Schedule
    model: CountedModel
    algorithm: Algorithm[Any]
    optimizer: Optimizer
    backend: BackendName | None
    num_rounds: int
    rounds_per_epoch: int
    batch_fill: float
    shard_sizes: tuple[int, ...] | None = None
    smaller_model: CountedModel | None = None

    @property
    def steps(self) -> tuple[StepWork, ...]:
        """Work of a step of each device: on its mean batch where sizes are known, else a full one.

        Without the optimizer.
        """
        full = self.model.step_work
        if self.shard_sizes is None or self.smaller_model is None:
            return (full,) * self.schedule.num_devices
        smaller, batch_size = self.smaller_model.step_work, self.scenario.data.batch_size
        return mean_steps(full, smaller, self.shard_sizes, batch_size)


@own_code("while its costs are counted")
def studied_scenario(
    scenario: Scenario, shape: DataShape | None = None, schedule: Schedule | None = None
) -> StudiedScenario:
    """Make the objects that a study needs of a scenario.

    Args:
        scenario: what is studied.
        shape: of its data, if they were read; None to look it up.
        schedule: of its graphs, if it was made and checked; None to make it.

    Raises:
        ScenarioError: the model can't take the images, or the graph can't work.
        DataError: the images' size is not known.
    """
    dataset = data_to_read(scenario.data) if shape is None else None
    shape = shape or data_shape(scenario.data, dataset)
    layers = make_layers(scenario, PLAIN)
    num_devices, batch_size = scenario.fleet.num_devices, scenario.data.batch_size
    if num_devices > shape.num_train:
        raise ScenarioError(
            f"fleet.devices is {num_devices}, but there are only {shape.num_train} training "
            "samples; lower it"
        )
    model = _counted_model(scenario, shape, layers)
    if schedule is None:
        scenario, schedule = name_devices(scenario)
        check_hardware(scenario, schedule)
    sizes = shard_sizes(scenario, shape.num_train, dataset)
    shard = _mean_shard(scenario, shape.num_train) if sizes is None else fmean(sizes)
    rounds_per_epoch = rounds_of_epoch(scenario, ceil(shard / batch_size))
    num_rounds = scenario.training.rounds or (scenario.training.epochs or 0) * rounds_per_epoch
    layout = ParameterLayout.from_shapes(model.flat_shapes)
    # No cost depends on the averaging rate, which may not have been found yet.
    algorithm = make_algorithm(with_some_rate(scenario), layout, schedule)
    optimizer = make_optimizer(scenario)
    check_declarations(scenario, algorithm, optimizer)
    return StudiedScenario(
        scenario=scenario,
        schedule=schedule,
        model=model,
        algorithm=algorithm,
        optimizer=optimizer,
        backend=device_backend(model.form.settings, scenario),
        num_rounds=num_rounds,
        rounds_per_epoch=rounds_per_epoch,
        batch_fill=fmean(fill_of(size, batch_size) for size in sizes or (shard,)),
        shard_sizes=sizes,
        smaller_model=_smaller_model(scenario, shape, layers, sizes),
    )


def _smaller_model(
    scenario: Scenario, shape: DataShape, layers: Layers, sizes: tuple[int, ...] | None
) -> CountedModel | None:
    """Counts of the scenario's model and of a step on a smaller batch."""
    if sizes is None:
        return None
    batch_size = smaller_batch(sizes, scenario.data.batch_size)
    data = scenario.data.model_copy(update={"batch_size": batch_size})
    return _counted_model(scenario.model_copy(update={"data": data}), shape, layers)


def _mean_shard(scenario: Scenario, num_train: int) -> float:
    """Samples of a device, in the mean.

    All are dealt, but for those that label skew leaves out. A partition of one's own is taken to
    deal all: it is made of data, which a study does not read.
    """
    section, num_devices = scenario.data.partition, scenario.fleet.num_devices
    if isinstance(section, LabelSkewPartition):
        return max(sum(label_skew_sizes(num_train, num_devices, section.skew)), 1)
    return num_train / num_devices


def _counted_model(scenario: Scenario, shape: DataShape, layers: Layers) -> CountedModel:
    """Counts of the scenario's model and of a step on a full batch.

    Raises:
        ScenarioError: the model can't take the inputs.
    """
    section, batch_size = scenario.model, scenario.data.batch_size
    if isinstance(section.name, OwnPart):
        return _measured_model(scenario, shape, layers)
    try:
        image_shape, size = image_shape_of(shape), ModelSize(section.depth, section.width)
        can_resize = can_resize_images(scenario.data)
        check_model(section.name, image_shape, layers, size, can_resize=can_resize)
    except ModelError as error:
        raise with_notes(ScenarioError(f"model: {error}"), error) from error
    form = _model_form(section.name, image_shape, shape.num_classes, layers)
    return closed_form(replace(form, depth=size.depth_used, width=size.width_used), batch_size)


_measured: dict[tuple[object, ...], MeasuredModel] = {}
"""Own models that were measured last, by what their counts depend on: budgets ask for many sizes of
batches, and for the same one again and again."""


def _measured_model(scenario: Scenario, shape: DataShape, layers: Layers) -> MeasuredModel:
    """Counts of an own model, measured in a step."""
    section, batch_size = scenario.model, scenario.data.batch_size
    assert isinstance(section.name, OwnPart), "others have closed forms"
    key = section.name.digest, section.model_dump_json(), shape, batch_size, scenario.seed
    if key not in _measured:
        if len(_measured) >= _MOST_MEASURED:
            _measured.pop(next(iter(_measured)))
        _measured[key] = _measure(scenario, shape, layers)
    return _measured[key]


def _measure(scenario: Scenario, shape: DataShape, layers: Layers) -> MeasuredModel:
    try:
        flat = make_flat_model(scenario, shape, PLAIN)
    except ModelError as error:
        raise with_notes(ScenarioError(f"model: {error}"), error) from error
    part = scenario.model.name
    assert isinstance(part, OwnPart), "others have closed forms"
    form = ModelForm(
        name=part.name,
        image_shape=shape.image_shape,
        num_classes=shape.num_classes,
        norm=None,
        settings=layers.settings if isinstance(layers, EightBit) else None,
    )
    return measured_form(flat, form, scenario.data.batch_size)


def device_backend(
    settings: QuantizationSettings | None, scenario: Scenario | None = None
) -> BackendName | None:
    """Back end of a device: integers unless the scenario or its grid wants otherwise.

    The processor of this machine has no influence, since it is not that of the device.
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


def check_studied_length(studied: StudiedScenario) -> None:
    """Refuse what a run refuses for its rounds, epochs and evaluations.

    Where the partition decides how many samples a device has, and so how many rounds an epoch, only
    `training.rounds` is checked.

    Args:
        studied: a scenario as its file has it, whose data were not read.

    Raises:
        ScenarioError: the reason.
    """
    scenario, num_rounds = studied.scenario, studied.num_rounds
    is_known = scenario.training.rounds is not None
    if not (is_known or scenario.data.partition.kind in _SHARDS_KNOWN_BEFORE):
        return
    check_rounds(scenario, num_rounds)
    plan_of_epochs(scenario, studied.rounds_per_epoch)
    check_length(scenario, studied.schedule, num_rounds)
    check_leaves(scenario.fleet, studied.schedule, num_rounds)
