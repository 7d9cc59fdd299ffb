"""Ranges, quantization and residual sums on plain arrays, compiled, one thread.

Source: docs/reference.md, sections 1.1 and 1.2.

Every result is that of the same float32 operations done one by one: no contraction to fused
multiply-adds, no reordering. `affine.py` and `rounding_noise.py` compute the same in torch
operations.

Symbols:
    x: number   q: its code   s: scale   z: zero point, a whole number   x ~ (q - z) s
    u: noise of stochastic rounding, in [0, 1)   i: place of an entry   L: number of entries
    H: L / 2 rounded up: one hash serves the entries i and H + i
A grid is float32 [s, z]; a range is float32 [lowest, highest], or [NaN, NaN] if a number is not
finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int32, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.intrinsics import larger, smaller
from edgesim.quant.kernels.rounding.noise import BLOCK, multiples_of_step, write_noise

Found = tuple[float, float, float, float]  # range and grid: lowest, highest, s, z

_ZERO = np.float32(0)
_ONE = np.float32(1)
_LARGEST_CODE = np.float32(255)
_SMALLEST_SCALE = np.float32(1e-30)  # keeps 1 / s finite where all is zero

_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)  # bits of +infinity; those of NaN are larger still
_MINUS_INFINITY = np.int32(-0x7F800001)  # of -infinity, by `_ordered`; those of -NaN are smaller


def sample_range(x: Float32) -> Float32:
    """Mean over samples of their minima, and of their maxima.

    Args:
        x: contiguous, not empty; the first axis is the sample's.

    Returns:
        range, shape (2,); the means are of float64 sums.

    Raises:
        KernelError: x is of another kind.
    """
    require("x", x, np.float32, x.shape)
    range_ = np.empty(2, np.float32)
    write_sample_range(x.view(np.int32).reshape(len(x), -1), range_)
    return range_


def full_range(x: Float32) -> Float32:
    """Minimum and maximum, shape (2,), of an array that is contiguous and not empty."""
    require("x", x, np.float32, x.shape)
    range_ = np.empty(2, np.float32)
    write_sample_range(x.view(np.int32).reshape(1, -1), range_)
    return range_


def make_grid(range_: Float32) -> Float32:
    """Grid of the range, widened to hold zero, moved so that zero is a code.

    NaN if the range is.
    """
    grid = np.empty(2, np.float32)
    write_grid(range_, grid)
    return grid


def quantize_by_samples(x: Float32, seed: int | None, out: UInt8) -> Found:
    """Write codes into `out`, on the grid of the `sample_range` of x.

    Args:
        x: contiguous, not empty; the first axis is the sample's.
        seed: of stochastic rounding, 64 bits; None rounds to nearest.
        out: contiguous, shape of x; left as it is where the grid is not finite.

    Returns:
        range and grid: lowest, highest, s, z.
    """
    _require_same_shape(x, np.float32, out, np.uint8)
    return _quantize_found(x, x.shape[0], seed is not None, np.uint64(seed or 0), out)


def quantize_whole(x: Float32, seed: int | None, out: UInt8) -> Found:
    """As `quantize_by_samples`, with the `full_range`."""
    _require_same_shape(x, np.float32, out, np.uint8)
    return _quantize_found(x, 1, seed is not None, np.uint64(seed or 0), out)


def quantize_nearest(x: Float32, grid: Float32, out: UInt8) -> None:
    """Codes clip(rint(x / s + z), 0, 255) into `out`; half to even, error at most s / 2 inside.

    Args:
        x: contiguous, finite.
        grid: finite.
        out: contiguous, shape of x.

    Raises:
        KernelError: an array is of another kind, here and in the functions below.
    """
    _require_same_shape(x, np.float32, out, np.uint8)
    write_nearest_codes(x.reshape(-1), grid, out.reshape(-1))


def quantize_stochastic(x: Float32, grid: Float32, seed: int, out: UInt8) -> None:
    """Codes clip(floor(x / s + z + u), 0, 255) into `out`: unbiased inside the grid.

    Args:
        x: contiguous, finite.
        grid: finite.
        seed: of the noise, 64 bits.
        out: contiguous, shape of x.
    """
    _require_same_shape(x, np.float32, out, np.uint8)
    _quantize_stochastic(x.reshape(-1), grid, np.uint64(seed), out.reshape(-1))


def dequantize(codes: UInt8, grid: Float32, out: Float32) -> None:
    """Numbers (q - z) s into `out`, contiguous like `codes`, and of their shape."""
    _require_same_shape(codes, np.uint8, out, np.float32)
    _dequantize(codes.reshape(-1), grid, out.reshape(-1))


def requantize_nearest(x: Float32, grid: Float32, out: Float32) -> None:
    """Round x by `quantize_nearest` and dequantize it, in one pass."""
    _require_same_shape(x, np.float32, out, np.float32)
    _requantize_nearest(x.reshape(-1), grid, out.reshape(-1))


def requantize_whole(x: Float32, seed: int | None, out: Float32) -> Found:
    """Round x by `quantize_whole` and dequantize it; if x is not finite, neither is `out`."""
    _require_same_shape(x, np.float32, out, np.float32)
    return _requantize_found(x, seed is not None, np.uint64(seed or 0), out)


def requantize_rows(x: Float32) -> Float32:
    """`requantize_whole` to nearest, for each row of a contiguous matrix, in place.

    Returns:
        ranges and grids, shape (rows, 4).
    """
    require("x", x, np.float32, x.shape)
    found = np.empty((len(x), 4), np.float32)
    _requantize_rows(x, found)
    return found


def residual_sum(a: Float32, b: Float32, a_grid: Float32, b_grid: Float32, out: Float32) -> None:
    """Sum of the numbers of the nearest codes of a and b, each on its grid, in one pass."""
    _require_same_shape(a, np.float32, out, np.float32)
    _require_same_shape(b, np.float32, out, np.float32)
    _residual_sum(a.reshape(-1), b.reshape(-1), a_grid, b_grid, out.reshape(-1))


def residual_sum_stochastic(
    a: Float32, b: Float32, a_grid: Float32, b_grid: Float32, seeds: tuple[int, int], out: Float32
) -> None:
    """Sum of the numbers of the stochastic codes of a and b, each on its grid and with its seed.

    `out` must not be the memory of b.
    """
    _require_same_shape(a, np.float32, out, np.float32)
    _require_same_shape(b, np.float32, out, np.float32)
    a_seed, b_seed = np.uint64(seeds[0]), np.uint64(seeds[1])
    _residual_sum_stochastic(
        a.reshape(-1), b.reshape(-1), a_grid, b_grid, a_seed, b_seed, out.reshape(-1)
    )


def _require_same_shape(
    x: NDArray[Any], dtype: type[np.generic], out: NDArray[Any], out_dtype: type[np.generic]
) -> None:
    require("the operand", x, dtype, x.shape)
    require("out", out, out_dtype, x.shape)


@compiled
def _ordered(bits: np.int32) -> np.int32:
    """Bits of a float32 as an integer of the same order; its own inverse."""
    return np.int32(bits ^ (np.int32(bits >> np.int32(31)) & _ALL_BUT_SIGN))


@compiled
def write_sample_range(bits_NL: Int32, range_: Float32) -> None:
    """As `sample_range`, for compiled functions, of the bits of each sample's entries.

    Bits are compared as integers, so that the loop vectorises and NaN is not lost.
    """
    extremes = np.empty(2, np.int32)
    values = extremes.view(np.float32)
    lows, highs = 0.0, 0.0
    for n in range(bits_NL.shape[0]):
        low = high = _ordered(bits_NL[n, 0])
        for i in range(bits_NL.shape[1]):
            x = _ordered(bits_NL[n, i])
            low = min(low, x)
            high = max(high, x)
        if high >= _INFINITY or low <= _MINUS_INFINITY:
            range_[0] = range_[1] = np.nan
            return
        extremes[0], extremes[1] = _ordered(low), _ordered(high)
        lows += values[0]
        highs += values[1]
    range_[0] = lows / bits_NL.shape[0]
    range_[1] = highs / bits_NL.shape[0]


@compiled
def write_grid(range_: Float32, grid: Float32) -> None:
    """As `make_grid`, for compiled functions: the first two entries of `grid`."""
    # Comparisons are false for NaN, which stays what it is.
    low = min(range_[0], _ZERO)
    high = max(range_[1], _ZERO)
    scale = (high - low) / _LARGEST_CODE
    if scale < _SMALLEST_SCALE:
        scale = _SMALLEST_SCALE
    z = np.rint(-low * (_ONE / scale))
    grid[0] = scale
    grid[1] = min(z, _LARGEST_CODE)


@compiled
def _clip(t: np.float32) -> np.float32:
    """Clip to the range of codes.

    This happens before rounding, which gives the same since the ends are whole.
    """
    return smaller(larger(t, _ZERO), _LARGEST_CODE)


@compiled
def _nearest(x: np.float32, inverse: np.float32, z: np.float32) -> np.float32:
    return np.float32(np.rint(_clip(x * inverse + z)))


@compiled
def _stochastic(x: np.float32, u: np.float32, inverse: np.float32, z: np.float32) -> np.int32:
    return np.int32(_clip((x * inverse + z) + u))  # not negative: cutting off is rounding down


@compiled
def write_nearest_codes(x: Float32, grid: Float32, out: UInt8) -> None:
    """As `quantize_nearest`, for compiled functions: arrays are flat."""
    inverse, z = _ONE / grid[0], grid[1]
    for i in range(len(x)):
        out[i] = np.uint8(np.int32(_nearest(x[i], inverse, z)))


@compiled
def _requantize_nearest(x: Float32, grid: Float32, out: Float32) -> None:
    scale, inverse, z = grid[0], _ONE / grid[0], grid[1]
    for i in range(len(x)):
        out[i] = (_nearest(x[i], inverse, z) - z) * scale


@compiled
def _dequantize(codes: UInt8, grid: Float32, out: Float32) -> None:
    scale, z = grid[0], grid[1]
    for i in range(len(codes)):
        out[i] = (np.float32(codes[i]) - z) * scale


@compiled
def _residual_sum(a: Float32, b: Float32, a_grid: Float32, b_grid: Float32, out: Float32) -> None:
    a_scale, a_inverse, a_z = a_grid[0], _ONE / a_grid[0], a_grid[1]
    b_scale, b_inverse, b_z = b_grid[0], _ONE / b_grid[0], b_grid[1]
    for i in range(len(a)):
        a_value = (_nearest(a[i], a_inverse, a_z) - a_z) * a_scale
        out[i] = a_value + (_nearest(b[i], b_inverse, b_z) - b_z) * b_scale


@compiled
def write_stochastic_codes(x: Float32, u: Float32, grid: Float32, out: UInt8) -> None:
    """Codes of flat x with the noise u, as many as x has or more."""
    inverse, z = _ONE / grid[0], grid[1]
    for i in range(len(x)):
        out[i] = np.uint8(_stochastic(x[i], u[i], inverse, z))


@compiled
def _stochastic_values(x: Float32, u: Float32, grid: Float32, out: Float32) -> None:
    scale, inverse, z = grid[0], _ONE / grid[0], grid[1]
    for i in range(len(x)):
        out[i] = (np.float32(_stochastic(x[i], u[i], inverse, z)) - z) * scale


@compiled
def _add_stochastic_values(x: Float32, u: Float32, grid: Float32, out: Float32) -> None:
    scale, inverse, z = grid[0], _ONE / grid[0], grid[1]
    for i in range(len(x)):
        out[i] += (np.float32(_stochastic(x[i], u[i], inverse, z)) - z) * scale


@compiled
def _quantize_stochastic(x: Float32, grid: Float32, seed: np.uint64, out: UInt8) -> None:
    half = (len(x) + 1) // 2
    low, high = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    multiples = multiples_of_step(seed)
    for i in range(0, half, BLOCK):
        write_noise(i, seed, multiples, low, high)
        stop = min(i + BLOCK, half)
        write_stochastic_codes(x[i:stop], low, grid, out[i:stop])
        write_stochastic_codes(x[half + i : half + stop], high, grid, out[half + i : half + stop])


@compiled
def _requantize_stochastic(x: Float32, grid: Float32, seed: np.uint64, out: Float32) -> None:
    half = (len(x) + 1) // 2
    low, high = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    multiples = multiples_of_step(seed)
    for i in range(0, half, BLOCK):
        write_noise(i, seed, multiples, low, high)
        stop = min(i + BLOCK, half)
        _stochastic_values(x[i:stop], low, grid, out[i:stop])
        _stochastic_values(x[half + i : half + stop], high, grid, out[half + i : half + stop])


@compiled
def _residual_sum_stochastic(
    a: Float32,
    b: Float32,
    a_grid: Float32,
    b_grid: Float32,
    a_seed: np.uint64,
    b_seed: np.uint64,
    out: Float32,
) -> None:
    half = (len(a) + 1) // 2
    low, high = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    a_multiples, b_multiples = multiples_of_step(a_seed), multiples_of_step(b_seed)
    for i in range(0, half, BLOCK):
        stop = min(i + BLOCK, half)
        top, end = half + i, half + stop
        write_noise(i, a_seed, a_multiples, low, high)
        _stochastic_values(a[i:stop], low, a_grid, out[i:stop])
        _stochastic_values(a[top:end], high, a_grid, out[top:end])
        write_noise(i, b_seed, b_multiples, low, high)
        _add_stochastic_values(b[i:stop], low, b_grid, out[i:stop])
        _add_stochastic_values(b[top:end], high, b_grid, out[top:end])


@compiled
def _quantize_found(x: Float32, samples: int, is_noisy: bool, seed: np.uint64, out: UInt8) -> Found:
    found = np.empty(4, np.float32)
    range_, grid, flat = found[:2], found[2:], x.reshape(-1)
    write_sample_range(flat.view(np.int32).reshape(samples, -1), range_)
    write_grid(range_, grid)
    if np.isfinite(grid[0]):
        if is_noisy:
            _quantize_stochastic(flat, grid, seed, out.reshape(-1))
        else:
            write_nearest_codes(flat, grid, out.reshape(-1))
    return found[0], found[1], found[2], found[3]


@compiled
def _requantize_found(x: Float32, is_noisy: bool, seed: np.uint64, out: Float32) -> Found:
    found, flat = np.empty(4, np.float32), x.reshape(-1)
    requantize_found(flat, is_noisy, seed, found, out.reshape(-1))
    return found[0], found[1], found[2], found[3]


@compiled
def requantize_found(
    x: Float32, is_noisy: bool, seed: np.uint64, found_4: Float32, out: Float32
) -> None:
    """As `requantize_whole`, for compiled functions: arrays are flat."""
    range_, grid = found_4[:2], found_4[2:]
    write_sample_range(x.view(np.int32).reshape(1, -1), range_)
    write_grid(range_, grid)
    if is_noisy:
        _requantize_stochastic(x, grid, seed, out)
    else:
        _requantize_nearest(x, grid, out)


@compiled
def _requantize_rows(x_RL: Float32, found_R4: Float32) -> None:
    for r in range(len(x_RL)):
        requantize_found(x_RL[r], False, np.uint64(0), found_R4[r], x_RL[r])
