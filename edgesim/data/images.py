"""Labelled images in memory: the one form that every source yields and every device trains on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgesim.data.errors import DataError


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

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> LabelledImages:
        """Copy of some samples, in the order of `indices`: a device's shard."""
        return LabelledImages(self.images_NHWC[indices], self.labels[indices])


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """What a source holds: samples to train on, samples to test with, and their classes.

    Images of both splits have the same shape, and every label is a position in `class_names`.

    Raises:
        DataError: a split is empty, or the splits differ in image size.
    """

    train: LabelledImages
    test: LabelledImages
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for split, samples in (("training", self.train), ("test", self.test)):
            if not len(samples):
                raise DataError(f"the {split} split holds no images; at least one is needed")
        shape, test_shape = (x.images_NHWC.shape[1:] for x in (self.train, self.test))
        if shape != test_shape:
            raise DataError(
                f"training images are {_spoken(shape)}, test images {_spoken(test_shape)}; "
                "set data.image_size to bring all to one size"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Dataset(Splits):
    """A dataset ready for training.

    Attributes:
        name: of its source, as scenarios write it.
        mean: of each channel over the training images, pixels scaled to [0, 1].
        std: likewise.
    """

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width: the order of a model's input."""
        height, width, channels = self.train.images_NHWC.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """Of the whole dataset, though a shard may lack some."""
        return len(self.class_names)


def make_splits(
    train: LabelledImages, test: LabelledImages, class_names: tuple[str, ...]
) -> Splits:
    """Splits with one number of channels: grey images beside coloured ones become coloured.

    Raises:
        DataError: a split is empty, or the splits differ in image size.
    """
    channels = max(samples.images_NHWC.shape[3] for samples in (train, test))
    return Splits(_in_channels(train, channels), _in_channels(test, channels), class_names)


def channel_statistics(
    images_NHWC: NDArray[np.uint8],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, pixels scaled to [0, 1].

    Taken from exact counts of the 256 pixel values, so no order of summation enters. A channel
    that never changes gets a deviation of 1, so that normalising leaves it finite.
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
    for start in range(0, len(pixels_NHW), 256):  # in parts: bincount widens what it is given
        counts += np.bincount(pixels_NHW[start : start + 256].ravel(), minlength=256)
    return counts


def _in_channels(samples: LabelledImages, channels: int) -> LabelledImages:
    if samples.images_NHWC.shape[3] == channels:
        return samples
    return LabelledImages(np.repeat(samples.images_NHWC, channels, axis=3), samples.labels)


def _spoken(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{width}x{height} pixels with {channels} channel{'s'[: channels > 1]}"
