"""Limits on the memory of data, checked before the memory is allocated.

A file of a few kB can announce gigabytes of pixels. The memory of an image follows from its header,
that of a split from the size of one image and the number of images.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edgesim.data.errors import DataError

MOST_PIXELS = 1 << 26  # of a stored image, such as 8192 x 8192: 256 MiB while it is decoded
MOST_FILE_BYTES = 1 << 29  # of an image file: more than any format takes for so many pixels
MOST_MEMORY = 0.25  # of the machine's, for the images of a split, and for the labels
CGROUP_LIMITS = (  # of the memory of a container, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
GIB = 1 << 30


def check_pixels(where: str, width: int, height: int) -> None:
    """Refuse a stored image with too many pixels.

    Raises:
        DataError: it has more than `MOST_PIXELS`.
    """
    if width * height > MOST_PIXELS:
        raise DataError(
            f"{where} is {width}x{height} pixels; at most {MOST_PIXELS:,} are decoded, such as "
            "8192x8192; make it smaller or remove it"
        )


def check_split(where: str, num_images: int, height: int, width: int, channels: int) -> None:
    """Refuse images that would not fit into memory together.

    Args:
        where: names the first of them.
        num_images: of a split.
        height: of each, pixels.
        width: of each, pixels.
        channels: of each, a byte a pixel.

    Raises:
        DataError: they take more than a share of this machine's memory: both splits must fit, and
            the devices' shards, which are copies.
    """
    num_bytes, memory = num_images * height * width * channels, memory_bytes()
    if num_bytes > MOST_MEMORY * memory:
        raise DataError(
            f"{where}: {num_images:,} images of {width}x{height} pixels take "
            f"{num_bytes / GIB:,.1f} GiB, more than a quarter of this machine's "
            f"{memory / GIB:,.1f} GiB of memory; set data.image_size to a smaller side, or give "
            "fewer images"
        )


def memory_bytes() -> int:
    """Memory of this machine, or of the container that the program runs in.

    Without bounds on Windows, which tells it in another way; fleets do not train there.
    """
    limits = [sys.maxsize]
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(path.read_text()))
        except (OSError, ValueError):  # no such file, or its content is "max"
            continue
    return min(limits)
