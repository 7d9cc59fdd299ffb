"""What several processes of the tests need is made by the first of them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder of all processes, which `make` has filled; where it failed, the next one tries."""
    own = factory.getbasetemp()
    common = own.parent if own.name.startswith("popen-") else own  # of all workers of pytest-xdist
    place, made = common / f"{name}-in-all", common / f"{name}-is-made"
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            place.mkdir(exist_ok=True)
            make(place)
            made.touch()
    return place
