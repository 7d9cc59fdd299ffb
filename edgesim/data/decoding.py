"""Encoded images (JPEG, PNG and whatever Pillow reads) to one uint8 array, on a thread pool.

Pixels are those that a viewer shows: turned as the camera says (EXIF), transparent ones on white.

Headers of small JPEGs are read once. Pillow parses a header in Python, which for a 32x32 image
takes three times as long as decoding its pixels and lets only one thread run. The images of a
dataset were mostly written by one encoder, so their headers are equal bytes. If a header equals one
that Pillow has parsed, the pixels go directly to Pillow's decoder; headers of turned images are
never among these.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from edgesim.data.errors import DataError
from edgesim.data.images import LabelledImages, Samples, StoredImages
from edgesim.data.limits import MOST_FILE_BYTES, check_pixels, check_split

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP")  # others may run other programs
PIXELS_PER_BLOCK = 1 << 20  # decoded by one task; bounds what a thread holds to some MB
BYTES_PER_BLOCK = 1 << 24  # of encoded images in one task
LARGE_PIXELS = 1 << 22  # images with more are decoded one at a time
MAX_THREADS = 8
GREY_MODES = frozenset({"1", "L", "LA"})
COLOUR_MODES = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr"})
FIRST_FRAME_MARKER, LAST_FRAME_MARKER = 0xC0, 0xCF  # JPEG: SOF0 to SOF15 hold size and channels
NO_FRAME_MARKERS = frozenset({0xC4, 0xC8, 0xCC})  # in that range, but tables
ORIENTATION_TAG, UPRIGHT, ON_ITS_SIDE = 0x0112, 1, range(5, 9)  # EXIF 2.32, 4.6.4, tag A
EXIF_KEYS = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")  # of Pillow's `info`
MOST_NAMED = 5  # broken images in a message
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)

_one_large_image = threading.Lock()


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
        """Bytes of the file.

        Raises:
            DataError: there are more than any image has.
            OSError: the file can't be read.
        """
        content = self.content
        num_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size
        if num_bytes > MOST_FILE_BYTES:
            raise DataError(
                f"{self.where} is {num_bytes:,} bytes long; at most {MOST_FILE_BYTES:,} are read; "
                "make it smaller or remove it"
            )
        return content if isinstance(content, bytes) else content.read_bytes()

    @property
    def bytes_held(self) -> int:
        """Bytes in memory before decoding."""
        return len(self.content) if isinstance(self.content, bytes) else 0


def decode_images(
    encoded: Iterable[EncodedImage],
    num_images: int,
    image_size: int | None,
    size: tuple[int, int] | None = None,
) -> NDArray[np.uint8]:
    """Decode images of one size, or resize them to one size.

    With `image_size`, an image is scaled (bilinear, antialiased) so that its shorter side has this
    length, and its middle square is kept. Sizes are checked before pixels are decoded.

    Args:
        encoded: the images; consumed as decoding goes on, so never all in memory.
        num_images: how many there are, at least 1.
        image_size: side in pixels of the resulting squares; None to keep the size.
        size: width and height that they must then have; None: those of the first.

    Returns:
        shape (num_images, height, width, channels); one channel if all are grey, else three.

    Raises:
        DataError: files are no images, have an unknown format or are too large, the first of which
            are named; an image differs in size from the first; or all images together take too much
            memory.
    """
    images = iter(encoded)
    first = next(images)
    width, height = size or size_of(first, image_size)
    check_split(first.where, num_images, height, width, 3)
    images_NHWC = np.empty((num_images, height, width, 3), np.uint8)
    is_large = width * height > LARGE_PIXELS
    num_threads = 1 if is_large else min(os.cpu_count() or 1, MAX_THREADS)
    blocks = _blocks(chain([first], images), max(PIXELS_PER_BLOCK // (width * height), 1))
    all_grey, start, broken = True, 0, list[_Broken]()
    with ThreadPoolExecutor(num_threads, thread_name_prefix="decode") as pool:
        under_way: deque[Future[tuple[bool, list[_Broken]]]] = deque()

        def take_next() -> None:
            nonlocal all_grey
            is_grey, failed = under_way.popleft().result()
            all_grey &= is_grey
            broken.extend(failed)

        for block in blocks:
            rows_NHWC = images_NHWC[start : start + len(block)]
            under_way.append(pool.submit(_decode_block, block, image_size, rows_NHWC))
            start += len(block)
            if len(under_way) > 2 * num_threads:
                take_next()
        while under_way:  # first in, first out: broken images are in order
            take_next()
    _refuse(broken)
    return np.ascontiguousarray(images_NHWC[..., :1]) if all_grey else images_NHWC


def decode_whole(
    encoded: Iterable[EncodedImage], num_images: int, side: int, channels: int
) -> list[NDArray[np.uint8]]:
    """Decode images that keep their aspect ratio; they are scaled bilinearly and antialiased.

    Args:
        encoded: the images.
        num_images: how many there are, at least 1.
        side: of the shorter side, pixels; the longer one is rounded down.
        channels: 1 for grey, 3 for colours.

    Returns:
        arrays of shape (height, width, channels).

    Raises:
        DataError: files are no images, have an unknown format or are too large, the first of which
            are named; or all images together take too much memory.
    """
    images = iter(encoded)
    first = next(images)
    check_split(first.where, num_images, side, side, channels)
    num_threads = min(os.cpu_count() or 1, MAX_THREADS)
    with ThreadPoolExecutor(num_threads, thread_name_prefix="decode") as pool:
        tried = list(pool.map(lambda one: _tried(one, side, channels), chain([first], images)))
    _refuse([one for one in tried if isinstance(one, _Broken)])
    return [one for one in tried if not isinstance(one, _Broken)]


class _Broken(NamedTuple):
    """An image that can't be used."""

    where: str
    reason: str


def _refuse(broken: Sequence[_Broken]) -> None:
    """Refuse images that can't be used: the first with its reason, some by name, and their number.

    Raises:
        DataError: there are some.
    """
    if not broken:
        return
    first, *others = broken
    named = ", ".join(each.where for each in others[: MOST_NAMED - 1])
    dots = ", ..." if len(broken) > MOST_NAMED else ""
    more = f"\n{len(others):,} more can't be used: {named}{dots}" if others else ""
    raise DataError(f"{first.reason}{more}")


def _tried(encoded: EncodedImage, side: int, channels: int) -> NDArray[np.uint8] | _Broken:
    try:
        return _whole(encoded, side, channels)
    except DataError as error:
        return _Broken(encoded.where, str(error))


def _whole(encoded: EncodedImage, side: int, channels: int) -> NDArray[np.uint8]:
    with _naming(encoded):
        data = encoded.read()
        with _opened(data, encoded.where) as stored, _turn(stored.size):
            image = _plain(_upright(stored)).convert("L" if channels == 1 else "RGB")
            shorter = min(image.size)
            size = (image.width * side // shorter, image.height * side // shorter)
            image = image.resize(size, Image.Resampling.BILINEAR)
            return np.asarray(image).reshape(size[1], size[0], channels)


def size_of(encoded: EncodedImage, image_size: int | None) -> tuple[int, int]:
    """Width and height that an image will have, from its header.

    Raises:
        DataError: it is no image, or too large.
    """
    with _naming(encoded), _opened(encoded.read(), encoded.where) as stored:
        if image_size is not None:
            return image_size, image_size
        return stored.size[::-1] if _orientation(stored) in ON_ITS_SIDE else stored.size


def is_coloured(encoded: EncodedImage) -> bool:
    """Whether an image has colours, by its header alone.

    Raises:
        DataError: it is no image.
    """
    with _naming(encoded), _opened(encoded.read(), encoded.where) as stored:
        return stored.mode not in GREY_MODES


def resize_images(images_NHWC: NDArray[np.uint8], image_size: int | None) -> NDArray[np.uint8]:
    """Resize decoded images like `decode_images`.

    Raises:
        DataError: all of them together would take too much memory.
    """
    if image_size is None or images_NHWC.shape[1:3] == (image_size, image_size):
        return np.ascontiguousarray(images_NHWC)
    channels = images_NHWC.shape[3]
    check_split("data.image_size", len(images_NHWC), image_size, image_size, channels)
    resized = np.empty((len(images_NHWC), image_size, image_size, channels), np.uint8)
    for target_HWC, image_HWC in zip(resized, images_NHWC, strict=True):
        image = Image.fromarray(image_HWC.squeeze(2) if channels == 1 else image_HWC)
        target_HWC[:] = np.asarray(_fit(image, image_size)).reshape(target_HWC.shape)
    return resized


def resized_samples(
    images_NHWC: NDArray[np.uint8], labels: NDArray[np.int64], image_size: int | None
) -> Samples:
    """Samples of decoded images, which are resized when they are needed."""
    height, width, channels = images_NHWC.shape[1:]
    if image_size is None or (height, width) == (image_size, image_size):
        return LabelledImages(np.ascontiguousarray(images_NHWC), labels)
    shape_HWC = (image_size, image_size, channels)
    return StoredImages(
        labels, shape_HWC, lambda chosen: resize_images(images_NHWC[chosen], image_size)
    )


def _blocks(images: Iterator[EncodedImage], length: int) -> Iterator[list[EncodedImage]]:
    """Blocks of at most `length` images and `BYTES_PER_BLOCK` bytes.

    A larger image is a block by itself.
    """
    block: list[EncodedImage] = []
    num_bytes = 0
    for image in images:
        block.append(image)
        num_bytes += image.bytes_held
        if len(block) == length or num_bytes >= BYTES_PER_BLOCK:
            yield block
            block, num_bytes = [], 0
    if block:
        yield block


def _decode_block(
    block: list[EncodedImage], image_size: int | None, images_NHWC: NDArray[np.uint8]
) -> tuple[bool, list[_Broken]]:
    """Decode images into an array of their shape; return whether all are grey, and broken ones.

    Raises:
        DataError: an image has another size.
    """
    height, width = images_NHWC.shape[1:3]
    sheet = Image.new("RGB", (width, height * len(block)))  # one conversion to NumPy for all
    decoder = _Decoder(image_size)
    all_grey, broken = True, []
    for position, encoded in enumerate(block):
        try:
            image = decoder.decode(encoded)
        except DataError as error:
            broken.append(_Broken(encoded.where, str(error)))
            continue
        if image.size != (width, height):
            raise DataError(
                f"{encoded.where} is {image.width}x{image.height} pixels, the first image "
                f"{width}x{height}; set data.image_size to bring all to one size"
            )
        all_grey &= image.mode == "L"
        sheet.paste(image, (0, height * position))
    images_NHWC[:] = np.asarray(sheet).reshape(images_NHWC.shape)
    return all_grey, broken


class _Decoder:
    """Decodes images one after the other, and caches parsed JPEG headers."""

    def __init__(self, image_size: int | None) -> None:
        self._image_size = image_size
        self._form_by_header: dict[bytes, tuple[str, tuple[int, int]]] = {}

    def decode(self, encoded: EncodedImage) -> Image.Image:
        """The image in mode L or RGB, at the wanted size."""
        with _naming(encoded):
            data = encoded.read()
            header = _jpeg_header(data)
            if form := self._form_by_header.get(header):
                mode, size = form
                return Image.frombytes(mode, size, data, "jpeg", mode, "")
            with _opened(data, encoded.where) as stored, _turn(stored.size):
                upright = _upright(stored)
                image = _fit(_plain(upright), self._image_size)
                is_plain = upright is stored and stored.mode in {"L", "RGB"}
                if header and stored.format == "JPEG" and is_plain:
                    self._remember(header, stored, image)
                return image

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


@contextmanager
def _naming(encoded: EncodedImage) -> Iterator[None]:
    """Turn errors of a block into a `DataError` that names the image."""
    try:
        yield
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise _unreadable(encoded, "of no known format") from error
    except UNREADABLE as error:
        raise _unreadable(encoded, str(error)) from error


def _opened(data: bytes, where: str) -> Image.Image:
    """Open an image: read its header and check its size.

    Raises:
        DataError: it has too many pixels.
        OSError: it is no image; or another of `UNREADABLE`.
    """
    # Pillow would warn of what is refused here.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    image = Image.open(io.BytesIO(data), formats=FORMATS)
    check_pixels(where, *image.size)
    return image


def _turn(size: tuple[int, int]) -> AbstractContextManager[object]:
    """Context for decoding an image; large images are decoded one at a time."""
    return _one_large_image if size[0] * size[1] > LARGE_PIXELS else nullcontext()


def _orientation(image: Image.Image) -> int:
    """How a viewer turns an image, as EXIF numbers it: 1 is not at all.

    Pillow turns TIFF images itself, and says nothing of it in `info`.
    """
    if not any(key in image.info for key in EXIF_KEYS):  # spares others the search
        return UPRIGHT
    return int(image.getexif().get(ORIENTATION_TAG, UPRIGHT))


def _upright(image: Image.Image) -> Image.Image:
    """The image as a viewer turns it; the same object if that is as it is stored."""
    if _orientation(image) not in range(UPRIGHT + 1, ON_ITS_SIDE.stop):
        return image
    return ImageOps.exif_transpose(image)


def _plain(image: Image.Image) -> Image.Image:
    """The image in mode L or RGB, what is transparent on white."""
    is_grey = image.mode in GREY_MODES
    if not is_grey and image.mode not in COLOUR_MODES:
        raise ValueError(f"its pixels are of mode {image.mode}, not 8 bits a channel")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("L" if is_grey else "RGB")


def _fit(image: Image.Image, image_size: int | None) -> Image.Image:
    if image_size is None or image.size == (image_size, image_size):
        return image
    return ImageOps.fit(image, (image_size, image_size), method=Image.Resampling.BILINEAR)


def _unreadable(encoded: EncodedImage, reason: str) -> DataError:
    return DataError(f"{encoded.where} can't be read as an image ({reason}); replace or remove it")
