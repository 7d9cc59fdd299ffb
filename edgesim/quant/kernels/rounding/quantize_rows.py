"""Quantization of the rows of a matrix, each on a grid of its own, compiled, one thread.

`affine.py` computes the same in torch operations. Symbols: as in `quantize.py`, and
    R: rows   C: entries of a row
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.rounding.noise import BLOCK, multiples_of_step, write_noise
from edgesim.quant.kernels.rounding.quantize import (
    write_grid,
    write_nearest_codes,
    write_sample_range,
    write_stochastic_codes,
)


def quantize_rows(
    x_RC: Float32, seed: int | None, out_RC: UInt8, grids_R3: Float32
) -> tuple[float, float]:
    """Write codes of each row on the grid of its range, and the grids.

    Args:
        x_RC: contiguous, not empty.
        seed: of stochastic rounding, 64 bits; noise is that of an entry's place in the whole
            matrix. None rounds to nearest.
        out_RC: contiguous; left as it is if a number is not finite.
        grids_R3: s, z and 0 of each row; NaN for a row that is not finite.

    Returns:
        Lowest and highest number of all; NaN if one is not finite.

    Raises:
        KernelError: an array is of another kind.
    """
    require("the operand", x_RC, np.float32, x_RC.shape)
    require("out", out_RC, np.uint8, x_RC.shape)
    require("grids", grids_R3, np.float32, (len(x_RC), 3))
    low, high = _write_grids(x_RC, grids_R3)
    if isfinite(low):
        if seed is None:
            _quantize_nearest(x_RC, grids_R3, out_RC)
        else:
            _quantize_stochastic(x_RC, grids_R3, np.uint64(seed), out_RC)
    return low, high


@compiled
def _write_grids(x_RC: Float32, grids_R3: Float32) -> tuple[float, float]:
    range_ = np.empty(2, np.float32)
    low, high, is_finite = np.inf, -np.inf, True
    for row in range(len(x_RC)):
        write_sample_range(x_RC[row].view(np.int32).reshape(1, -1), range_)
        write_grid(range_, grids_R3[row])
        grids_R3[row, 2] = 0
        lowest, highest = float(range_[0]), float(range_[1])
        is_finite = is_finite and np.isfinite(lowest)
        low, high = min(low, lowest), max(high, highest)
    if not is_finite:
        return np.nan, np.nan
    return low, high


@compiled
def _quantize_nearest(x_RC: Float32, grids_R3: Float32, out_RC: UInt8) -> None:
    for row in range(len(x_RC)):
        write_nearest_codes(x_RC[row], grids_R3[row], out_RC[row])


@compiled
def _quantize_stochastic(x_RC: Float32, grids_R3: Float32, seed: np.uint64, out_RC: UInt8) -> None:
    x, out, columns = x_RC.reshape(-1), out_RC.reshape(-1), x_RC.shape[1]
    half = (len(x) + 1) // 2
    low, high = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    multiples = multiples_of_step(seed)
    for i in range(0, half, BLOCK):
        write_noise(i, seed, multiples, low, high)
        stop = min(i + BLOCK, half)
        _write_piece(x, low, i, stop, columns, grids_R3, out)
        _write_piece(x, high, half + i, min(half + stop, len(x)), columns, grids_R3, out)


@compiled
def _write_piece(
    x: Float32, u: Float32, start: int, stop: int, columns: int, grids_R3: Float32, out: UInt8
) -> None:
    """Codes of the entries from `start` to `stop` of all rows; u: their noise."""
    i = start
    while i < stop:
        row = i // columns
        behind = min((row + 1) * columns, stop)  # the row's end, or the piece's
        write_stochastic_codes(x[i:behind], u[i - start :], grids_R3[row], out[i:behind])
        i = behind
