"""Lets the process keep the memory that a step frees, for the next step to take again."""

from __future__ import annotations

import ctypes
import logging

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h of glibc
_LARGEST_HEAP_BLOCK = 32 << 20  # larger blocks are always mapped on their own by glibc
_KEPT = 1 << 30  # bytes at the end of a heap that are not given back

_log = logging.getLogger(__name__)


def keep_freed_memory() -> None:
    """Ask glibc to reuse freed memory instead of returning it to the system after each layer.

    A step allocates and frees tensors of megabytes. If their memory is mapped again each time, each
    4 kB costs a page fault. Results do not depend on this setting. Without glibc the function does
    nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        _log.info("this C library has no mallopt; freed memory goes back to the system")
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK)
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_TOP_PAD, _LARGEST_HEAP_BLOCK)
