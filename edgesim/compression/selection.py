"""Which entries of each tensor a sparse message keeps."""

from __future__ import annotations

from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgesim.compression.compilation import is_compiled_code_due
from edgesim.compression.errors import CompressionError
from edgesim.compression.key_sample import SAMPLE, SPARSE, sampled_rank
from edgesim.compression.segments import Segments
from edgesim.learning.parameters import ParameterLayout

Keys: TypeAlias = NDArray[np.uint32 | np.uint64]


def kept_counts(keep: float, layout: ParameterLayout) -> NDArray[np.int64]:
    """Entries kept of each tensor: max(1, int(n (1 - r))) with r = 1 - keep, shape (T,).

    Source: reference.md, section 3.6.

    The formula has the rounding errors of the reference code, so that counts agree exactly: 10 % of
    640 are 63, because 1 - 0.9 is just below 0.1.
    """
    counts: NDArray[np.int64] = np.maximum(1, layout.size_array * (1 - (1 - keep))).astype(np.int64)
    return counts


def magnitude_keys(x: NDArray[np.float32 | np.float64]) -> Keys:
    """Keys in the order of |x|: bits of non-negative floats, read as integers, keep their order.

    Partitioning integers is twice as fast as partitioning floats, among which there may be NaN.
    """
    magnitudes = np.abs(x)
    return magnitudes.view(np.uint32) if x.dtype == np.float32 else magnitudes.view(np.uint64)


def random_keys(num_entries: int, rng: np.random.Generator) -> Keys:
    """Independent 32-bit keys; the largest k of them are a uniformly random set of size k.

    The smallest selected key equals the next smaller one in about one of 2**32 / n draws. Then the
    lower index is taken; this bias is negligible.
    """
    pairs = rng.integers(0, 2**64, size=(num_entries + 1) // 2, dtype=np.uint64)
    return pairs.astype("<u8", copy=False).view("<u4")[:num_entries]


def largest_per_tensor(
    keys: Keys, counts: NDArray[np.int64], layout: ParameterLayout
) -> NDArray[np.int64]:
    """Positions of the largest keys of each tensor, ascending; of equal keys the first ones.

    Args:
        keys: shape (D,).
        counts: shape (T,), how many to take of each tensor, at least one and at most all.
        layout: of the vector.

    Raises:
        CompressionError: keys or counts do not fit the layout.
    """
    if len(keys) != layout.numel or ((counts < 1) | (counts > layout.size_array)).any():
        raise CompressionError("keys or counts of kept entries do not fit the layout")
    if keys.dtype == np.uint32 and is_compiled_code_due():
        from edgesim.compression import compiled_selection  # loads numba

        keys32 = keys.view(np.uint32)  # the same, told to the type checker
        found = compiled_selection.largest_per_tensor(keys32, counts, layout.offsets)
        return found.copy()  # in numpy's memory, by which payloads are counted
    sizes = Segments(layout.size_array)
    thresholds = sizes.reduce(np.maximum, keys)  # the smallest key that is taken, if it is one
    for tensor in np.flatnonzero(counts > 1).tolist():
        start, end = layout.offsets[tensor : tensor + 2]
        thresholds[tensor] = _nth_largest(keys[start:end], counts[tensor])
    indices = np.flatnonzero(keys >= sizes.spread(thresholds))
    bounds = np.searchsorted(indices, layout.offsets)
    surplus = np.diff(bounds) - counts
    return _without_last_ties(keys, indices, thresholds, bounds, surplus)


def _nth_largest(keys: Keys, count: int) -> np.uint32 | np.uint64:
    """The key of rank `count` from above; time is mostly that of one comparison of each key.

    A sample of every so many keys gives a bound that a few more keys than `count` reach. Among
    those is the key. If fewer than `count` reach it, which the sample makes unlikely, or if the
    sample would leave too many, all keys are partitioned.
    """
    step = len(keys) // SAMPLE | 1  # odd: not a multiple of what models are made of
    if step > 1 and count <= len(keys) // SPARSE:
        sample, reaching = keys[::step], sampled_rank(count / step)
        bound = np.partition(sample, -reaching)[-reaching]
        candidates = keys.compress(keys >= bound)
        if len(candidates) >= count:
            keys = candidates
    rank = len(keys) - count
    nth: np.uint32 | np.uint64 = np.partition(keys, rank)[rank]
    return nth


def _without_last_ties(
    keys: Keys,
    indices: NDArray[np.int64],
    thresholds: Keys,
    bounds: NDArray[np.int64],
    surplus: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Drop the last entries of tensors in which too many keys equal the threshold."""
    tensors = np.flatnonzero(surplus)
    if not len(tensors):
        return indices
    is_kept = np.ones(len(indices), np.bool_)
    for tensor in tensors:
        start, end = bounds[tensor], bounds[tensor + 1]
        tied = np.flatnonzero(keys[indices[start:end]] == thresholds[tensor])
        is_kept[start + tied[-surplus[tensor] :]] = False
    return indices[is_kept]


def selection_ops(keep: float, numel: int, key_ops: int) -> int:
    """Operations to find the entries that are kept.

    Keys (|x|, or random numbers), the key of rank K, then a comparison of each key with it.
    Quickselect takes, in the mean over all orders of a long vector, 2 (1 + H) comparisons per
    entry, where H is the entropy of keep in nats: D. E. Knuth, "Mathematical analysis of
    algorithms", IFIP Congress 1971.

    Args:
        keep: share of the entries that is kept.
        numel: D.
        key_ops: operations to make the key of an entry.
    """
    entropy = -sum(p * log(p) for p in (keep, 1 - keep) if p > 0)
    return round((key_ops + 1 + 2 * (1 + entropy)) * numel)
