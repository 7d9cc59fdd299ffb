"""What `make test` leaves to `make thorough`, which is what CI runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

THOROUGH = os.environ.get("EDGESIM_TESTS") == "thorough"

# Of tests that take ten seconds or more to see once more, from further away, what others hold.
thorough_only = pytest.mark.skipif(not THOROUGH, reason="of `make thorough`")


def examples(many: int, few: int) -> int:
    """Number of hypothesis's examples: so few; as many in a thorough run."""
    return many if THOROUGH else few


def some(cases: Iterable[Case], few: int) -> list[Case]:
    """So many of the cases, evenly spread and with the first; all in a thorough run."""
    every = list(cases)
    if THOROUGH or few >= len(every):
        return every
    return [every[place * len(every) // few] for place in range(few)]


def each_once(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which each value of each axis is there; all of them in a thorough run."""
    every = [list(axis) for axis in axes]
    if THOROUGH:
        return list(product(*every))
    longest = max(map(len, every))
    return [tuple(axis[place % len(axis)] for axis in every) for place in range(longest)]
