"""Encoded images (JPEG, PNG and whatever Pillow reads) to one uint8 array, on a thread pool.

Small JPEGs need a word. Pillow reads a file's header in Python, which for a 32x32 image takes three
times as long as decoding its pixels and keeps all threads but one waiting. The images of a dataset
were mostly written by one encoder, so their headers are the same bytes: where a header repeats one
that Pillow has read and understood, the pixels go straight to Pillow's decoder.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from edgesim.data.errors import DataError
from edgesim.data.images import LabelledImages, Samples, StoredImages

PIXELS_PER_BLOCK = 1 << 20  # decoded by one task; bounds what a thread holds to some MB
MAX_THREADS = 8
GREY_MODES = frozenset({"1", "L", "LA"})
COLOUR_MODES = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr"})
FIRST_FRAME_MARKER, LAST_FRAME_MARKER = 0xC0, 0xCF  # JPEG: SOF0 to SOF15 hold size and channels
NO_FRAME_MARKERS = frozenset({0xC4, 0xC8, 0xCC})  # in that range, but tables
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image file, or its bytes.

    Attributes:
        content: bytes of the file, or where to read them.
        where: the image's name in error messages.
    """

    content: bytes | Path
    where: str

    def read(self) -> bytes:
        """Bytes of the file."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


def decode_images(
    encoded: Iterable[EncodedImage], num_images: int, image_size: int | None
) -> NDArray[np.uint8]:
    """Decode images of one size, or bring them to one size.

    With `image_size` an image is scaled (bilinear, antialiased) until its shorter side fits, and
    the middle square of it is kept.

    Args:
        encoded: the images; consumed as decoding goes on, so never all in memory.
        num_images: how many there are, at least 1.
        image_size: side in pixels of the square images wanted; None: as they are.

    Returns:
        shape (num_images, height, width, channels); one channel if all are grey, else three.

    Raises:
        DataError: one is no image, of an unknown kind, or of another size than the first.
    """
    images = iter(encoded)
    first = next(images)
    width, height = _Decoder(image_size).decode(first).size
    images_NHWC = np.empty((num_images, height, width, 3), np.uint8)
    num_threads = min(os.cpu_count() or 1, MAX_THREADS)
    blocks = _blocks(chain([first], images), max(PIXELS_PER_BLOCK // (width * height), 1))
    all_grey, start = True, 0
    with ThreadPoolExecutor(num_threads, thread_name_prefix="decode") as pool:
        under_way: deque[Future[bool]] = deque()
        for block in blocks:
            rows_NHWC = images_NHWC[start : start + len(block)]
            under_way.append(pool.submit(_decode_block, block, image_size, rows_NHWC))
            start += len(block)
            if len(under_way) > 2 * num_threads:
                all_grey &= under_way.popleft().result()
        while under_way:  # first in, first out: of several broken images the first is reported
            all_grey &= under_way.popleft().result()
    return np.ascontiguousarray(images_NHWC[..., :1]) if all_grey else images_NHWC


def is_coloured(encoded: EncodedImage) -> bool:
    """Whether an image has colours, by its header alone.

    Raises:
        DataError: it is no image.
    """
    try:
        with Image.open(io.BytesIO(encoded.read())) as stored:
            return stored.mode not in GREY_MODES
    except UnidentifiedImageError as error:
        raise _unreadable(encoded, "of no known format") from error
    except UNREADABLE as error:
        raise _unreadable(encoded, str(error)) from error


def resize_images(images_NHWC: NDArray[np.uint8], image_size: int | None) -> NDArray[np.uint8]:
    """Bring images that are decoded already to a size, in the way of `decode_images`."""
    if image_size is None or images_NHWC.shape[1:3] == (image_size, image_size):
        return np.ascontiguousarray(images_NHWC)
    channels = images_NHWC.shape[3]
    resized = np.empty((len(images_NHWC), image_size, image_size, channels), np.uint8)
    for target_HWC, image_HWC in zip(resized, images_NHWC, strict=True):
        image = Image.fromarray(image_HWC.squeeze(2) if channels == 1 else image_HWC)
        target_HWC[:] = np.asarray(_fit(image, image_size)).reshape(target_HWC.shape)
    return resized


def resized_samples(
    images_NHWC: NDArray[np.uint8], labels: NDArray[np.int64], image_size: int | None
) -> Samples:
    """Samples from images that are decoded already, each brought to a size when it is needed."""
    height, width, channels = images_NHWC.shape[1:]
    if image_size is None or (height, width) == (image_size, image_size):
        return LabelledImages(np.ascontiguousarray(images_NHWC), labels)
    shape_HWC = (image_size, image_size, channels)
    return StoredImages(
        labels, shape_HWC, lambda chosen: resize_images(images_NHWC[chosen], image_size)
    )


def _blocks(images: Iterator[EncodedImage], length: int) -> Iterator[list[EncodedImage]]:
    while block := list(islice(images, length)):
        yield block


def _decode_block(
    block: list[EncodedImage], image_size: int | None, images_NHWC: NDArray[np.uint8]
) -> bool:
    """Decode images into an array of their shape; says whether all of them were grey."""
    height, width = images_NHWC.shape[1:3]
    sheet = Image.new("RGB", (width, height * len(block)))  # one conversion to NumPy for all
    decoder = _Decoder(image_size)
    all_grey = True
    for position, encoded in enumerate(block):
        image = decoder.decode(encoded)
        if image.size != (width, height):
            raise DataError(
                f"{encoded.where} is {image.width}x{image.height} pixels, the first image "
                f"{width}x{height}; set data.image_size to bring all to one size"
            )
        all_grey &= image.mode == "L"
        sheet.paste(image, (0, height * position))
    images_NHWC[:] = np.asarray(sheet).reshape(images_NHWC.shape)
    return all_grey


class _Decoder:
    """Decodes images one after the other, remembering what JPEG headers said."""

    def __init__(self, image_size: int | None) -> None:
        self._image_size = image_size
        self._form_by_header: dict[bytes, tuple[str, tuple[int, int]]] = {}

    def decode(self, encoded: EncodedImage) -> Image.Image:
        """The image in mode L or RGB, at the wanted size."""
        try:
            data = encoded.read()
            header = _jpeg_header(data)
            if form := self._form_by_header.get(header):
                mode, size = form
                return Image.frombytes(mode, size, data, "jpeg", mode, "")
            with Image.open(io.BytesIO(data)) as stored:
                image = _fit(_plain(stored), self._image_size)
                if header and stored.format == "JPEG" and stored.mode in {"L", "RGB"}:
                    self._remember(header, stored, image)
                return image
        except UnidentifiedImageError as error:
            raise _unreadable(encoded, "of no known format") from error
        except UNREADABLE as error:
            raise _unreadable(encoded, str(error)) from error

    def _remember(self, header: bytes, stored: Image.Image, image: Image.Image) -> None:
        if image.size == stored.size:  # nothing to scale: the decoder's output is the image
            self._form_by_header[header] = (stored.mode, stored.size)


def _jpeg_header(data: bytes) -> bytes:
    """Bytes of a JPEG up to the end of its frame segment; empty if it is no plain JPEG."""
    position = 2 if data.startswith(b"\xff\xd8") else len(data)
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        position += 2 + int.from_bytes(data[position + 2 : position + 4])
        if FIRST_FRAME_MARKER <= marker <= LAST_FRAME_MARKER and marker not in NO_FRAME_MARKERS:
            return data[:position]
    return b""


def _plain(image: Image.Image) -> Image.Image:
    """The image in mode L or RGB."""
    if image.mode in GREY_MODES:
        return image.convert("L")
    if image.mode in COLOUR_MODES:
        # a palette may hold transparency, which Pillow drops cleanly only by way of RGBA
        return (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    raise ValueError(f"its pixels are of mode {image.mode}, not 8 bits a channel")


def _fit(image: Image.Image, image_size: int | None) -> Image.Image:
    if image_size is None or image.size == (image_size, image_size):
        return image
    return ImageOps.fit(image, (image_size, image_size), method=Image.Resampling.BILINEAR)


def _unreadable(encoded: EncodedImage, reason: str) -> DataError:
    return DataError(f"{encoded.where} can't be read as an image ({reason}); replace or remove it")
