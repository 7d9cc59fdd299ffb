"""The passes of Range EvoNorm over codes and gradients; `range_evonorm.py` has the symbols.

Shapes:
    row: some pixels with all of their channels; R = entries of a row, r = number of rows
    Values by channel are repeated to the length of a row, so that inner loops are long even with
    few channels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Codes, Float32, Int64
from edgesim.quant.kernels.intrinsics import larger, smaller
from edgesim.quant.kernels.norms.chunk_extremes import (
    CHANNEL_SHIFT,
    PIXEL_MASK,
    PLACE_MASK,
    mean_range,
)
from edgesim.quant.kernels.norms.rows import repeat

Float64 = NDArray[np.float64]

_MOST_ROWS = 128  # that are summed in float32 before the sums go on in float64
_ZERO = np.float32(0)
_HALF = np.float32(0.5)
_ONE = np.float32(1)
_SIXTH = np.float32(1 / 6)


class Factors(NamedTuple):
    """Factors of the backward pass.

    Attributes:
        v: as used, shape (C,), like `gamma`.
        gamma: as used.
        slopes: gamma times the scale of g's codes.
        s_hat: of each group, shape (N, G).
    """

    v: Float32
    gamma: Float32
    slopes: Float32
    s_hat: Float32


class _Sums(NamedTuple):
    """Sums over the rows of a sample, by lane, in units of g's scale.

    Attributes:
        gn: of g n.
        gxx: of g x^2 inside the gate.
        g: of g.
    """

    gn: Float32
    gxx: Float32
    g: Float32


@compiled
def write_scales(
    lowest_NGJ: Int64,
    highest_NGJ: Int64,
    grid: Float32,
    kappa: np.float32,
    epsilon: np.float32,
    s_NG: Float32,
) -> None:
    """Write s of the extremes of the chunks."""
    N, G, _ = lowest_NGJ.shape
    scale = grid[0]
    for n in range(N):
        for g in range(G):
            R = mean_range(lowest_NGJ[n, g], highest_NGJ[n, g])[0] * scale
            s_NG[n, g] = _ONE / (R * kappa + epsilon)


@compiled
def normalize(
    x: Codes,
    v: Float32,
    gamma: Float32,
    beta: Float32,
    s_hat_NG: Float32,
    y_NrR: Float32,
) -> None:
    """Write y of codes as rows of each sample; `s_hat_NG` are the scales as they are used."""
    R, C = x.values.shape[2], len(v)
    one, ones = np.ones(1, np.float32), np.ones(C, np.float32)
    v_R, gamma_R = np.empty(R, np.float32), np.empty(R, np.float32)
    beta_R, s_hat_R = np.empty(R, np.float32), np.empty(R, np.float32)
    repeat(one, v, v_R)
    repeat(one, gamma, gamma_R)
    repeat(one, beta, beta_R)
    for n in range(len(x.values)):
        repeat(s_hat_NG[n], ones, s_hat_R)
        sample = Codes(x.values[n], x.grid)
        _normalize_sample(sample, v_R, gamma_R, beta_R, s_hat_R, y_NrR[n])


@compiled
def _normalize_sample(
    codes: Codes,
    v_R: Float32,
    gamma_R: Float32,
    beta_R: Float32,
    s_hat_R: Float32,
    y_rR: Float32,
) -> None:
    scale, z, codes_rR = codes.grid[0], codes.grid[1], codes.values
    for r in range(codes_rR.shape[0]):
        for i in range(codes_rR.shape[1]):
            x = (np.float32(codes_rR[r, i]) - z) * scale
            n = x * _gate((x * v_R[i]) * _SIXTH + _HALF)
            y_rR[r, i] = (n * s_hat_R[i]) * gamma_R[i] + beta_R[i]


@compiled
def _gate(t: np.float32) -> np.float32:
    return smaller(larger(t, _ZERO), _ONE)


@compiled
def backward_but_ranges(
    x: Codes,
    g: Codes,
    factors: Factors,
    g_x_NrR: Float32,
    g_parameters_3C: Float64,
    g_s_hat_NG: Float64,
) -> None:
    """All gradients, except the part of the gradients at x that passes through the ranges.

    Codes and gradients at x have the form of rows of each sample.
    """
    num_rows, R, C = x.values.shape[1], x.values.shape[2], len(factors.v)
    v_R, slope_R = np.empty(R, np.float32), np.empty(R, np.float32)
    repeat(np.ones(1, np.float32), factors.v, v_R)
    sums_3R = np.empty((3, R), np.float32)
    sums_3C = np.empty((3, C), np.float64)
    sums = _Sums(sums_3R[0], sums_3R[1], sums_3R[2])
    for n in range(len(x.values)):
        s_hat_G = factors.s_hat[n]
        repeat(s_hat_G, factors.slopes, slope_R)
        _clear(sums_3C)
        of_x, of_g = Codes(x.values[n], x.grid), Codes(g.values[n], g.grid)
        for start in range(0, num_rows, _MOST_ROWS):
            _clear(sums_3R)
            stop = min(start + _MOST_ROWS, num_rows)
            _backward_rows(of_x, of_g, start, stop, v_R, slope_R, g_x_NrR[n], sums)
            _add_lanes(sums_3R, g.grid[0], sums_3C)
        _add_parameter_gradients(sums_3C, factors.gamma, s_hat_G, g_parameters_3C, g_s_hat_NG[n])


@compiled
def _backward_rows(
    of_x: Codes,
    of_g: Codes,
    start: int,
    stop: int,
    v_R: Float32,
    slope_R: Float32,
    g_x_rR: Float32,
    sums: _Sums,
) -> None:
    """Gradients of some rows without the part of the ranges; sums by lane in units of g's scale.

    Inside the gate, n = x (x v / 6 + 1/2), and dn/dx = h + x v / 6; outside, dn/dx = h.
    """
    scale, z, g_z = of_x.grid[0], of_x.grid[1], of_g.grid[1]
    codes_rR, g_codes_rR = of_x.values, of_g.values
    sum_gn_R, sum_gxx_R, sum_g_R = sums.gn, sums.gxx, sums.g
    for r in range(start, stop):
        for i in range(codes_rR.shape[1]):
            x = (np.float32(codes_rR[r, i]) - z) * scale
            g = np.float32(g_codes_rR[r, i]) - g_z
            a = (x * v_R[i]) * _SIXTH
            t = a + _HALF
            h = _gate(t)
            is_inside = t == h
            gx = g * x
            g_x_rR[r, i] = (g * slope_R[i]) * (h + (a if is_inside else _ZERO))
            sum_gn_R[i] += gx * h
            sum_gxx_R[i] += gx * x if is_inside else _ZERO
            sum_g_R[i] += g  # exact: whole numbers


@compiled
def _clear(sums: NDArray[np.floating[Any]]) -> None:
    for i in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            sums[i, j] = 0


@compiled
def _add_lanes(sums_3R: Float32, factor: np.float32, sums_3C: Float64) -> None:
    C = sums_3C.shape[1]
    for i in range(3):
        for first in range(0, sums_3R.shape[1], C):
            for c in range(C):
                sums_3C[i, c] += sums_3R[i, first + c] * np.float64(factor)


@compiled
def _add_parameter_gradients(
    sums_3C: Float64, gamma: Float32, s_hat_G: Float32, g_parameters_3C: Float64, g_s_hat_G: Float64
) -> None:
    """Add a sample's gradients at v, gamma and beta to the sums; write that at its s_hat."""
    G = len(s_hat_G)
    K = len(gamma) // G
    for g in range(G):
        s_hat = np.float64(s_hat_G[g])
        g_s_hat_G[g] = 0
        for c in range(g * K, (g + 1) * K):
            g_s_hat_G[g] += sums_3C[0, c] * gamma[c]
            g_parameters_3C[0, c] += sums_3C[1, c] * (s_hat * gamma[c] / 6)
            g_parameters_3C[1, c] += sums_3C[0, c] * s_hat
            g_parameters_3C[2, c] += sums_3C[2, c]


@compiled
def add_range_gradients(
    g_R_NG: Float64, lowest_NGJ: Int64, highest_NGJ: Int64, g_x_NL: Float32, C: int
) -> None:
    """Add the gradient of each chunk's range to its maximum, and subtract it from its minimum.

    The least R does not depend on x.
    """
    N, G, J = lowest_NGJ.shape
    for n in range(N):
        for g in range(G):
            if not mean_range(lowest_NGJ[n, g], highest_NGJ[n, g])[1]:
                continue
            g_R, first = np.float32(g_R_NG[n, g]), g * (C // G)
            for j in range(J):
                place = (highest_NGJ[n, g, j] & PLACE_MASK) ^ PLACE_MASK
                g_x_NL[n, (place & PIXEL_MASK) * C + first + (place >> CHANNEL_SHIFT)] += g_R
                place = lowest_NGJ[n, g, j] & PLACE_MASK
                g_x_NL[n, (place & PIXEL_MASK) * C + first + (place >> CHANNEL_SHIFT)] -= g_R
