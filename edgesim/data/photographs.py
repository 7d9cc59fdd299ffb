"""Photographs that keep their shape until a random crop of each is taken in training.

An image is scaled so that its shorter side has 256 pixels for crops of 224, and in proportion for
other crops. Training takes a random crop of it, at a random scale and aspect ratio, and evaluation
the middle square. Source: reference.md, section 5; the ranges of a crop are those of C. Szegedy et
al., arXiv 1409.4842, section 6.

Shape suffixes: N samples, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from edgesim.data.images import LabelledImages, Samples, StoredImages

KEPT, CROPPED = 256, 224  # pixels of the shorter side, and of a crop: reference.md, section 5
AREAS = (0.08, 1.0)  # of a crop, as shares of the image's
RATIOS = (3 / 4, 4 / 3)  # of a crop's width to its height
ATTEMPTS = 10  # to draw a crop that fits, before the largest one in the middle is taken
BLOCK = 64  # images whose middle squares are cut at a time

Box = tuple[int, int, int, int]
"""Left, top, right and bottom, pixels."""


def kept_side(side: int) -> int:
    """Pixels of the shorter side of images from which crops of `side` pixels are taken."""
    return round(side * KEPT / CROPPED)


@dataclass(frozen=True, slots=True, eq=False)
class Photographs:
    """Images of different shapes with their classes; the arrays may be read-only (shared memory).

    Attributes:
        pixels: uint8, shape (bytes,): the images one after the other, each of shape (H, W, C).
        sizes_N2: int64, height and width of each.
        labels: int64, shape (samples,).
        channels: C.
        side: height and width of a crop, pixels.
    """

    pixels: NDArray[np.uint8]
    sizes_N2: NDArray[np.int64]  # noqa: N815  # shape suffix
    labels: NDArray[np.int64]
    channels: int
    side: int

    @classmethod
    def of(
        cls, images_HWC: Sequence[NDArray[np.uint8]], labels: NDArray[np.int64], side: int
    ) -> Photographs:
        """Photographs of single images, at least one."""
        sizes_N2 = np.array([image_HWC.shape[:2] for image_HWC in images_HWC], np.int64)
        pixels = np.concatenate([image_HWC.reshape(-1) for image_HWC in images_HWC])
        return cls(pixels, sizes_N2, labels, images_HWC[0].shape[2], side)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def contents(self) -> tuple[NDArray[Any], ...]:
        """All arrays."""
        return self.pixels, self.sizes_N2, self.labels

    def images(self, indices: Iterable[int]) -> list[NDArray[np.uint8]]:
        """Some images, shape (H, W, C) each; they share memory with `pixels`."""
        lengths = self.sizes_N2.prod(axis=1) * self.channels
        ends = np.cumsum(lengths)
        found = []
        for index in indices:
            height, width = self.sizes_N2[index]
            part = self.pixels[ends[index] - lengths[index] : ends[index]]
            found.append(part.reshape(height, width, self.channels))
        return found

    def take(self, indices: NDArray[np.int64]) -> Photographs:
        """Copy of some samples, in the order of `indices`: a device's shard."""
        return Photographs.of(self.images(indices), self.labels[indices], self.side)

    def centres(self) -> LabelledImages:
        """The middle square of each image."""
        images = np.stack([_centre(image, self.side) for image in self.images(range(len(self)))])
        return LabelledImages(images, self.labels)

    def random_crops(
        self, indices: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        """A random crop of each of some images, scaled to a square; shape (N, side, side, C)."""
        size = (self.side, self.side)
        crops = []
        for image_HWC in self.images(indices):
            height, width, channels = image_HWC.shape
            box = random_box(height, width, rng)
            image = Image.fromarray(image_HWC.squeeze(2) if channels == 1 else image_HWC)
            crop = image.crop(box).resize(size, Image.Resampling.BILINEAR)
            crops.append(np.asarray(crop).reshape(*size, channels))
        return np.stack(crops)


def photographs_of(samples: Samples, indices: NDArray[np.int64]) -> Photographs:
    """Some samples of a split, in the order of `indices`; no other image is read.

    Images that are in memory already have one size, and are taken as they are.

    Raises:
        DataError: an image can't be read.
    """
    side, labels = samples.image_shape_HWC[0], samples.labels[indices]
    if not isinstance(samples, StoredImages) or samples.read_whole is None:
        return Photographs.of(list(samples.take(indices).images_NHWC), labels, side)
    positions, places = np.unique(indices, return_inverse=True)
    images = samples.read_whole(positions, kept_side(side))
    return Photographs.of([images[place] for place in places.tolist()], labels, side)


def middle_squares(samples: Samples, indices: NDArray[np.int64]) -> LabelledImages:
    """Middle squares of some samples, after the scaling that random crops get."""
    blocks = [indices[start : start + BLOCK] for start in range(0, len(indices), BLOCK)]
    parts = [photographs_of(samples, block).centres() for block in blocks]
    images_NHWC = np.concatenate([part.images_NHWC for part in parts])
    return LabelledImages(images_NHWC, samples.labels[indices])


def random_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """A box in an image, of random area and aspect ratio; the middle one if none fits."""
    for _ in range(ATTEMPTS):
        area = height * width * rng.uniform(*AREAS)
        ratio = exp(rng.uniform(log(RATIOS[0]), log(RATIOS[1])))
        box_width, box_height = round(sqrt(area * ratio)), round(sqrt(area / ratio))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(rng.integers(0, height - box_height, endpoint=True))
            left = int(rng.integers(0, width - box_width, endpoint=True))
            return left, top, left + box_width, top + box_height
    ratio = min(max(width / height, RATIOS[0]), RATIOS[1])
    box_width = min(width, round(height * ratio))
    box_height = min(height, round(width / ratio))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def _centre(image_HWC: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    top, left = ((length - side) // 2 for length in image_HWC.shape[:2])
    return image_HWC[top : top + side, left : left + side]
