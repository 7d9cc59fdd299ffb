"""Per-tensor arithmetic on a run of entries grouped by tensor, without a loop over tensors.

Symbols:
    T: number of tensors   K: number of entries, the sum of the counts
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Segments:
    """How many consecutive entries belong to each tensor: counts, shape (T,), int64, >= 0."""

    counts: NDArray[np.int64]

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Start of each tensor's entries, then the end of the last: shape (T + 1,)."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    @property
    def num_entries(self) -> int:
        """K."""
        return int(self.bounds[-1])

    def blocks(self, size: int) -> Iterator[tuple[int, Segments]]:
        """Runs of at most `size` entries: start of each, and its share of each tensor."""
        if 0 < self.num_entries <= size:
            yield 0, self
            return
        for start in range(0, self.num_entries, size):
            clipped = np.clip(self.bounds, start, start + size)
            yield start, Segments(np.diff(clipped))

    def spread(self, per_tensor: NDArray[Scalar]) -> NDArray[Scalar]:
        """One number per tensor, (T,), repeated for each of its entries, (K,)."""
        return np.repeat(per_tensor, self.counts)

    def reduce(self, ufunc: np.ufunc, entries: NDArray[Scalar]) -> NDArray[Scalar]:
        """Reduce each tensor's entries, (K,) to (T,); zero where a tensor has none."""
        has_entries = np.flatnonzero(self.counts)
        reduced = np.zeros(len(self.counts), entries.dtype)
        if len(has_entries):
            reduced[has_entries] = ufunc.reduceat(entries, self.bounds[has_entries])
        return reduced
