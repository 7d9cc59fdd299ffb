"""How a scenario deals its training samples to the devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.parts.options import parameters_of
from edgesim.assembly.parts.own_partition import checked_partition
from edgesim.assembly.parts.own_parts import load_part, make_part, part_and_options
from edgesim.data.arrays import ArrayDataset
from edgesim.data.images import Dataset
from edgesim.data.source import FolderSource
from edgesim.data.sources import SOURCES
from edgesim.errors import ScenarioError
from edgesim.scenario.catalog import PARTITIONS
from edgesim.scenario.data import (
    DataSection,
    FilePartition,
    LabelSkewPartition,
    OtherPartition,
    OwnerPartition,
)
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.schema import Scenario
from edgesim.streams import StreamPurpose, stream

_MOST_UNUSED, _LEAST_SHARD = 0.15, 0.5  # parts beyond which a notice tells of label skew
_KEY = "data.partition.kind"


class Dealt(NamedTuple):
    """Positions of samples in their split, for each device.

    Attributes:
        train: training samples; each device has some.
        test: each device's own held-out samples; empty if nothing says whose a test sample is.
    """

    train: tuple[NDArray[np.int64], ...]
    test: tuple[NDArray[np.int64], ...]


def deal(scenario: Scenario, dataset: Dataset | ArrayDataset) -> Dealt:
    """Deal the samples of a dataset to the devices, which have the order of their numbers.

    A partition is called with its options, and with those of these arguments that it names:

        labels: targets of the samples.
        classes: the same, where each is a class; otherwise the partition is refused.
        column_of: gives a column of the dataset by its name: a value for each sample.
        test_labels: targets of the test samples.
        test_column_of: gives a column of the test samples by its name.
        num_samples: of the dataset that are used.
        num_devices: of the fleet.
        device_names: by number; empty if devices have only numbers.
        rng: a generator of the scenario's seed.
        seed: of the scenario.

    Raises:
        ScenarioError, DataError, PartitionError: the partition is impossible for these samples.
    """
    rng = stream(scenario.seed, StreamPurpose.PARTITION)
    num_train = len(dataset.train)
    chosen = np.arange(num_train)
    wanted = scenario.data.train_samples
    if wanted is not None and wanted < num_train:
        chosen = np.sort(rng.permutation(num_train)[:wanted])
    part, options = part_and_options(scenario.data.partition, "kind", PARTITIONS)
    given: dict[str, Callable[[], object]] = {
        "labels": lambda: dataset.train.labels[chosen],
        "classes": lambda: _classes(dataset, str(part))[chosen],
        "column_of": lambda: (
            lambda name: owner_column(scenario.data, dataset, name, "train")[chosen]
        ),
        "test_labels": lambda: dataset.test.labels.copy(),
        "test_column_of": lambda: (
            lambda name: owner_column(scenario.data, dataset, name, "test").copy()
        ),
        "num_samples": lambda: len(chosen),
        "num_devices": lambda: scenario.fleet.num_devices,
        "device_names": lambda: scenario.fleet.names,
        "rng": lambda: rng,
        "seed": lambda: scenario.seed,
    }
    asked = parameters_of(load_part(part, _KEY))
    arguments: dict[str, Any] = {name: make() for name, make in given.items() if name in asked}
    again = deepcopy(rng)
    dealt, own_tests = make_part(part, _KEY, options, offered=given, **arguments), None
    if not part.shipped_as:
        sizes = len(chosen), len(dataset.test)
        dealt, own_tests = checked_partition(dealt, part, sizes, scenario.fleet.num_devices)
        if "rng" in asked:
            arguments["rng"] = again
        second = make_part(part, _KEY, options, **arguments)
        repeated = checked_partition(second, part, sizes, scenario.fleet.num_devices)
        if not _are_equal([*dealt, *(own_tests or ())], [*repeated[0], *(repeated[1] or ())]):
            raise ScenarioError(
                f"{_KEY}: {part} deals other samples when it is called again, so no run could be "
                "repeated or resumed; take rng as an argument, or numbers of a fixed seed"
            )
    train = tuple(chosen[positions] for positions in dealt)
    if scenario.evaluation.own_samples == 0:
        return Dealt(train, ())
    if own_tests is None:
        own_tests = _held_out(scenario, dataset, train)
    return Dealt(train, _at_most(scenario.evaluation.own_samples, own_tests))


def _are_equal(some: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]) -> bool:
    """Whether lists of arrays are the same."""
    return len(some) == len(others) and all(map(np.array_equal, some, others))


def notices_of_skew(
    scenario: Scenario, dataset: Dataset | ArrayDataset, indices: Sequence[NDArray[np.int64]]
) -> tuple[str, ...]:
    """What label skew does where classes are small, and how much a partition of one's own leaves.

    Args:
        scenario: of the run.
        dataset: of the scenario.
        indices: of each device's training samples.
    """
    section = scenario.data.partition
    there = scenario.data.train_samples or len(dataset.train)
    sizes = [len(shard) for shard in indices]
    unused = there - sum(sizes)
    if isinstance(section, OtherPartition) and unused > _MOST_UNUSED * there:
        said = (
            f"data.partition.kind: {section.kind} deals {sum(sizes):,} of {there:,} samples; the "
            "others are used by nobody"
        )
        return (said,)
    if not isinstance(section, LabelSkewPartition):
        return ()
    if unused <= _MOST_UNUSED * there and min(sizes) >= _LEAST_SHARD * max(sizes):
        return ()
    said = (
        f"data.partition: label_skew rounds the parts of small classes down: {unused:,} of "
        f"{there:,} samples are used by nobody, and devices have {min(sizes):,} to "
        f"{max(sizes):,}; fewer devices, more samples or kind: dirichlet lose less"
    )
    return (said,)


def notices_of_owners(
    scenario: Scenario,
    dataset: Dataset | ArrayDataset,
    own_tests: Sequence[NDArray[np.int64]],
) -> tuple[str, ...]:
    """What a partition by owner does that is easily overlooked.

    Args:
        scenario: of the run.
        dataset: of the scenario.
        own_tests: positions of each device's own test samples; empty if no device has any.

    Raises:
        DataError: the files with the owners can't be read.
    """
    section, names = scenario.data.partition, scenario.fleet.names
    if not isinstance(section, OwnerPartition):
        return ()
    from edgesim.data.natural import have_names_of  # loads pyarrow

    found = []
    owners = owner_column(scenario.data, dataset, section.column, "train")
    if names and not have_names_of(names, owners):
        found.append("no owner has the name of a device; owners are dealt in turn")
    lacks_own = scenario.evaluation.own_samples != 0 and not own_tests
    if lacks_own and section.column in dataset.test_columns:
        found.append(
            "no test sample is of an owner with training samples, so models are evaluated on the "
            "common test samples alone"
        )
    return tuple(f"data.partition.column: {said}" for said in found)


def _held_out(
    scenario: Scenario, dataset: Dataset | ArrayDataset, indices: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """Positions of each device's own test samples; empty where nothing says whose they are.

    Args:
        scenario: of the run.
        dataset: of the scenario.
        indices: of each device's training samples.

    Raises:
        DataError, PartitionError: the files can't be read, or say something else.
    """
    section = scenario.data.partition
    if not isinstance(section, OwnerPartition | FilePartition):
        return []
    from edgesim.data import natural  # loads pyarrow, which other partitions do without

    if isinstance(section, OwnerPartition):
        if section.column not in dataset.test_columns:
            return []
        owners, test_owners = (
            owner_column(scenario.data, dataset, section.column, split)
            for split in ("train", "test")
        )
        return natural.held_out_by_owner(owners, indices, test_owners)
    if section.test_path is None:
        return []
    fleet = scenario.fleet
    return natural.held_out_by_file(
        section.test_path, len(dataset.test), fleet.num_devices, fleet.names
    )


def _at_most(most: int | None, parts: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], ...]:
    """So many of each device's positions, drawn at random; none if no device has any."""
    if not any(map(len, parts)):
        return ()
    if most is not None:  # the same ones for every seed, as of the common samples
        rngs = (
            stream(0, StreamPurpose.PARTITION, device=2 + number) for number in range(len(parts))
        )
        parts = [
            np.sort(rng.permutation(part)[:most]) for rng, part in zip(rngs, parts, strict=True)
        ]
    return tuple(parts)


def owner_column(
    section: DataSection, dataset: Dataset | ArrayDataset, column: str, split: str
) -> NDArray[Any]:
    """Who owns each sample of a split: `train` or `test`.

    Raises:
        ScenarioError: the dataset has no such column.
        DataError: its files can't be read.
    """
    columns = dataset.columns if split == "train" else dataset.test_columns
    if column not in columns:
        there = f"; it has {', '.join(columns)}" if columns else _owners_of(section)
        raise ScenarioError(
            f"data.partition.column is {column}, which is no column of the {split} samples of "
            f"{section.source}{there}"
        )
    return columns[column]


def _owners_of(section: DataSection) -> str:
    """Where files of a user's own may say who owns a sample; empty of other sources."""
    source = None if isinstance(section.source, OwnPart) else SOURCES.get(section.source)
    return f"; owners are in {source.owners}" if isinstance(source, FolderSource) else ""


def _classes(dataset: Dataset | ArrayDataset, kind: str) -> NDArray[np.int64]:
    """The class of each training sample."""
    labels: NDArray[Any] = dataset.train.labels
    if labels.dtype != np.int64 or labels.ndim != 1:
        raise ScenarioError(
            f"data.partition.kind is {kind}, which goes by classes, but a target of "
            f"{dataset.name} is {labels.dtype} of shape {labels.shape[1:]}; choose iid, by_owner "
            "or file"
        )
    return labels
