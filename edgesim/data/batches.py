"""Mini-batches as pure functions of the round, and passes over images for evaluation.

Shape suffixes: N samples, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, assert_never, get_args

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from edgesim.data.arrays import LabelledArrays, Shard, Transform
from edgesim.data.errors import DataError
from edgesim.data.images import LabelledImages
from edgesim.data.photographs import Photographs
from edgesim.streams import StreamPurpose, stream

Augmentation = Literal["none", "flip", "crop_flip", "resized_crop_flip"]
CROP_PADDING = 4  # pixels on each side: reference.md, section 5


class BatchStream:
    """The mini-batches of one device.

    A batch depends on the seed, the device and the round alone: a device that is restored from a
    checkpoint, or moved to another process, gets the same batches. Each local epoch is a
    permutation of the shard, cut into batches; the last may be smaller (reference.md, section 4,
    step 5).

    Args:
        shard: the device's samples, at least one; never written to.
        batch_size: samples of a batch, at least 1.
        augment: "none"; "flip", mirrored left to right at random; "crop_flip", also shifted by up
            to four pixels, with black borders; "resized_crop_flip", cropped at a random scale and
            mirrored, of a shard of `Photographs`.
        mean: of each channel, pixels scaled to [0, 1].
        std: likewise.
        seed: of the scenario.
        device: number of the device.
        transform: changes the inputs of a batch, those of images after normalisation, as float32
            of shape (N, C, H, W); None for no change.
        keep_inputs: keep the normalised images of the shard, if each epoch has the same ones: four
            bytes beside each of the shard's.

    Raises:
        ValueError: the shard is empty, the batch size is below 1, or `augment` is unknown.
    """

    def __init__(
        self,
        shard: Shard,
        batch_size: int,
        augment: Augmentation,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        seed: int,
        device: int,
        transform: Transform | None = None,
        *,
        keep_inputs: bool = False,
    ) -> None:
        if not len(shard) or batch_size < 1:
            raise ValueError(f"no batches of {batch_size} can be made of {len(shard)} samples")
        if augment not in get_args(Augmentation):
            raise ValueError(f"augment is {augment!r}; must be in {get_args(Augmentation)}")
        self._shard = shard
        self._batch_size = batch_size
        self._augment: Augmentation = augment
        self._mean = mean
        self._std = std
        self._seed = seed
        self._device = device
        self._transform = transform
        arrays, images = isinstance(shard, LabelledArrays), isinstance(shard, LabelledImages)
        self._is_fixed = transform is None and (arrays or (images and augment == "none"))
        self._keep_inputs = keep_inputs
        self._inputs = shard.inputs if isinstance(shard, LabelledArrays) else None
        self._order_of_epoch = (-1, np.empty(0, np.int64))  # epoch last asked for, its order

    @property
    def num_samples(self) -> int:
        """Samples of the shard."""
        return len(self._shard)

    @property
    def batches_per_epoch(self) -> int:
        """Rounds in which the device sees each of its samples once."""
        return -(-len(self._shard) // self._batch_size)

    def size(self, round_index: int) -> int:
        """Samples of a round's batch."""
        start = round_index % self.batches_per_epoch * self._batch_size
        return min(self._batch_size, len(self._shard) - start)

    def batch(self, round_index: int) -> tuple[Tensor, Tensor]:
        """Images and labels of a round, or inputs and targets.

        Returns:
            normalised images, float32, shape (N, C, H, W); labels, int64, shape (N,). Other inputs
            and their targets have the types and shapes of the shard's.
        """
        epoch, position = divmod(round_index, self.batches_per_epoch)
        start = position * self._batch_size
        chosen = self._order(epoch)[start : start + self._batch_size]
        if self._is_fixed:
            labels_N = torch.from_numpy(self._shard.labels[chosen])
            return torch.from_numpy(self._fixed_inputs(chosen)), labels_N
        rng = stream(self._seed, StreamPurpose.AUGMENT, self._device, round_index)
        if isinstance(self._shard, LabelledArrays):
            return _array_batch(self._shard, chosen, self._transform, rng)
        if isinstance(self._shard, Photographs):
            crops_NCHW = np.moveaxis(self._shard.random_crops(chosen, rng), 3, 1)
            augmented_NCHW = _flipped(crops_NCHW, rng)
        else:
            images_NCHW = np.moveaxis(self._shard.images_NHWC[chosen], 3, 1)
            augmented_NCHW = augment_images(images_NCHW, self._augment, rng)
        labels_N = torch.from_numpy(self._shard.labels[chosen])
        inputs_NCHW = normalise(augmented_NCHW, self._mean, self._std)
        if self._transform is not None:
            changed = transformed(inputs_NCHW.numpy(), self._transform, rng)
            inputs_NCHW = torch.from_numpy(changed)
        return inputs_NCHW, labels_N

    def _fixed_inputs(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """Inputs of some samples, which are the same in each epoch."""
        if self._inputs is not None:
            return self._inputs.take(chosen, axis=0)
        assert isinstance(self._shard, LabelledImages), "others are kept as they are"
        images_NHWC = self._shard.images_NHWC
        if self._keep_inputs:
            images_NCHW = np.moveaxis(images_NHWC, 3, 1)
            self._inputs = normalise(images_NCHW, self._mean, self._std).numpy()
            return self._inputs.take(chosen, axis=0)
        images_NCHW = np.moveaxis(images_NHWC[chosen], 3, 1)
        return normalise(images_NCHW, self._mean, self._std).numpy()

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if self._order_of_epoch[0] != epoch:
            rng = stream(self._seed, StreamPurpose.BATCH, self._device, epoch)
            self._order_of_epoch = (epoch, rng.permutation(len(self._shard)))
        return self._order_of_epoch[1]


def normalised_bytes(shard: Shard) -> int:
    """Bytes of a shard's normalised images; 0 of samples that are no images of one size."""
    return 4 * shard.images_NHWC.nbytes if isinstance(shard, LabelledImages) else 0


def evaluation_batches(
    images_NHWC: NDArray[np.uint8],
    labels: NDArray[np.int64],
    batch_size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over all samples in order, without augmentation; types as in `BatchStream.batch`."""
    for start in range(0, len(labels), batch_size):
        part = slice(start, start + batch_size)
        images_NCHW = np.moveaxis(images_NHWC[part], 3, 1)
        yield normalise(images_NCHW, mean, std), torch.from_numpy(labels[part].copy())


def passes_over(
    samples: Shard,
    batch_size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over all samples, images or arrays, in order and without augmentation."""
    if isinstance(samples, Photographs):
        samples = samples.centres()
    if isinstance(samples, LabelledImages):
        yield from evaluation_batches(samples.images_NHWC, samples.labels, batch_size, mean, std)
        return
    for start in range(0, len(samples), batch_size):
        part = slice(start, start + batch_size)
        yield (
            torch.from_numpy(samples.inputs[part].copy()),
            torch.from_numpy(samples.labels[part].copy()),
        )


def _array_batch(
    shard: LabelledArrays,
    chosen: NDArray[np.int64],
    transform: Transform | None,
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """A batch of arrays."""
    inputs: NDArray[Any] = shard.inputs[chosen]
    if transform is not None:
        inputs = transformed(inputs, transform, rng)
    return torch.from_numpy(inputs), torch.from_numpy(shard.labels[chosen])


def transformed(
    inputs: NDArray[Any], transform: Transform, rng: np.random.Generator
) -> NDArray[Any]:
    """The inputs of a batch, changed by a transform of one's own.

    Raises:
        DataError: the transform does not return as many inputs of the same type.
    """
    changed = np.ascontiguousarray(transform(inputs, rng))
    if changed.dtype != inputs.dtype or not changed.ndim or len(changed) != len(inputs):
        raise DataError(
            f"data.source: transform gives {changed.dtype} of shape {changed.shape} for "
            f"{len(inputs)} inputs of {inputs.dtype}; it must give as many of the same type"
        )
    return changed


def augment_images(
    images_NCHW: NDArray[np.uint8], augment: Augmentation, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Mirror and move each image independently, as for CIFAR; the input is untouched.

    Source: reference.md, section 5.
    """
    match augment:
        case "none":
            return images_NCHW
        case "flip":
            return _flipped(images_NCHW, rng)
        case "crop_flip":
            return _cropped(_flipped(images_NCHW, rng), rng)
        case "resized_crop_flip":
            raise ValueError("random crops at random scales are taken of Photographs")
    assert_never(augment)


def normalise(
    images_NCHW: NDArray[np.uint8], mean: tuple[float, ...], std: tuple[float, ...]
) -> Tensor:
    """(pixel / 255 - mean) / std by channel, in float32 and that order, as torchvision does."""
    scaled_NCHW = torch.from_numpy(images_NCHW.astype(np.float32, order="C")).div_(255)
    mean_C11, std_C11 = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return scaled_NCHW.sub_(mean_C11).div_(std_C11)


def _flipped(images_NCHW: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    is_flipped = rng.random(len(images_NCHW)) < 0.5
    flipped_NCHW = images_NCHW.copy()
    flipped_NCHW[is_flipped] = images_NCHW[is_flipped, :, :, ::-1]
    return flipped_NCHW


def _cropped(images_NCHW: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A window of the original size, anywhere on the image with its black border."""
    N, C, H, W = images_NCHW.shape
    border = CROP_PADDING
    padded_NCHW = np.zeros((N, C, H + 2 * border, W + 2 * border), np.uint8)
    padded_NCHW[:, :, border:-border, border:-border] = images_NCHW
    top, left = rng.integers(0, 2 * border, size=(2, N), endpoint=True)
    windows = sliding_window_view(padded_NCHW, (H, W), axis=(2, 3))  # N, C, top, left, H, W
    return windows[np.arange(N), :, top, left]
