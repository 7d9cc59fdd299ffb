"""Lets the process keep the memory that a step frees, for the next step to take again."""

from __future__ import annotations

import ctypes
import logging

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h of glibc
_LARGEST_HEAP_BLOCK = 32 << 20  # glibc maps larger blocks on their own whatever one asks for
_KEPT = 1 << 30  # bytes at the end of a heap that are not given back

_log = logging.getLogger(__name__)


def keep_freed_memory() -> None:
    """Ask glibc to reuse freed memory instead of returning it to the system after each layer.

    A step takes and frees tensors of megabytes; each that is mapped anew costs a page fault for
    every 4 kB. Results don't depend on it. Does nothing where the C library has no such switch.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        _log.info("this C library has no mallopt; freed memory goes back to the system")
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK)
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_TOP_PAD, _LARGEST_HEAP_BLOCK)
