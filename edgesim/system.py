"""What the operating system offers: processors that a process may use, and what fleets need."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from edgesim.errors import EdgesimError


class OtherSystemError(EdgesimError):
    """Fleets can't be trained on this operating system."""


def check_system() -> None:
    """Refuse a system that lacks what runs need, such as locks of files.

    Raises:
        OtherSystemError: it is Windows.
    """
    if sys.platform == "win32":
        raise OtherSystemError("edgesim trains on Linux and macOS; on Windows use WSL 2")


@cache
def processor() -> str:
    """The processor's name, by which its kind is known; empty if the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no Linux
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor()


def usable_cpus() -> list[int]:
    """Numbers of the processors that this process may use, increasing.

    macOS knows no such limit; there it is all processors.
    """
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def stay_on(cpus: Iterable[int]) -> None:
    """Let this process use some processors alone; does nothing where the system cannot do so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
