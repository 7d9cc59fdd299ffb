"""Batches of devices whose numbers of samples are known, and the work of a step on them.

All counts of a step are affine in the size of its batch: some grow with it, and some, such as the
traffic of weights, do not. So the work of a mean batch is the mean of the works of all batches, and
follows from the works of two sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from edgesim.assembly.partitions import deal
from edgesim.costs.layer_work import StepWork
from edgesim.data.arrays import ArrayDataset
from edgesim.data.images import Dataset
from edgesim.scenario.data import FilePartition, OwnerPartition
from edgesim.scenario.schema import Scenario

_LEAST = 2  # samples of the smaller batch that is counted: norms refuse one


def shard_sizes(
    scenario: Scenario, num_train: int, dataset: Dataset | ArrayDataset | None
) -> tuple[int, ...] | None:
    """Training samples of each device, where a file or the owners of data say it; else None.

    Args:
        scenario: with its devices in the order of their numbers.
        num_train: training samples that are dealt.
        dataset: the data, if they were read.

    Raises:
        ScenarioError, DataError, PartitionError: the partition is impossible, as in a run.
    """
    section, fleet = scenario.data.partition, scenario.fleet
    if isinstance(section, FilePartition):
        from edgesim.data.natural import by_file  # loads pyarrow

        dealt = by_file(section.path, num_train, fleet.num_devices, device_names=fleet.names)
        return tuple(map(len, dealt))
    if isinstance(section, OwnerPartition) and dataset is not None:
        return tuple(map(len, deal(scenario, dataset).train))
    return None


def fill_of(samples: float, batch_size: int) -> float:
    """Mean samples of a batch, of a full one: an epoch's last batch may be smaller."""
    return samples / (ceil(samples / batch_size) * batch_size)


def smaller_batch(sizes: Sequence[int], batch_size: int) -> int:
    """Samples of a batch that is no larger than any device's mean one, if norms take it."""
    smallest = min(fill_of(size, batch_size) for size in sizes) * batch_size
    return min(max(int(smallest), _LEAST), batch_size)


def mean_steps(
    full: StepWork, smaller: StepWork, sizes: Sequence[int], batch_size: int
) -> tuple[StepWork, ...]:
    """Work of a step on each device's mean batch.

    Args:
        full: on a full batch.
        smaller: on one of `smaller_batch` samples.
        sizes: samples of each device.
        batch_size: samples of a full batch.
    """
    small, found = smaller_batch(sizes, batch_size), dict[float, StepWork]()
    fills = [fill_of(size, batch_size) for size in sizes]
    for fill in {*fills}:
        samples = fill * batch_size
        is_full = samples == batch_size or small == batch_size
        share = 1.0 if is_full else (samples - small) / (batch_size - small)
        found[fill] = full if is_full else full.between(smaller, share)
    return tuple(found[fill] for fill in fills)
