"""The only place where names in a scenario become objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch
from numpy.typing import NDArray

from edgesim.compression.catalog import build_compressor
from edgesim.compression.compressors import Compressor, Identity
from edgesim.compression.value_codes import ValueFormat
from edgesim.data.batches import BatchStream
from edgesim.data.images import Dataset, LabelledImages
from edgesim.data.partition import dirichlet, iid, label_skew
from edgesim.data.sources import load_dataset
from edgesim.device import Device
from edgesim.equipment import check_hardware, device_hardware, has_batteries
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.choco import Choco, FixedGraphChoco
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.gradient_push import GradientPush
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Hardware, Timeline
from edgesim.learning.accelerator import Accelerator, choose_accelerator, open_device
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import (
    LearningRateSchedule,
    Optimizer,
    QuasiGlobalMomentum,
    Sgd,
)
from edgesim.learning.parameters import ParameterLayout
from edgesim.models.catalog import build_model, check_model, full_precision, norm_named
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.layers import Layers
from edgesim.quant.backends import BackendName, choose_backend, make_backend
from edgesim.quant.settings import QuantizationSettings
from edgesim.scenario.data import DirichletPartition, IidPartition, LabelSkewPartition
from edgesim.scenario.gossip import (
    ChocoGossip,
    DcdGossip,
    DeepSqueezeGossip,
    GradientPushGossip,
)
from edgesim.scenario.model import QuantizationSection
from edgesim.scenario.schema import Scenario
from edgesim.streams import Purpose, stream, torch_seed
from topologies import Schedule, TopologyError, build_schedule


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What a device must know of the dataset beside its own shard.

    Attributes:
        image_shape: channels, height, width.
        num_classes: of the whole dataset, though a shard may lack some.
        mean: of each channel, of pixels scaled to [0, 1].
        std: likewise.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How many rounds there are and what they mean.

    Attributes:
        num_rounds: of every device.
        rounds_per_epoch: rounds in which the fleet sees about as many samples as it holds.
        evaluation_rounds: numbers of completed rounds after which models are evaluated, increasing;
            the last is `num_rounds`.
    """

    num_rounds: int
    rounds_per_epoch: int
    evaluation_rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """What models compute with, chosen once so that all hosts of a fleet do the same.

    Attributes:
        accelerator: processor cores or GPUs.
        backend: of 8-bit arithmetic; None in fp32.
    """

    accelerator: Accelerator
    backend: BackendName | None


PLAIN = Compute("cpu", "reference")
"""What works everywhere; for questions whose answer does not depend on it."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All that a host needs, beside its shards, to build its devices; the same for all hosts."""

    scenario: Scenario
    schedule: Schedule
    data: DataSpec
    training: TrainingPlan
    compute: Compute
    run_directory: Path


def make_schedule(scenario: Scenario) -> Schedule:
    """Schedule of graphs.

    Raises:
        ScenarioError: the graph can't work, with the reason.
    """
    kind, options = scenario.topology.builder_options()
    seed = torch_seed(scenario.seed, Purpose.TOPOLOGY)
    try:
        return build_schedule(kind, scenario.fleet.num_devices, seed=seed, **options)
    except TopologyError as error:
        raise ScenarioError(f"topology: {error}") from error


def make_compressor(scenario: Scenario) -> Compressor:
    """Compressor of the gossip section; values default to the model's precision."""
    default_values: ValueFormat = scenario.model.precision
    if isinstance(scenario.gossip, GradientPushGossip):
        return Identity(values=default_values)
    options = scenario.gossip.compressor.model_dump(exclude={"kind"})
    if "values" in options and options["values"] is None:
        options["values"] = default_values
    return build_compressor(scenario.gossip.compressor.kind, **options)


def make_algorithm(
    scenario: Scenario, layout: ParameterLayout, schedule: Schedule
) -> Algorithm[Any]:
    """Gossip algorithm; CHOCO in its two-buffer form where the graph is fixed and nobody leaves."""
    compressor, gossip = make_compressor(scenario), scenario.gossip
    match gossip:
        case ChocoGossip():
            is_fixed = schedule.is_static and not has_batteries(scenario)
            kind = FixedGraphChoco if is_fixed else Choco
            return kind(averaging_rate=gossip.averaging_rate, compressor=compressor, layout=layout)
        case DeepSqueezeGossip():
            return DeepSqueeze(
                averaging_rate=gossip.averaging_rate, compressor=compressor, layout=layout
            )
        case GradientPushGossip():
            return GradientPush(
                averaging_rate=gossip.averaging_rate, compressor=compressor, layout=layout
            )
        case DcdGossip():
            return Dcd(compressor=compressor, layout=layout)
        case _:
            assert_never(gossip)


def make_optimizer(scenario: Scenario) -> Optimizer:
    """Local optimizer."""
    section = scenario.training.optimizer
    kind = QuasiGlobalMomentum if section.momentum_kind == "quasi_global" else Sgd
    return kind(
        momentum=section.momentum, nesterov=section.nesterov, weight_decay=section.weight_decay
    )


def make_learning_rates(scenario: Scenario) -> LearningRateSchedule:
    """Learning rate by epoch."""
    return LearningRateSchedule(
        base=scenario.training.optimizer.lr, **scenario.training.schedule.model_dump()
    )


def choose_compute(scenario: Scenario, num_gpus: float) -> Compute:
    """What a fleet computes with, on machines with that many GPUs.

    Raises:
        AcceleratorError: the scenario asks for a GPU, and there is none.
        BackendError: the back end that the scenario names can't work here.
    """
    accelerator = choose_accelerator(scenario.fleet.accelerator, num_gpus)
    if scenario.model.precision == "fp32":
        return Compute(accelerator, None)
    switches = scenario.model.quantization or QuantizationSection()
    settings = _quantization_settings(switches)
    return Compute(accelerator, choose_backend(switches.backend, settings, accelerator))


def _quantization_settings(switches: QuantizationSection) -> QuantizationSettings:
    return QuantizationSettings(**switches.model_dump(exclude={"backend"}))


def make_layers(scenario: Scenario, compute: Compute) -> Layers:
    """Arithmetic of the model's layers."""
    section = scenario.model
    conv_bias = section.initialization == "full_precision"
    if section.precision == "fp32":
        return full_precision(section.norm_used, section.gate or "sigmoid", conv_bias=conv_bias)
    switches = section.quantization or QuantizationSection()
    settings = _quantization_settings(switches)
    assert compute.backend is not None, "chosen with the precision"
    arithmetic = make_backend(compute.backend, settings)
    return EightBit(norm_named(section.norm_used), arithmetic, settings, conv_bias)


def make_flat_model(scenario: Scenario, data: DataSpec, compute: Compute) -> FlatModel:
    """The initial model, the same on all devices: it depends on the seed alone.

    Raises:
        ModelError: the model can't take such images.
    """
    generator = torch.Generator().manual_seed(torch_seed(scenario.seed, Purpose.INIT))
    model = build_model(
        scenario.model.name,
        image_shape=data.image_shape,
        num_classes=data.num_classes,
        layers=make_layers(scenario, compute),
        generator=generator,
        initialization=scenario.model.initialization,
    )
    return FlatModel(model, open_device(compute.accelerator))


def make_devices(
    plan: FleetPlan, shards: Mapping[int, LabelledImages], initial: FlatModel
) -> list[Device]:
    """The devices of one host, with their shards.

    Args:
        plan: of the whole fleet.
        shards: by device.
        initial: the initial model, as `make_flat_model` gives it; its vectors are copied.
    """
    scenario, schedule = plan.scenario, plan.schedule
    hardware = device_hardware(scenario, schedule)
    return [
        Device(
            index=device,
            seed=scenario.seed,
            batches=BatchStream(
                shard,
                scenario.data.batch_size,
                scenario.data.augment,
                plan.data.mean,
                plan.data.std,
                scenario.seed,
                device,
            ),
            schedule=schedule,
            algorithm=make_algorithm(scenario, initial.layout, schedule),
            optimizer=make_optimizer(scenario),
            learning_rates=make_learning_rates(scenario),
            rounds_per_epoch=plan.training.rounds_per_epoch,
            x=initial.parameters.cpu().clone(),
            num_trainable=initial.num_trainable,
            buffers=initial.buffers.cpu().clone(),
            meter=_make_meter(scenario, hardware[device], device) if hardware else None,
        )
        for device, shard in shards.items()
    ]


def _make_meter(scenario: Scenario, hardware: Hardware, device: int) -> Meter:
    """Clock and energy of a device."""
    table = ENERGY_TABLES.get(scenario.hardware.energy_table)
    return Meter(Timeline(hardware, scenario.seed, device), table)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario that has passed every check, with its data; nothing is started or written yet."""

    scenario: Scenario
    schedule: Schedule
    dataset: Dataset
    indices: tuple[NDArray[np.int64], ...]
    data: DataSpec
    training: TrainingPlan
    layout: ParameterLayout

    def shards(self) -> list[LabelledImages]:
        """Each device's own samples, in the order of devices."""
        train = self.dataset.train
        return [train.take(indices) for indices in self.indices]

    def test_samples(self) -> LabelledImages:
        """The samples that models are evaluated on."""
        test, wanted = self.dataset.test, self.scenario.evaluation.samples
        if wanted is None or wanted >= len(test.labels):
            return test
        # The same for every seed: accuracies of several seeds are compared with each other.
        chosen = stream(0, Purpose.PARTITION, device=1).permutation(len(test.labels))[:wanted]
        return test.take(chosen)


def prepare(scenario: Scenario) -> Prepared:
    """Check a scenario against its graph, data and model, and deal out the samples.

    Raises:
        ScenarioError, DataError, PartitionError: what can't work, where, and what to change.
    """
    section = scenario.data
    dataset = load_dataset(
        section.source,
        Path(section.path) if section.path else None,
        image_size=section.image_size,
        download=section.download,
    )
    _check_sizes(scenario, dataset)
    schedule = make_schedule(scenario)
    check_hardware(scenario, schedule)
    data = DataSpec(dataset.image_shape, dataset.num_classes, dataset.mean, dataset.std)
    try:
        check_model(scenario.model.name, data.image_shape, make_layers(scenario, PLAIN))
    except ModelError as error:
        raise ScenarioError(f"model: {error}") from error
    layout = make_flat_model(scenario, data, PLAIN).layout
    indices = _deal(scenario, dataset.train.labels)
    training = _plan_training(scenario, [len(i) for i in indices])
    return Prepared(scenario, schedule, dataset, indices, data, training, layout)


def _check_sizes(scenario: Scenario, dataset: Dataset) -> None:
    """Refuse samples that are not there, and more devices than samples before a graph is built."""
    num_train, num_test = len(dataset.train), len(dataset.test)
    limits = {
        "data.train_samples": (scenario.data.train_samples, num_train, "training"),
        "evaluation.samples": (scenario.evaluation.samples, num_test, "test"),
        "fleet.devices": (scenario.fleet.num_devices, num_train, "training"),
    }
    for key, (wanted, there, kind) in limits.items():
        if wanted is not None and wanted > there:
            raise ScenarioError(
                f"{key} is {wanted}, but there are only {there} {kind} samples; lower it"
            )


def _deal(scenario: Scenario, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Indices of each device's samples."""
    rng = stream(scenario.seed, Purpose.PARTITION)
    chosen = np.arange(len(labels))
    wanted = scenario.data.train_samples
    if wanted is not None and wanted < len(labels):
        chosen = np.sort(rng.permutation(len(labels))[:wanted])
    section, devices = scenario.data.partition, scenario.fleet.num_devices
    match section:
        case LabelSkewPartition():
            parts = label_skew(labels[chosen], devices, section.skew, scenario.seed)
        case DirichletPartition():
            parts = dirichlet(labels[chosen], devices, section.alpha, rng)
        case IidPartition():
            parts = iid(len(chosen), devices, rng)
        case _:
            assert_never(section)
    return tuple(chosen[part] for part in parts)


def _plan_training(scenario: Scenario, shard_sizes: Sequence[int]) -> TrainingPlan:
    """Rounds, epochs and evaluations.

    Every device takes one batch a round. An epoch is the mean number of batches in a shard: with
    shards of equal size each device sees each of its samples once; with unequal ones a device with
    few samples sees them more often.
    """
    section, evaluation = scenario.training, scenario.evaluation
    mean_size = sum(shard_sizes) / len(shard_sizes)
    rounds_per_epoch = ceil(mean_size / scenario.data.batch_size)
    if section.rounds is not None:
        num_rounds = section.rounds
    else:
        assert section.epochs is not None, "the schema asks for epochs or rounds"
        num_rounds = section.epochs * rounds_per_epoch
    if evaluation.every_rounds is not None:
        interval = evaluation.every_rounds
    else:
        interval = (evaluation.every_epochs or num_rounds) * rounds_per_epoch
    between = set(range(interval, num_rounds, interval))
    return TrainingPlan(num_rounds, rounds_per_epoch, tuple(sorted(between | {num_rounds})))
