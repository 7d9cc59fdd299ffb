"""How a scenario deals its training samples to the devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.own_partition import own_partition
from edgesim.data import natural
from edgesim.data.arrays import ArrayDataset
from edgesim.data.errors import DataError
from edgesim.data.images import Dataset
from edgesim.data.parquet import read_column
from edgesim.data.partition import dirichlet, iid, label_skew
from edgesim.errors import ScenarioError
from edgesim.scenario.data import (
    DataSection,
    DirichletPartition,
    FilePartition,
    IidPartition,
    LabelSkewPartition,
    OwnerPartition,
    OwnPartition,
)
from edgesim.scenario.schema import Scenario
from edgesim.streams import Purpose, stream


def deal(scenario: Scenario, dataset: Dataset | ArrayDataset) -> tuple[NDArray[np.int64], ...]:
    """Indices of each device's samples.

    Raises:
        ScenarioError, DataError, PartitionError: the partition is impossible for these samples.
    """
    rng = stream(scenario.seed, Purpose.PARTITION)
    num_train = len(dataset.train)
    chosen = np.arange(num_train)
    wanted = scenario.data.train_samples
    if wanted is not None and wanted < num_train:
        chosen = np.sort(rng.permutation(num_train)[:wanted])
    section, devices = scenario.data.partition, scenario.fleet.num_devices
    match section:
        case LabelSkewPartition():
            classes = _classes(dataset, section.kind)
            parts = label_skew(classes[chosen], devices, section.skew, scenario.seed)
        case DirichletPartition():
            parts = dirichlet(_classes(dataset, section.kind)[chosen], devices, section.alpha, rng)
        case IidPartition():
            parts = iid(len(chosen), devices, rng)
        case OwnerPartition():
            owners = owner_column(scenario.data, dataset, section.column, "train")
            parts = natural.by_owner(owners[chosen], devices)
        case FilePartition():
            parts = natural.by_file(Path(section.path), num_train, devices)
        case OwnPartition():
            parts = own_partition(section, dataset.train.labels[chosen], devices, rng)
        case _:
            assert_never(section)
    return tuple(chosen[part] for part in parts)


def owner_column(
    section: DataSection, dataset: Dataset | ArrayDataset, column: str, split: str
) -> NDArray[Any]:
    """Who owns each sample of a split: `train` or `test`.

    Raises:
        ScenarioError: the dataset has no such column.
        DataError: its files can't be read.
    """
    columns = dataset.columns if split == "train" else dataset.test_columns
    if column in columns:
        return columns[column]
    values = None
    if section.path is not None and isinstance(section.source, str):
        values = read_column(Path(section.path), split, column)
    if values is None:
        there = f"; it has {', '.join(columns)}" if columns else ""
        raise ScenarioError(
            f"data.partition.column is {column}, which is no column of the {split} samples of "
            f"{section.source}{there}"
        )
    samples = len(dataset.train if split == "train" else dataset.test)
    if len(values) != samples:
        raise DataError(
            f"data.path: {column} has {len(values)} values for {samples} {split} samples"
        )
    return values


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
