"""Labelled images: in memory, or in files from which they are read when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgesim.data.errors import DataError

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, pixels scaled to [0, 1]."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Images of one size with their classes; both arrays may be read-only (shared memory).

    Attributes:
        images_NHWC: uint8, C-contiguous, shape (samples, height, width, channels).
        labels: int64, shape (samples,).

    Raises:
        ValueError: the arrays are not of these types and shapes.
    """

    images_NHWC: NDArray[np.uint8]  # noqa: N815  # shape suffix
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        images, labels = self.images_NHWC, self.labels
        if images.dtype != np.uint8 or images.ndim != 4 or not images.flags.c_contiguous:
            raise ValueError("images must be uint8, C-contiguous, of shape (N, H, W, C)")
        if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
            raise ValueError("labels must be int64, one for each image")

    @property
    def image_shape_HWC(self) -> tuple[int, int, int]:  # noqa: N802  # shape suffix
        """Height, width, channels of every image."""
        height, width, channels = self.images_NHWC.shape[1:]
        return height, width, channels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def contents(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Both arrays."""
        return self.images_NHWC, self.labels

    def take(self, indices: NDArray[np.int64]) -> LabelledImages:
        """Copy of some samples, in the order of `indices`: a device's shard."""
        return LabelledImages(self.images_NHWC[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Samples of which only requested images are read, when they are requested.

    Attributes:
        labels: int64, shape (samples,).
        image_shape_HWC: height, width, channels of every image.
        read: gives the images at increasing positions, shape (positions, H, W, C); raises a
            DataError for one that can't be read.
        read_whole: the same of images that keep their aspect ratio, scaled so that the shorter side
            has so many pixels; None where there are none.
    """

    labels: NDArray[np.int64]
    image_shape_HWC: tuple[int, int, int]  # noqa: N815  # shape suffix
    read: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    read_whole: Callable[[NDArray[np.int64], int], list[NDArray[np.uint8]]] | None = None

    @cached_property
    def images_NHWC(self) -> NDArray[np.uint8]:  # noqa: N802  # shape suffix
        """All images, read when first asked for."""
        return self.read(np.arange(len(self.labels)))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> LabelledImages:
        """Some samples, in the order of `indices`; no other image is read."""
        if "images_NHWC" in self.__dict__:  # all are in memory: nothing is read twice
            return LabelledImages(self.images_NHWC[indices], self.labels[indices])
        positions, places = np.unique(indices, return_inverse=True)
        images_NHWC = self.read(positions)
        if not np.array_equal(positions, indices):
            images_NHWC = images_NHWC[places]
        return LabelledImages(images_NHWC, self.labels[indices])


Samples: TypeAlias = LabelledImages | StoredImages
"""A split of a dataset, wherever its images are."""


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """What a source holds: samples to train on, samples to test with, and their classes.

    Images of both splits have the same shape, and every label is a position in `class_names`.

    Attributes:
        train: at least one sample.
        test: the same.
        class_names: by number.
        columns: by name, one value per training sample, such as its owner; for partitions.
        test_columns: the same for test samples.

    Raises:
        DataError: a split is empty, or the splits differ in image size.
    """

    train: Samples
    test: Samples
    class_names: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict, kw_only=True)
    test_columns: Mapping[str, NDArray[Any]] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for split, samples in (("training", self.train), ("test", self.test)):
            if not len(samples):
                raise DataError(f"the {split} split holds no images; at least one is needed")
        shape, test_shape = (x.image_shape_HWC for x in (self.train, self.test))
        if shape != test_shape:
            raise DataError(
                f"training images are {_spoken(shape)}, test images {_spoken(test_shape)}; "
                "set data.image_size to bring all to one size"
            )


@dataclass(frozen=True, eq=False)
class Dataset(Splits):
    """A dataset ready for training.

    Attributes:
        name: of its source, as scenarios write it.
        published: published mean and deviation of its channels. None: they are computed from all
            training images at the first access.
    """

    name: str
    published: Statistics | None
    input_dtype = "float32"
    noun: ClassVar[str] = "images"

    @cached_property
    def statistics(self) -> Statistics:
        """Mean and standard deviation of each channel, pixels scaled to [0, 1]."""
        return self.published or channel_statistics(self.train.images_NHWC)

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel."""
        return self.statistics[0]

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel."""
        return self.statistics[1]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width: the order of a model's input."""
        height, width, channels = self.train.image_shape_HWC
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """Number of classes of the whole dataset; a shard may lack some."""
        return len(self.class_names)

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one image (one per pixel and channel) and of its class."""
        return prod(self.train.image_shape_HWC) + self.train.labels.itemsize


def channel_statistics(images_NHWC: NDArray[np.uint8]) -> Statistics:
    """Mean and standard deviation of each channel, pixels scaled to [0, 1].

    They are computed from exact counts of the 256 pixel values, so they do not depend on an order
    of summation. A constant channel gets a deviation of 1, so that normalising it gives finite
    numbers.
    """
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images_NHWC.shape[3]):
        frequency = _value_counts(images_NHWC[..., channel]) / images_NHWC[..., channel].size
        mean = float(frequency @ values)
        means.append(mean)
        deviations.append(float(np.sqrt(frequency @ (values - mean) ** 2)) or 1.0)
    return tuple(means), tuple(deviations)


def first_label_outside(labels: NDArray[np.int64], num_classes: int) -> int | None:
    """Position of the first label that is no class number, or None."""
    outside = (labels < 0) | (labels >= num_classes)
    return int(outside.argmax()) if outside.any() else None


def _value_counts(pixels_NHW: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How often each of the 256 values occurs."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(pixels_NHW), 256):  # in parts: bincount makes int64 of them
        counts += np.bincount(pixels_NHW[start : start + 256].ravel(), minlength=256)
    return counts


def _spoken(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{width}x{height} pixels with {channels} channel{'s'[: channels > 1]}"
