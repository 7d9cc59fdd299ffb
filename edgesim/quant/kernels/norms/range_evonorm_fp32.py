"""Range EvoNorm in float32, forward and backward, compiled (arXiv 2111.09389, Eq. 2).

Source: docs/reference.md, section 2.

Symbols:
    x: input   y: output   g: gradient at y   v, gamma, beta: slope of the gate, scale, shift
    h: gate, sigmoid(v x) or clip(v x / 6 + 1/2, 0, 1)   h': its derivative at v x
    R: mean range of a group's chunks   s = 1 / (kappa R + eps)
    y = x h s gamma + beta
    g_x = s gamma g (h + v x h'), and at the extremes of a chunk +- g_R
    g_R = -kappa / J s^2 sum_group(gamma g x h)
Shapes:
    N: samples   P: pixels   G: groups   K: channels in a group   C = G K
    J: chunks of a group   M = K P / J: entries in a chunk, contiguous in (channel, pixel) order
    B: pixels in a block, the most that divide both P and M: no chunk ends within a block
    row: some pixels with all of their channels; T pixels in a row, R = T C entries, or lanes

A sample is worked on at a time, so that all passes but the first find it in the cache. Every
operation is a single one of float32 in a fixed order: the bits are those of every processor. Sums
go on in float64 after 128 rows.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int32
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.norms.chunk_extremes import pixels_of_a_row
from edgesim.quant.kernels.norms.float_extremes import Extremes, Lanes, find_extremes
from edgesim.quant.kernels.norms.gates import hard_sigmoid, sigmoid
from edgesim.quant.kernels.norms.rows import add_lanes, repeat

Float64 = NDArray[np.float64]

_MOST_LANES = 128  # of a row: with its sums and parameters it stays in the first-level cache
_MOST_ROWS = 128  # that are summed in float32 before the sums go on in float64
_ZERO, _ONE = np.float32(0), np.float32(1)
_HALF, _SIXTH = np.float32(0.5), np.float32(1 / 6)


class Settings(NamedTuple):
    """Constants of a layer.

    Attributes:
        groups: G, a divisor of C.
        chunks: J, a divisor of the entries of a sample's group.
        kappa: ratio of deviation to mean range for chunks of that size.
        epsilon: keeps s finite.
        is_hard: whether the gate is the piecewise linear one.
    """

    groups: int
    chunks: int
    kappa: float
    epsilon: float
    is_hard: bool


class Saved(NamedTuple):
    """What the backward pass needs beside x.

    Attributes:
        s: shape (N, G).
        highest: place in each chunk of its first maximum, shape (N, G, J).
        lowest: likewise of its first minimum.
    """

    s: Float32
    highest: Int32
    lowest: Int32


class Gradients(NamedTuple):
    """At the input, shape (N, H, W, C), and at the parameters, shape (C,); float32."""

    x: Float32
    v: Float32
    gamma: Float32
    beta: Float32


class _Rows(NamedTuple):
    """Tensors of a sample as rows, shape (r, R)."""

    x: Float32
    g: Float32
    g_x: Float32


def range_evonorm_fp32(
    x_NHWC: Float32, v: Float32, gamma: Float32, beta: Float32, settings: Settings
) -> tuple[Float32, Saved]:
    """y, shape of x, and what the backward pass needs.

    Args:
        x_NHWC: contiguous.
        v: slope of the gate, shape (C,), like `gamma` and `beta`.
        gamma: scale.
        beta: shift.
        settings: of the layer.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(x_NHWC, v, gamma)
    require("beta", beta, np.float32, v.shape)
    N, G, J = len(x_NHWC), settings.groups, settings.chunks
    highest, lowest = np.empty((2, N, G, J), np.int32)
    saved = Saved(np.empty((N, G), np.float32), highest, lowest)
    y = np.empty_like(x_NHWC)
    _forward(x_NHWC, v, gamma, beta, settings, y, saved)
    return y, saved


def range_evonorm_fp32_backward(
    x_NHWC: Float32,
    v: Float32,
    gamma: Float32,
    settings: Settings,
    saved: Saved,
    g_NHWC: Float32,
) -> Gradients:
    """Gradients for g.

    Args:
        x_NHWC: of the forward pass, like `v`, `gamma` and `settings`.
        v: slope of the gate, shape (C,).
        gamma: scale, shape (C,).
        settings: of the layer.
        saved: from the forward pass.
        g_NHWC: gradient at y, contiguous.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(x_NHWC, v, gamma)
    require("g", g_NHWC, np.float32, x_NHWC.shape)
    g_v, g_gamma, g_beta = np.empty((3, len(v)), np.float32)
    gradients = Gradients(np.empty_like(x_NHWC), g_v, g_gamma, g_beta)
    _backward(x_NHWC, v, gamma, settings, saved, g_NHWC, gradients)
    return gradients


def _check(x_NHWC: Float32, v: Float32, gamma: Float32) -> None:
    require("x", x_NHWC, np.float32, x_NHWC.shape)
    require("v", v, np.float32, x_NHWC.shape[3:])
    require("gamma", gamma, np.float32, x_NHWC.shape[3:])


@inner
def _pixels_of_a_block(x_NHWC: Float32, settings: Settings) -> int:
    _, H, W, C = x_NHWC.shape
    return gcd(H * W, H * W * C // (settings.groups * settings.chunks))


@inner
def _shape_of_rows(x_NHWC: Float32, settings: Settings) -> tuple[int, int, int]:
    """Shape of the samples as rows, none of which crosses the end of a block."""
    N, H, W, C = x_NHWC.shape
    pixels = pixels_of_a_row(_pixels_of_a_block(x_NHWC, settings), C, _MOST_LANES)
    return N, H * W // pixels, pixels * C


@compiled
def _forward(
    x_NHWC: Float32,
    v: Float32,
    gamma: Float32,
    beta: Float32,
    settings: Settings,
    y_NHWC: Float32,
    saved: Saved,
) -> None:
    shape = _shape_of_rows(x_NHWC, settings)
    x, y = x_NHWC.reshape(shape), y_NHWC.reshape(shape)
    N, _, R = shape
    C, G, J = len(v), settings.groups, settings.chunks
    blocks = x_NHWC.shape[1] * x_NHWC.shape[2] // _pixels_of_a_block(x_NHWC, settings)
    kappa, epsilon = np.float32(settings.kappa), np.float32(settings.epsilon)
    v_R, beta_R = np.empty(R, np.float32), np.empty(R, np.float32)
    scale_R = np.empty(R, np.float32)
    repeat(np.ones(1, np.float32), v, v_R)
    repeat(np.ones(1, np.float32), beta, beta_R)
    floats_3R, rows_2R = np.empty((3, R), np.float32), np.empty((2, R), np.int32)
    lanes = Lanes(floats_3R[0], floats_3R[1], rows_2R[0], rows_2R[1], floats_3R[2])
    values_2GJ, places_2GJ = np.empty((2, G, J), np.float32), np.empty((2, G, J), np.int64)
    extremes = Extremes(values_2GJ[0], values_2GJ[1], places_2GJ[0], places_2GJ[1])
    for n in range(N):
        lanes.spoilt[:] = 0
        find_extremes(x[n], C // G, blocks, lanes, extremes)
        _write_scales(extremes, lanes.spoilt, C, kappa, epsilon, saved.s[n])
        _write_places(extremes, C // G * x_NHWC.shape[1] * x_NHWC.shape[2] // J, saved, n)
        repeat(saved.s[n], gamma, scale_R)
        if settings.is_hard:
            _write_hard_outputs(x[n], v_R, scale_R, beta_R, y[n])
        else:
            _write_outputs(x[n], v_R, scale_R, beta_R, y[n])


@inner
def _write_scales(
    extremes: Extremes,
    spoilt_R: Float32,
    C: int,
    kappa: np.float32,
    epsilon: np.float32,
    s_G: Float32,
) -> None:
    """Write s; it is NaN for a group with a value that is not finite."""
    G, J = extremes.low.shape
    for g in range(G):
        total = 0.0
        for j in range(J):
            total += np.float64(extremes.high[g, j]) - np.float64(extremes.low[g, j])
        for first in range(0, len(spoilt_R), C):
            for c in range(g * (C // G), (g + 1) * (C // G)):
                total += np.float64(spoilt_R[first + c])
        s_G[g] = _ONE / (np.float32(total / J) * kappa + epsilon)


@inner
def _write_places(extremes: Extremes, M: int, saved: Saved, n: int) -> None:
    """Write places within chunks of M entries."""
    G, J = extremes.low.shape
    for g in range(G):
        for j in range(J):
            # A chunk of NaN alone has no extremes; its gradients are NaN wherever they go.
            saved.lowest[n, g, j] = min(extremes.low_place[g, j] - j * M, M - 1)
            saved.highest[n, g, j] = min(extremes.high_place[g, j] - j * M, M - 1)


@inner
def _write_outputs(
    x_rR: Float32, v_R: Float32, scale_R: Float32, beta_R: Float32, y_rR: Float32
) -> None:
    for row in range(x_rR.shape[0]):
        for i in range(x_rR.shape[1]):
            x = x_rR[row, i]
            y_rR[row, i] = (x * sigmoid(x * v_R[i])) * scale_R[i] + beta_R[i]


@inner
def _write_hard_outputs(
    x_rR: Float32, v_R: Float32, scale_R: Float32, beta_R: Float32, y_rR: Float32
) -> None:
    for row in range(x_rR.shape[0]):
        for i in range(x_rR.shape[1]):
            x = x_rR[row, i]
            h = hard_sigmoid((x * v_R[i]) * _SIXTH + _HALF)
            y_rR[row, i] = (x * h) * scale_R[i] + beta_R[i]


@compiled
def _backward(
    x_NHWC: Float32,
    v: Float32,
    gamma: Float32,
    settings: Settings,
    saved: Saved,
    g_NHWC: Float32,
    gradients: Gradients,
) -> None:
    shape = _shape_of_rows(x_NHWC, settings)
    x, g, g_x = x_NHWC.reshape(shape), g_NHWC.reshape(shape), gradients.x.reshape(shape)
    N, _, R = shape
    C, G = len(v), settings.groups
    v_R, scale_R = np.empty(R, np.float32), np.empty(R, np.float32)
    lanes_3R, sums_3C = np.empty((3, R), np.float32), np.empty((3, C), np.float64)
    g_parameters_3C, g_s_G = np.zeros((3, C), np.float64), np.empty(G, np.float64)
    repeat(np.ones(1, np.float32), v, v_R)
    factor = -settings.kappa / settings.chunks
    for n in range(N):
        s_G = saved.s[n]
        repeat(s_G, gamma, scale_R)
        rows = _Rows(x[n], g[n], g_x[n])
        _write_gradients(rows, v_R, scale_R, settings.is_hard, lanes_3R, sums_3C)
        _add_parameter_gradients(sums_3C, gamma, s_G, g_parameters_3C, g_s_G)
        for group in range(G):
            g_R = np.float32(g_s_G[group] * s_G[group] * s_G[group] * factor)
            _add_range_gradients(
                g_R, saved.highest[n, group], saved.lowest[n, group], group, G, gradients.x[n]
            )
    for c in range(C):
        gradients.v[c] = g_parameters_3C[0, c]
        gradients.gamma[c] = g_parameters_3C[1, c]
        gradients.beta[c] = g_parameters_3C[2, c]


@inner
def _write_gradients(
    rows: _Rows,
    v_R: Float32,
    scale_R: Float32,
    is_hard: bool,
    lanes_3R: Float32,
    sums_3C: Float64,
) -> None:
    """Write gradients at x without those of the ranges; sum g x^2 h', g x h and g."""
    num_rows = len(rows.x)
    sums_3C[:] = 0
    for start in range(0, num_rows, _MOST_ROWS):
        lanes_3R[:] = 0
        stop = min(start + _MOST_ROWS, num_rows)
        if is_hard:
            _write_some_hard_gradients(rows, start, stop, v_R, scale_R, lanes_3R)
        else:
            _write_some_gradients(rows, start, stop, v_R, scale_R, lanes_3R)
        for i in range(3):
            add_lanes(lanes_3R[i], sums_3C[i])


@inner
def _write_some_gradients(
    rows: _Rows, start: int, stop: int, v_R: Float32, scale_R: Float32, lanes_3R: Float32
) -> None:
    gxx_R, gxh_R, g_R = lanes_3R[0], lanes_3R[1], lanes_3R[2]
    for row in range(start, stop):
        for i in range(rows.x.shape[1]):
            x, g = rows.x[row, i], rows.g[row, i]
            h = sigmoid(x * v_R[i])
            gx = g * x
            gxs = gx * (h * (_ONE - h))
            rows.g_x[row, i] = (g * h + gxs * v_R[i]) * scale_R[i]
            gxx_R[i] += gxs * x
            gxh_R[i] += gx * h
            g_R[i] += g


@inner
def _write_some_hard_gradients(
    rows: _Rows, start: int, stop: int, v_R: Float32, scale_R: Float32, lanes_3R: Float32
) -> None:
    gxx_R, gxh_R, g_R = lanes_3R[0], lanes_3R[1], lanes_3R[2]
    for row in range(start, stop):
        for i in range(rows.x.shape[1]):
            x, g = rows.x[row, i], rows.g[row, i]
            t = (x * v_R[i]) * _SIXTH + _HALF
            h = hard_sigmoid(t)
            gx = g * x
            gxs = gx * (_SIXTH if t == h else _ZERO)
            rows.g_x[row, i] = (g * h + gxs * v_R[i]) * scale_R[i]
            gxx_R[i] += gxs * x
            gxh_R[i] += gx * h
            g_R[i] += g


@inner
def _add_parameter_gradients(
    sums_3C: Float64, gamma: Float32, s_G: Float32, g_parameters_3C: Float64, g_s_G: Float64
) -> None:
    """Add a sample's gradients at v, gamma and beta; write those at the s of its groups."""
    K = len(gamma) // len(s_G)
    for g in range(len(s_G)):
        s = np.float64(s_G[g])
        g_s_G[g] = 0
        for c in range(g * K, (g + 1) * K):
            g_s_G[g] += sums_3C[1, c] * gamma[c]
            g_parameters_3C[0, c] += sums_3C[0, c] * (s * gamma[c])
            g_parameters_3C[1, c] += sums_3C[1, c] * s
            g_parameters_3C[2, c] += sums_3C[2, c]


@inner
def _add_range_gradients(
    g_R: np.float32, highest_J: Int32, lowest_J: Int32, group: int, G: int, g_x_HWC: Float32
) -> None:
    """Add the gradient of each chunk's range to its maximum, and subtract it from its minimum."""
    H, W, C = g_x_HWC.shape
    g_x, K, J = g_x_HWC.reshape(H * W, C), C // G, len(highest_J)
    M = K * H * W // J
    for j in range(J):
        if highest_J[j] == lowest_J[j]:
            continue  # of equal values; adding and subtracting would leave rounding errors
        place = j * M + highest_J[j]
        g_x[place % (H * W), group * K + place // (H * W)] += g_R
        place = j * M + lowest_J[j]
        g_x[place % (H * W), group * K + place // (H * W)] -= g_R
