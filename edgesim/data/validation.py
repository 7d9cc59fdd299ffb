"""A split for validation: training samples that are held back, to choose settings by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.data.arrays import ArrayDataset
from edgesim.data.errors import DataError
from edgesim.data.images import Dataset, Samples, StoredImages
from edgesim.data.shape import DataShape
from edgesim.streams import StreamPurpose, stream

Columns = Mapping[str, NDArray[Any]]


def hold_back(dataset: Dataset | ArrayDataset, count: int) -> Dataset | ArrayDataset:
    """A dataset whose test samples are training samples of another, which has them no more.

    They are drawn at random, the same ones for every seed of a scenario: runs of several seeds are
    compared with each other. Both parts keep the order of the training samples.

    Args:
        dataset: its test samples go unused.
        count: training samples to hold back.

    Raises:
        DataError: no training sample would be left.
    """
    num_train = len(dataset.train)
    _check(count, num_train)
    order = stream(0, StreamPurpose.VALIDATION).permutation(num_train)
    held, rest = np.sort(order[:count]), np.sort(order[count:])
    columns, test_columns = _rows(dataset.columns, rest), _rows(dataset.columns, held)
    if isinstance(dataset, Dataset):
        train, test = _part(dataset.train, rest), _part(dataset.train, held)
        return replace(dataset, train=train, test=test, columns=columns, test_columns=test_columns)
    return replace(
        dataset,
        train=dataset.train.take(rest),
        test=dataset.train.take(held),
        columns=columns,
        test_columns=test_columns,
    )


def shape_without(shape: DataShape, count: int) -> DataShape:
    """The sizes of what `hold_back` gives.

    Raises:
        DataError: no training sample would be left.
    """
    _check(count, shape.num_train)
    return replace(shape, num_train=shape.num_train - count, num_test=count)


def _check(count: int, num_train: int) -> None:
    if count >= num_train:
        raise DataError(
            f"data.validation_samples is {count}, but there are only {num_train} training samples, "
            "of which some must be left; lower it"
        )


def _rows(columns: Columns, positions: NDArray[np.int64]) -> Columns:
    return {name: values[positions] for name, values in columns.items()}


def _part(samples: Samples, positions: NDArray[np.int64]) -> Samples:
    """Samples at increasing positions; images in files are read when they are requested."""
    if not isinstance(samples, StoredImages):
        return samples.take(positions)
    whole = samples.read_whole
    return StoredImages(
        samples.labels[positions],
        samples.image_shape_HWC,
        lambda chosen: samples.take(positions[chosen]).images_NHWC,
        whole and (lambda chosen, side: whole(positions[chosen], side)),
    )
