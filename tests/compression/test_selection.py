"""The key of a rank in long tensors, found by way of a sample, is that of a full sort."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from edgesim.compression import compilation
from edgesim.compression.errors import CompressionError
from edgesim.compression.selection import largest_per_tensor, magnitude_keys
from edgesim.learning.parameters import ParameterLayout
from edgesim.streams import StreamPurpose, stream

Keys: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint32 | np.uint64]]"

SIZES = (1, 40, 4095, 4096, 20_000, 300_000)  # the sample begins at 4,096 entries
SHARES = (0.0, 0.01, 0.1, 0.249, 0.251, 1.0)


def random(size: int, kind: type[np.floating]) -> Keys:
    """Keys of normal numbers."""
    numbers = stream(size, StreamPurpose.COMPRESS).standard_normal(size)
    return magnitude_keys(numbers.astype(kind))  # type: ignore[arg-type,return-value]


def unseen(size: int, _: type[np.floating]) -> Keys:
    """The sample sees the smallest keys alone, so its bound leaves many more keys than needed."""
    keys = np.arange(size, dtype=np.uint32) + np.uint32(size)
    keys[:: size // 2048 | 1] -= np.uint32(size)
    return keys


def all_seen(size: int, _: type[np.floating]) -> Keys:
    """The sample sees the largest keys alone, so fewer keys than needed may reach its bound."""
    keys = np.arange(size, dtype=np.uint32)
    keys[:: size // 2048 | 1] += np.uint32(size)
    return keys


def tied(size: int, _: type[np.floating]) -> Keys:
    """Three keys in all."""
    return np.arange(size, dtype=np.uint64) // np.uint64(7) % np.uint64(3)


def tied_in_32_bits(size: int, kind: type[np.floating]) -> Keys:
    """The same, as compiled code takes them."""
    return tied(size, kind).astype(np.uint32)


@pytest.mark.parametrize("calls_in_numpy", [0, math.inf], ids=["compiled", "in numpy"])
@pytest.mark.parametrize("make", [random, unseen, all_seen, tied, tied_in_32_bits])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_largest_keys_are_those_of_a_sort(
    make: Callable[[int, type[np.floating]], Keys],
    kind: type[np.floating],
    calls_in_numpy: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compilation, "CALLS_IN_NUMPY", calls_in_numpy)
    layout = ParameterLayout.from_shapes([(size,) for size in SIZES])
    keys = np.concatenate([make(size, kind) for size in SIZES])
    for share in SHARES:
        counts = np.array([max(1, int(size * share)) for size in SIZES])
        expected = []
        for start, size, count in zip(layout.offsets, SIZES, counts, strict=False):
            descending = np.argsort(~keys[start : start + size], kind="stable")  # first ones first
            expected.append(start + np.sort(descending[:count]))
        found = largest_per_tensor(keys, counts, layout)
        assert np.array_equal(found, np.concatenate(expected)), share


@pytest.mark.parametrize("calls_in_numpy", [0, math.inf], ids=["compiled", "in numpy"])
@pytest.mark.parametrize(
    ("num_keys", "counts"), [(13, [9, 1]), (13, [0, 3]), (13, [-1, 3]), (9, [2, 3])]
)
def test_keys_and_counts_that_do_not_fit_are_refused(
    num_keys: int, counts: list[int], calls_in_numpy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "CALLS_IN_NUMPY", calls_in_numpy)
    layout = ParameterLayout.from_shapes([(8,), (5,)])
    with pytest.raises(CompressionError, match="do not fit"):
        largest_per_tensor(np.arange(num_keys, dtype=np.uint32), np.array(counts), layout)
