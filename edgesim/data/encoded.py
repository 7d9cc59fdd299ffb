"""Splits whose images are encoded (JPEG, PNG, ...), decoded when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgesim.data.decoding import (
    EncodedImage,
    decode_images,
    decode_whole,
    is_coloured,
    size_of,
)
from edgesim.data.images import Splits, StoredImages


@dataclass(frozen=True, slots=True, eq=False)
class EncodedSplit:
    """Samples as they are in files.

    Attributes:
        labels: int64, shape (samples,), at least one.
        images: gives the images at increasing positions.
        image_size: side in pixels that images are brought to; None: as they are.
    """

    labels: NDArray[np.int64]
    images: Callable[[NDArray[np.int64]], Iterator[EncodedImage]]
    image_size: int | None

    def has_colour(self) -> bool:
        """Whether one of the images has colours; stops at the first one."""
        return any(map(is_coloured, self.images(np.arange(len(self.labels)))))

    def stored(self, channels: int) -> StoredImages:
        """The samples with `channels` channels and the size of the first image."""
        width, height = size_of(next(self._first()), self.image_size)

        def read(positions: NDArray[np.int64]) -> NDArray[np.uint8]:
            encoded, size = self.images(positions), (width, height)
            images_NHWC = decode_images(encoded, len(positions), self.image_size, size)
            missing = channels // images_NHWC.shape[3]
            return images_NHWC if missing == 1 else np.repeat(images_NHWC, missing, axis=3)

        def read_whole(positions: NDArray[np.int64], side: int) -> list[NDArray[np.uint8]]:
            return decode_whole(self.images(positions), len(positions), side, channels)

        return StoredImages(self.labels, (height, width, channels), read, read_whole)

    def _first(self) -> Iterator[EncodedImage]:
        return self.images(np.zeros(1, np.int64))


def make_splits(train: EncodedSplit, test: EncodedSplit, class_names: tuple[str, ...]) -> Splits:
    """Splits with equal numbers of channels: if any image has colours, all get three channels.

    Raises:
        DataError: an image can't be read, or the splits differ in image size.
    """
    channels = 3 if train.has_colour() or test.has_colour() else 1
    return Splits(train.stored(channels), test.stored(channels), class_names)
