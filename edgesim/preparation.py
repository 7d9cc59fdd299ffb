"""From a scenario to everything that a run needs, checked; nothing is started or written yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from math import ceil
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly import (
    PLAIN,
    Compute,
    DataSpec,
    TrainingPlan,
    check_length,
    make_flat_model,
    make_layers,
    make_schedule,
)
from edgesim.data.images import Dataset, LabelledImages
from edgesim.data.partition import dirichlet, iid, label_skew
from edgesim.data.sources import load_dataset
from edgesim.equipment import check_hardware
from edgesim.errors import ScenarioError
from edgesim.learning.parameters import ParameterLayout
from edgesim.membership import has_turn_to_leave
from edgesim.models.catalog import check_model
from edgesim.models.errors import ModelError
from edgesim.scenario.data import DirichletPartition, IidPartition, LabelSkewPartition
from edgesim.scenario.recovery import RecoverySection
from edgesim.scenario.schema import Scenario
from edgesim.streams import Purpose, stream
from topologies import Schedule


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

    def digest(self, compute: Compute) -> str:
        """Name of all that decides the result: scenario, samples, and what models compute with."""
        digest = blake2b(digest_size=16)
        scenario = self.scenario.model_copy(update={"recovery": RecoverySection()})
        digest.update(scenario.model_dump_json().encode())
        digest.update(repr(compute).encode())
        for path in _paths_in(scenario.topology.model_dump()):
            digest.update(path.read_bytes())
        for samples in (self.dataset.train, self.dataset.test):
            digest.update(np.ascontiguousarray(samples.images_NHWC).data)
            digest.update(np.ascontiguousarray(samples.labels).data)
        return digest.hexdigest()

    def test_samples(self) -> LabelledImages:
        """The samples that models are evaluated on."""
        test, wanted = self.dataset.test, self.scenario.evaluation.samples
        if wanted is None or wanted >= len(test.labels):
            return test
        # The same for every seed: accuracies of several seeds are compared with each other.
        chosen = stream(0, Purpose.PARTITION, device=1).permutation(len(test.labels))[:wanted]
        return test.take(chosen)


def _paths_in(options: object) -> Iterator[Path]:
    """Files that a topology is read from."""
    match options:
        case {**keys}:
            for key, value in keys.items():
                if key == "path" and isinstance(value, str):
                    yield Path(value)
                else:
                    yield from _paths_in(value)
        case list() | tuple():
            for option in options:
                yield from _paths_in(option)


def prepare(scenario: Scenario, *, goes_on: bool = False) -> Prepared:
    """Check a scenario against its graph, data and model, and deal out the samples.

    Args:
        scenario: that is to be run.
        goes_on: its run has begun, and plans that can't come about can't be changed any more.

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
    check_length(scenario, schedule, training.num_rounds)
    if not goes_on:
        _check_leaves(schedule, training.num_rounds)
    return Prepared(scenario, schedule, dataset, indices, data, training, layout)


def _check_leaves(schedule: Schedule, num_rounds: int | None) -> None:
    """A device that is to leave waits for its turn, which must come before the run is over."""
    if num_rounds is None:
        return
    n, presence = schedule.num_devices, schedule.presence
    period = n * schedule.exchange_every
    for device in range(n):
        leave_round = presence.leave_round(device)
        if leave_round is None:
            continue
        first = next(r for r in count() if has_turn_to_leave(schedule, device, r))
        turns = range(first, num_rounds, period)
        # One that was away in the round before can't leave yet.
        last = next((r for r in reversed(turns) if presence.is_present(device, r - 1)), -1)
        if last < leave_round:
            remedy = f"let it leave in round {last} or before, or " if last > 0 else ""
            raise ScenarioError(
                f"fleet.churn.leaves: device {device} is to leave in round {leave_round}, but its "
                f"turn, one exchange in {n}, comes in none from there to the last, round "
                f"{num_rounds - 1}; {remedy}train for more rounds"
            )


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
    if section.virtual_time_s is not None and evaluation.every_virtual_s is None:
        return TrainingPlan(num_rounds, rounds_per_epoch, (num_rounds,))  # rounds are not reached
    if evaluation.every_virtual_s is not None:
        assert section.virtual_time_s is not None, "the schema asks for it"
        num_between = ceil(section.virtual_time_s / evaluation.every_virtual_s) - 1
        if num_between >= num_rounds:
            raise ScenarioError(
                f"evaluation.every_virtual_s is {evaluation.every_virtual_s:g}: more evaluations "
                f"than the {num_rounds} rounds of a device; raise it"
            )
        moments = (*range(1, num_between + 1), num_rounds)
        return TrainingPlan(num_rounds, rounds_per_epoch, moments, evaluation.every_virtual_s)
    if evaluation.every_rounds is not None:
        interval = evaluation.every_rounds
    else:
        interval = (evaluation.every_epochs or num_rounds) * rounds_per_epoch
    between = set(range(interval, num_rounds, interval))
    return TrainingPlan(num_rounds, rounds_per_epoch, tuple(sorted(between | {num_rounds})))
