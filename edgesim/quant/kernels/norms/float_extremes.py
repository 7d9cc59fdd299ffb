"""First minimum and maximum of the chunks of a sample, in float32.

Source: docs/reference.md, section 2. Shapes are those of `range_evonorm_fp32`; r: rows of a sample.

Each lane of a row keeps its own extremes while a block's rows go by, so that a loop over rows uses
vectors. Then the lanes of a channel are folded into one, and channels are merged into chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgesim.quant.kernels.arrays import Float32, Int32, Int64
from edgesim.quant.kernels.inner import inner

_ZERO = np.float32(0)
_INFINITY = np.float32(np.inf)


class Lanes(NamedTuple):
    """Extremes of a block, by lane.

    Attributes:
        low: the first minimum, shape (R,), like `high`, the first maximum.
        low_at: its row, in the end its pixel; shape (R,), like `high_at`.
        spoilt: sums of 0 x: not 0 if a value is not finite, which comparisons would pass over.
    """

    low: Float32
    high: Float32
    low_at: Int32
    high_at: Int32
    spoilt: Float32


class Extremes(NamedTuple):
    """Extremes of the chunks of a sample, shape (G, J), places in (channel, pixel) order."""

    low: Float32
    high: Float32
    low_place: Int64
    high_place: Int64


@inner
def find_extremes(x_rR: Float32, K: int, blocks: int, lanes: Lanes, extremes: Extremes) -> None:
    """Write the extremes of the chunks of a sample with K channels in a group.

    `lanes` is scratch memory, but for `spoilt`, to which 0 x is added.
    """
    num_rows, R = x_rR.shape
    G, J = extremes.low.shape
    C, rows = G * K, num_rows // blocks
    P = num_rows * (R // C)
    extremes.low[:] = _INFINITY
    extremes.high[:] = -_INFINITY
    extremes.low_place[:] = K * P
    extremes.high_place[:] = K * P
    for block in range(blocks):
        _extremes_of_lanes(x_rR, block * rows, (block + 1) * rows, lanes)
        _fold_lanes(lanes, C)
        for g in range(G):
            for k in range(K):
                j = (k * blocks + block) * J // (K * blocks)
                _merge_channel(lanes, g * K + k, k * P, g, j, extremes)


@inner
def _extremes_of_lanes(x_rR: Float32, start: int, stop: int, lanes: Lanes) -> None:
    low_R, high_R, spoilt_R = lanes.low, lanes.high, lanes.spoilt
    low_row_R, high_row_R = lanes.low_at, lanes.high_at
    low_R[:] = _INFINITY
    high_R[:] = -_INFINITY
    low_row_R[:] = start
    high_row_R[:] = start
    for row in range(start, stop):
        number = np.int32(row)
        for i in range(x_rR.shape[1]):
            x = x_rR[row, i]
            spoilt_R[i] += x * _ZERO
            is_low, is_high = x < low_R[i], x > high_R[i]
            low_R[i] = x if is_low else low_R[i]
            low_row_R[i] = number if is_low else low_row_R[i]
            high_R[i] = x if is_high else high_R[i]
            high_row_R[i] = number if is_high else high_row_R[i]


@inner
def _fold_lanes(lanes: Lanes, C: int) -> None:
    """Leave the extremes of each channel in its first lane, with pixels in place of rows."""
    R = len(lanes.low)
    T = np.int32(R // C)
    for first in range(0, R, C):
        pixel = np.int32(first // C)
        for i in range(first, first + C):
            lanes.low_at[i] = lanes.low_at[i] * T + pixel
            lanes.high_at[i] = lanes.high_at[i] * T + pixel
    for first in range(C, R, C):
        _fold(-1, lanes.low, lanes.low_at, first, C)
        _fold(1, lanes.high, lanes.high_at, first, C)


@inner
def _fold(sign: int, values_R: Float32, pixels_R: Int32, first: int, C: int) -> None:
    """Take the lanes from `first` on where they are larger (-1: smaller), or equal and before."""
    factor = np.float32(sign)
    for c in range(C):
        value, pixel = values_R[first + c], pixels_R[first + c]
        best, at = values_R[c], pixels_R[c]
        is_better = (value * factor > best * factor) | ((value == best) & (pixel < at))
        values_R[c] = value if is_better else best
        pixels_R[c] = pixel if is_better else at


@inner
def _merge_channel(
    lanes: Lanes, c: int, first_place: int, g: int, j: int, extremes: Extremes
) -> None:
    """Merge a channel's extremes of a block into those of its chunk; of equal ones the first."""
    value, place = lanes.low[c], first_place + lanes.low_at[c]
    best, at = extremes.low[g, j], extremes.low_place[g, j]
    if value < best or (value == best and place < at):
        extremes.low[g, j], extremes.low_place[g, j] = value, place
    value, place = lanes.high[c], first_place + lanes.high_at[c]
    best, at = extremes.high[g, j], extremes.high_place[g, j]
    if value > best or (value == best and place < at):
        extremes.high[g, j], extremes.high_place[g, j] = value, place
