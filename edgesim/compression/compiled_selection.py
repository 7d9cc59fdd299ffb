"""The largest keys of each tensor, compiled: the same positions as of `selection.py`, its caller.

The caller has checked that keys and counts fit the layout.

A sample gives a bound that most keys do not reach. Those that reach it are candidates; their
largest ones are found byte by byte, the highest byte first.

Symbols:
    D: keys of all tensors   n: keys of a tensor   k: of these, taken   T: tensors
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.compression.key_sample import SAMPLE, SPARSE, sampled_rank

Keys32 = NDArray[np.uint32]
Ints = NDArray[np.int64]

_BYTES = (24, 16, 8, 0)  # shifts of the bytes of a key
_HIGH_BYTES = (24, 16)

_sampled_rank = compiled(sampled_rank)


@compiled
def largest_per_tensor(keys: Keys32, counts: Ints, offsets: Ints) -> Ints:
    """Positions of the largest keys of each tensor, ascending; of equal keys the first ones.

    Args:
        keys: shape (D,).
        counts: shape (T,), how many to take of each tensor, at least one and at most all.
        offsets: shape (T + 1,), start of each tensor in the vector, then its end.
    """
    indices = np.empty(counts.sum(), np.int64)
    longest = np.max(offsets[1:] - offsets[:-1])
    candidates, scratch = np.empty(longest, np.int64), np.empty(longest, np.uint32)
    taken = 0
    for t in range(len(counts)):
        tensor = keys[offsets[t] : offsets[t + 1]]
        found = _find_reaching(tensor, _bound(tensor, counts[t], scratch), candidates)
        if found < counts[t]:  # the sample was misleading
            found = _find_reaching(tensor, np.uint32(0), candidates)
        for j in range(found):
            scratch[j] = tensor[candidates[j]]
        threshold, ties = _nth_largest(scratch, found, counts[t], _BYTES)
        for j in range(found):
            key = tensor[candidates[j]]
            is_tie = key == threshold and ties > 0
            if key > threshold or is_tie:
                indices[taken] = offsets[t] + candidates[j]
                taken += 1
                ties -= is_tie
    return indices


@compiled
def _find_reaching(tensor: Keys32, bound: np.uint32, places: Ints) -> int:
    """Write the places of keys that reach a bound; returns how many there are."""
    found = 0
    for i in range(len(tensor)):
        places[found] = i  # written in any case: faster than a branch
        found += tensor[i] >= bound
    return found


@compiled
def _bound(tensor: Keys32, k: int, scratch: Keys32) -> np.uint32:
    """A bound that the k largest keys reach, or nearly always; 0 where a sample is of no use."""
    step = len(tensor) // SAMPLE | 1  # odd: not a multiple of what models are made of
    if step == 1 or k > len(tensor) // SPARSE:
        return np.uint32(0)
    size = 0
    for i in range(0, len(tensor), step):
        scratch[size] = tensor[i]
        size += 1
    return _nth_largest(scratch, size, _sampled_rank(k / step), _HIGH_BYTES)[0]


@compiled
def _nth_largest(
    keys: Keys32, size: int, rank: int, shifts: tuple[int, ...]
) -> tuple[np.uint32, int]:
    """The bytes at `shifts` of the key of a rank from above, lower ones zero.

    Returns:
        those bytes; how many of the `rank` largest keys have them.
    """
    counts = np.zeros(256, np.int64)
    prefix = np.uint32(0)
    for shift in shifts:
        counts[:] = 0
        for i in range(size):
            counts[(keys[i] >> np.uint32(shift)) & np.uint32(255)] += 1
        byte = 255
        while counts[byte] < rank:
            rank -= counts[byte]
            byte -= 1
        prefix |= np.uint32(byte) << np.uint32(shift)
        kept = 0
        for i in range(size):
            key = keys[i]
            keys[kept] = key
            kept += (key >> np.uint32(shift)) & np.uint32(255) == byte
        size = kept
    return prefix, rank
