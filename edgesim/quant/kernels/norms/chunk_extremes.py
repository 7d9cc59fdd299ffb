"""First minimum and maximum of the chunks of range norms, on codes.

Source: docs/reference.md, section 2.

Symbols:
    q: code   k: channel within its group   p: pixel   row: some pixels with all of their channels
Shapes:
    N: samples   G: groups   K: channels in a group   C = G K   P: pixels of a sample
    J: chunks of a group   M = K P / J: entries in a chunk, which are contiguous in (k, p) order
    B: pixels in a block, the most that divide both P and M: no chunk ends within a block
    T: pixels in a row   R = T C: entries in a row, or lanes, which are worked on side by side

An extreme and its place are packed into one integer, code before place, so that one maximum or
minimum finds both. Within a block the integer has 16 bits, code and pixel; for a chunk see
`Extremes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Int64, UInt8
from edgesim.quant.kernels.intrinsics import code_and_place

UInt16 = NDArray[np.uint16]

CODE_SHIFT = 54
CHANNEL_SHIFT = 32
PLACE_MASK = (1 << CODE_SHIFT) - 1
PIXEL_MASK = (1 << CHANNEL_SHIFT) - 1

_MOST_LANES = 128  # of a row: its state stays in the first-level cache
_MOST_PIXELS = 256  # that 8 bits can tell apart
_LOW_BYTE = np.uint16(255)
_NO_LOW, _NO_HIGH = np.uint16(0xFFFF), np.uint16(0)
_LEAST_SHARE = 16  # R is no less than a 16th of the range of a group
_NO_LOWEST = (256 << CODE_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class Extremes:
    """Extreme codes of each chunk, shape (N, G, J).

    Attributes:
        lowest: code << 54 | k << 32 | p of the first minimum in (k, p) order.
        highest: of the first maximum, with all bits of k and p inverted: the first is the largest.
    """

    lowest: Int64
    highest: Int64


def chunk_extremes(codes_NPC: UInt8, groups: int, chunks: int) -> Extremes:
    """First minimum and maximum of each chunk.

    Args:
        codes_NPC: contiguous; 2^22 channels and 2^32 pixels at most.
        groups: G, a divisor of C.
        chunks: J, a divisor of K P.
    """
    N, P, C = codes_NPC.shape
    K = C // groups
    assert K * groups == C
    assert K * P % chunks == 0
    lowest = np.empty((N, groups, chunks), np.int64)
    highest = np.empty((N, groups, chunks), np.int64)
    write_chunk_extremes(codes_NPC, lowest, highest)
    return Extremes(lowest, highest)


@compiled
def mean_range(lowest_J: Int64, highest_J: Int64) -> tuple[np.float32, bool]:
    """R of a group in codes, and whether it is the mean of the chunks' ranges.

    If not, it is the least that counts (docs/decisions/62-least-range.md).
    """
    J, total = len(lowest_J), 0
    lowest, highest = lowest_J[0] >> CODE_SHIFT, highest_J[0] >> CODE_SHIFT
    for j in range(J):
        low, high = lowest_J[j] >> CODE_SHIFT, highest_J[j] >> CODE_SHIFT
        total += high - low
        lowest, highest = min(lowest, low), max(highest, high)
    of_all = highest - lowest
    least = max(np.float32(of_all) / np.float32(_LEAST_SHARE), np.float32(1))
    R = max(np.float32(total) * np.float32(1 / J), least)
    return R, total >= J and total * _LEAST_SHARE >= of_all * J


@compiled
def write_chunk_extremes(codes_NPC: UInt8, lowest_NGJ: Int64, highest_NGJ: Int64) -> None:
    """As `chunk_extremes`, for compiled functions; `Extremes` are written."""
    N, P, C = codes_NPC.shape
    K = C // lowest_NGJ.shape[1]
    B = gcd(P, K * P // lowest_NGJ.shape[2])
    T = pixels_of_a_row(B, C, _MOST_LANES)
    _chunk_extremes(codes_NPC.reshape(N, P // T, T * C), K, P // B, lowest_NGJ, highest_NGJ)


@compiled
def pixels_of_a_row(pixels: int, channels: int, most_lanes: int) -> int:
    """The most pixels that divide `pixels` and have at most so many entries; at least one."""
    count = min(pixels, max(1, most_lanes // channels))
    while pixels % count:
        count -= 1
    return count


@compiled
def _chunk_extremes(
    codes_NrR: UInt8, K: int, blocks: int, lowest_NGJ: Int64, highest_NGJ: Int64
) -> None:
    N, num_rows, R = codes_NrR.shape
    chunk_of_block_KB = _chunks_of_blocks(K, blocks, lowest_NGJ.shape[2])
    C = lowest_NGJ.shape[1] * K
    T = R // C
    rows = num_rows // blocks
    most_rows = _MOST_PIXELS // T
    pixel_of_lane_R = np.empty(R, np.uint16)
    for i in range(R):
        pixel_of_lane_R[i] = i // C
    low_R, high_R = np.empty(R, np.uint16), np.empty(R, np.uint16)
    for n in range(N):
        _clear(lowest_NGJ[n], highest_NGJ[n])
        for block in range(blocks):
            for start in range(block * rows, (block + 1) * rows, most_rows):
                stop = min(start + most_rows, (block + 1) * rows)
                _extremes_of_lanes(codes_NrR[n], start, stop, T, pixel_of_lane_R, low_R, high_R)
                _fold_lanes(low_R, high_R, C)
                _merge(
                    low_R, high_R, start * T, chunk_of_block_KB, block, lowest_NGJ, highest_NGJ, n
                )


@compiled
def _chunks_of_blocks(K: int, blocks: int, J: int) -> Int64:
    """To which chunk a channel's block belongs, shape (K, blocks)."""
    chunk_of_block_KB = np.empty((K, blocks), np.int64)
    for k in range(K):
        for block in range(blocks):
            chunk_of_block_KB[k, block] = (k * blocks + block) * J // (K * blocks)
    return chunk_of_block_KB


@compiled
def _clear(lowest_GJ: Int64, highest_GJ: Int64) -> None:
    for g in range(lowest_GJ.shape[0]):
        for j in range(lowest_GJ.shape[1]):
            lowest_GJ[g, j] = _NO_LOWEST
            highest_GJ[g, j] = 0


@compiled
def _extremes_of_lanes(
    codes_rR: UInt8,
    start: int,
    stop: int,
    T: int,
    pixel_of_lane_R: UInt16,
    low_R: UInt16,
    high_R: UInt16,
) -> None:
    """Per lane: code << 8 | pixel of its first minimum, code << 8 | 255 - pixel of its maximum."""
    for i in range(codes_rR.shape[1]):
        low_R[i] = _NO_LOW
        high_R[i] = _NO_HIGH
    for r in range(start, stop):
        pixel = np.uint16((r - start) * T)
        for i in range(codes_rR.shape[1]):
            low = code_and_place(codes_rR[r, i], pixel, pixel_of_lane_R[i])
            high = np.uint16(low ^ _LOW_BYTE)
            low_R[i] = min(low_R[i], low)
            high_R[i] = max(high_R[i], high)


@compiled
def _fold_lanes(low_R: UInt16, high_R: UInt16, C: int) -> None:
    """Leave the extremes of each channel in its first lane."""
    for first in range(C, len(low_R), C):
        other_low_C, other_high_C = low_R[first : first + C], high_R[first : first + C]
        for c in range(C):
            low_R[c] = min(low_R[c], other_low_C[c])
            high_R[c] = max(high_R[c], other_high_C[c])


@compiled
def _merge(
    low_R: UInt16,
    high_R: UInt16,
    first_pixel: int,
    chunk_of_block_KB: Int64,
    block: int,
    lowest_NGJ: Int64,
    highest_NGJ: Int64,
    n: int,
) -> None:
    """Merge each channel's extremes of a block into the extremes of its chunk."""
    K = chunk_of_block_KB.shape[0]
    for g in range(lowest_NGJ.shape[1]):
        for k in range(K):
            j = chunk_of_block_KB[k, block]
            low, high = np.int64(low_R[g * K + k]), np.int64(high_R[g * K + k])
            place = k << CHANNEL_SHIFT | (first_pixel + (low & 255))
            key = (low >> 8) << CODE_SHIFT | place
            lowest_NGJ[n, g, j] = min(lowest_NGJ[n, g, j], key)
            place = k << CHANNEL_SHIFT | (first_pixel + 255 - (high & 255))
            key = (high >> 8) << CODE_SHIFT | (place ^ PLACE_MASK)
            highest_NGJ[n, g, j] = max(highest_NGJ[n, g, j], key)
