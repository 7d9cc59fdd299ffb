"""Range BatchNorm on 8-bit codes, then ReLU, forward and backward (arXiv 1805.11046).

Source: docs/reference.md, section 2.

Symbols:
    q: code of an entry   x = (q - z) scale: its number   g: gradient at y, from its own codes
    gamma, beta: scale, shift, per channel, as they are used
    mean, R: mean, and mean range of the chunks, of a channel   s = 1 / (kappa R + eps)
    s_hat: s, quantized over all channels   y = relu((x - mean) s_hat gamma + beta)
Shapes:
    N: samples   H, W: height, width   P = N H W: entries of a channel   C: channels   J: chunks
    row: some pixels with all of their channels; R = entries of a row, r = number of rows
    A chunk has P / J entries, rounded down; the rest of P counts for the mean and not for R.

Forward results are those of float32 operations one by one, in the order of the formulas; the mean
is that of the codes, exact before it is rounded to float32 and multiplied by `scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Codes, Float32, Int32, Int64, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.intrinsics import larger
from edgesim.quant.kernels.norms.chunk_extremes import (
    PIXEL_MASK,
    Extremes,
    chunk_extremes,
    mean_range,
    pixels_of_a_row,
)
from edgesim.quant.kernels.rounding.quantize import (
    full_range,
    make_grid,
    requantize_nearest,
)

Float64 = NDArray[np.float64]

_MOST_LANES = 128  # of a row: with its sums and parameters it stays in the first-level cache
_MOST_ROWS = 128  # that are summed in 32 bits before the sums go on in 64
_ZERO = np.float32(0)
_ONE = np.float32(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Constants of a layer and a batch.

    Attributes:
        chunks: J, at most P.
        kappa: ratio of deviation to mean range for chunks of that size.
        epsilon: keeps s finite.
    """

    chunks: int
    kappa: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean, s and s_hat of each channel, float32, shape (C,)."""

    mean: Float32
    s: Float32
    s_hat: Float32


@dataclass(frozen=True, slots=True)
class Gradients:
    """At the input, shape (N, H, W, C), and at the parameters, shape (C,); float32."""

    x: Float32
    gamma: Float32
    beta: Float32


class _Channels(NamedTuple):
    """Numbers of each channel, shape (C,), or repeated to the length of a row."""

    mean: Float32
    s_hat: Float32
    gamma: Float32
    beta: Float32


def batch_moments(codes_NHWC: UInt8, grid: Float32, settings: Settings) -> Moments:
    """Moments of a batch.

    Args:
        codes_NHWC: contiguous.
        grid: of the codes.
        settings: of the layer and the batch.

    Raises:
        KernelError: the codes are of another kind.
    """
    require("codes", codes_NHWC, np.uint8, codes_NHWC.shape)
    C = codes_NHWC.shape[3]
    sums = np.zeros(C, np.int64)
    _sum_codes(codes_NHWC.reshape(_rows(codes_NHWC)), sums)
    entries = codes_NHWC.size // C
    extremes = _extremes(codes_NHWC, settings.chunks)
    mean, s = np.empty(C, np.float32), np.empty(C, np.float32)
    constants = np.array([settings.kappa, settings.epsilon], np.float32)
    _moments(sums, entries, extremes.lowest[0], extremes.highest[0], grid, constants, mean, s)
    return given_moments(mean, s)


def given_moments(mean: Float32, s: Float32) -> Moments:
    """Moments for evaluation, from the mean and s of past batches."""
    s_hat = np.empty_like(s)
    requantize_nearest(s, make_grid(full_range(s)), s_hat)
    return Moments(mean, s, s_hat)


def range_batch_norm(
    codes_NHWC: UInt8, grid: Float32, moments: Moments, gamma: Float32, beta: Float32
) -> Float32:
    """y, float32 NHWC.

    Args:
        codes_NHWC: contiguous.
        grid: of the codes.
        moments: of the batch in training.
        gamma: as used.
        beta: as used.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(codes_NHWC, moments, gamma, beta)
    y = np.empty(codes_NHWC.shape, np.float32)
    rows = _rows(codes_NHWC)
    channels = _Channels(moments.mean, moments.s_hat, gamma, beta)
    _normalize(Codes(codes_NHWC.reshape(rows), grid), channels, y.reshape(rows))
    return y


def range_batch_norm_backward(
    codes_NHWC: UInt8,
    grid: Float32,
    moments: Moments,
    gamma: Float32,
    beta: Float32,
    settings: Settings,
    g_codes_NHWC: UInt8,
    g_grid: Float32,
) -> Gradients:
    """Gradients for g; straight through the rounding of s.

    Mean and range depend on the batch, so gradients pass through them too. A chunk's range depends
    on its first maximum and its first minimum.

    Args:
        codes_NHWC: of the forward pass, like `grid`, `gamma`, `beta` and `settings`.
        grid: of the codes.
        moments: of the batch.
        gamma: as used.
        beta: as used.
        settings: of the layer and the batch.
        g_codes_NHWC: of the gradient at y, contiguous; overwritten.
        g_grid: of these codes.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(codes_NHWC, moments, gamma, beta)
    require("codes of g", g_codes_NHWC, np.uint8, codes_NHWC.shape)
    C = codes_NHWC.shape[3]
    entries = codes_NHWC.size // C
    rows = _rows(codes_NHWC)
    sums_2C = np.zeros((2, C))
    channels = _Channels(moments.mean, moments.s_hat, gamma, beta)
    g_rows = g_codes_NHWC.reshape(rows)
    x, g = Codes(codes_NHWC.reshape(rows), grid), Codes(g_rows, g_grid)
    _mask_and_sum(x, channels, g, sums_2C)
    g_beta, g_y_x = sums_2C * g_grid[0]
    slope = gamma * moments.s_hat
    shift = (g_beta * slope / entries).astype(np.float32)
    g_x = np.empty(codes_NHWC.shape, np.float32)
    _write(g_rows, g_grid, slope * g_grid[0], shift, g_x.reshape(rows))
    g_R = -g_y_x * gamma * moments.s * moments.s * (settings.kappa / settings.chunks)
    extremes = _extremes(codes_NHWC, settings.chunks)
    _add_range_gradients(g_R, extremes.lowest[0], extremes.highest[0], g_x.reshape(-1, C))
    return Gradients(
        g_x, (g_y_x * moments.s_hat).astype(np.float32), beta=g_beta.astype(np.float32)
    )


def _check(codes_NHWC: UInt8, moments: Moments, gamma: Float32, beta: Float32) -> None:
    require("codes", codes_NHWC, np.uint8, codes_NHWC.shape)
    of_channels = codes_NHWC.shape[3:]
    require("mean", moments.mean, np.float32, of_channels)
    require("s_hat", moments.s_hat, np.float32, of_channels)
    require("gamma", gamma, np.float32, of_channels)
    require("beta", beta, np.float32, of_channels)


def _extremes(codes_NHWC: UInt8, chunks: int) -> Extremes:
    """Of each channel's chunks, as of one sample, whose groups are the channels."""
    codes_PC = codes_NHWC.reshape(-1, codes_NHWC.shape[3])
    in_chunks = len(codes_PC) - len(codes_PC) % chunks
    return chunk_extremes(codes_PC[None, :in_chunks], codes_PC.shape[1], chunks)


def _rows(codes_NHWC: UInt8) -> tuple[int, int]:
    """Shape of the codes as rows."""
    N, H, W, C = codes_NHWC.shape
    pixels = pixels_of_a_row(N * H * W, C, _MOST_LANES)
    return N * H * W // pixels, pixels * C


@compiled
def _sum_codes(codes_rR: UInt8, sums_C: Int64) -> None:
    num_rows, R = codes_rR.shape
    C = len(sums_C)
    sums_R = np.empty(R, np.int32)
    for start in range(0, num_rows, _MOST_ROWS):
        for i in range(R):
            sums_R[i] = 0
        _sum_rows(codes_rR, start, min(start + _MOST_ROWS, num_rows), sums_R)
        for first in range(0, R, C):
            for c in range(C):
                sums_C[c] += sums_R[first + c]


@compiled
def _sum_rows(codes_rR: UInt8, start: int, stop: int, sums_R: Int32) -> None:
    for r in range(start, stop):
        for i in range(codes_rR.shape[1]):
            sums_R[i] += np.int32(codes_rR[r, i])


@compiled
def _moments(
    sums: Int64,
    entries: int,
    lowest_CJ: Int64,
    highest_CJ: Int64,
    grid: Float32,
    constants: Float32,
    mean: Float32,
    s: Float32,
) -> None:
    scale, z = grid[0], np.int64(grid[1])
    kappa, epsilon = constants[0], constants[1]
    for c in range(len(sums)):
        mean[c] = np.float32((sums[c] - z * entries) / entries) * scale
        R = mean_range(lowest_CJ[c], highest_CJ[c])[0] * scale
        s[c] = _ONE / (R * kappa + epsilon)


@compiled
def _row(by_channel: Float32, R: int) -> Float32:
    """A row of values by channel."""
    C = len(by_channel)
    row_R = np.empty(R, np.float32)
    for first in range(0, R, C):
        for c in range(C):
            row_R[first + c] = by_channel[c]
    return row_R


@compiled
def _normalize(codes: Codes, channels: _Channels, y_rR: Float32) -> None:
    scale, z, codes_rR = codes.grid[0], codes.grid[1], codes.values
    R = codes_rR.shape[1]
    mean_R, s_hat_R = _row(channels.mean, R), _row(channels.s_hat, R)
    gamma_R, beta_R = _row(channels.gamma, R), _row(channels.beta, R)
    for r in range(codes_rR.shape[0]):
        for i in range(R):
            x = (np.float32(codes_rR[r, i]) - z) * scale
            y = ((x - mean_R[i]) * s_hat_R[i]) * gamma_R[i] + beta_R[i]
            y_rR[r, i] = larger(y, _ZERO)


@compiled
def _mask_and_sum(x: Codes, channels: _Channels, g: Codes, sums_2C: Float64) -> None:
    """Set g to zero where y is zero; sum g and g (x - mean) by channel, in units of g's scale."""
    num_rows, R = x.values.shape
    C = len(channels.mean)
    mean_R, s_hat_R = _row(channels.mean, R), _row(channels.s_hat, R)
    lanes = _Channels(mean_R, s_hat_R, _row(channels.gamma, R), _row(channels.beta, R))
    sum_g_R, sum_gx_R = np.empty(R, np.float32), np.empty(R, np.float32)
    for start in range(0, num_rows, _MOST_ROWS):
        for i in range(R):
            sum_g_R[i] = sum_gx_R[i] = _ZERO
        stop = min(start + _MOST_ROWS, num_rows)
        _mask_and_sum_rows(x, g, start, stop, lanes, sum_g_R, sum_gx_R)
        for first in range(0, R, C):
            for c in range(C):
                sums_2C[0, c] += sum_g_R[first + c]
                sums_2C[1, c] += sum_gx_R[first + c]


@compiled
def _mask_and_sum_rows(
    of_x: Codes,
    of_g: Codes,
    start: int,
    stop: int,
    lanes: _Channels,
    sum_g_R: Float32,
    sum_gx_R: Float32,
) -> None:
    scale, z, g_z = of_x.grid[0], of_x.grid[1], of_g.grid[1]
    zero_code = np.uint8(g_z)
    codes_rR, g_codes_rR = of_x.values, of_g.values
    mean_R, s_hat_R, gamma_R, beta_R = lanes.mean, lanes.s_hat, lanes.gamma, lanes.beta
    for r in range(start, stop):
        for i in range(codes_rR.shape[1]):
            x = (np.float32(codes_rR[r, i]) - z) * scale - mean_R[i]
            is_positive = (x * s_hat_R[i]) * gamma_R[i] + beta_R[i] > _ZERO
            code = g_codes_rR[r, i]
            code = code if is_positive else zero_code
            g_codes_rR[r, i] = code
            g = np.float32(code) - g_z
            sum_g_R[i] += g  # exact: whole numbers
            sum_gx_R[i] += g * x


@compiled
def _write(
    g_codes_rR: UInt8, g_grid: Float32, slope: Float32, shift: Float32, g_x_rR: Float32
) -> None:
    R = g_codes_rR.shape[1]
    slope_R, shift_R, g_z = _row(slope, R), _row(shift, R), g_grid[1]
    for r in range(g_codes_rR.shape[0]):
        for i in range(R):
            g_x_rR[r, i] = (np.float32(g_codes_rR[r, i]) - g_z) * slope_R[i] - shift_R[i]


@compiled
def _add_range_gradients(
    g_R_C: Float64, lowest_CJ: Int64, highest_CJ: Int64, g_x_PC: Float32
) -> None:
    """Add the gradient of each chunk's range to its maximum, and subtract it from its minimum.

    The least R does not depend on x.
    """
    for c in range(len(g_R_C)):
        if not mean_range(lowest_CJ[c], highest_CJ[c])[1]:
            continue
        g_R = np.float32(g_R_C[c])
        for j in range(lowest_CJ.shape[1]):
            g_x_PC[(highest_CJ[c, j] & PIXEL_MASK) ^ PIXEL_MASK, c] += g_R
            g_x_PC[lowest_CJ[c, j] & PIXEL_MASK, c] -= g_R
