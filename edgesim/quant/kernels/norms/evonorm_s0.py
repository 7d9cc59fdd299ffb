"""EvoNorm-S0 in float32, forward and backward, compiled (arXiv 2004.02967).

Source: docs/reference.md, section 2.

Symbols:
    x: input   y: output   g: gradient at y   gamma, beta, v: scale, shift, gate slope, per channel
    s = sigmoid(v x): gate   mu, r: mean and 1 / sqrt(variance + eps) of a sample's group
    M: entries in a sample's group   p = g (s + v x s (1 - s))
    y = x s r gamma + beta
    g_x = r gamma p - k (x - mu),   k = r^3 / M * sum_group(gamma g x s)
Shapes:
    N: samples   G: groups   K: channels in a group   C = G K   P: pixels   M = K P
    row: some pixels with all of their channels; R = entries of a row, r = number of rows
    Values by channel are repeated to the length of a row, so that inner loops are long even with
    few channels.

A sample is worked on at a time, so that all passes but the first find it in the cache. Memory gives
x once and takes y and s in the forward pass; it gives g, x and s and takes g_x in the backward
pass. Every operation is a single one of float32 in a fixed order: the bits are those of every
processor. Sums go on in float64 after 128 rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.norms.chunk_extremes import pixels_of_a_row
from edgesim.quant.kernels.norms.gates import sigmoid
from edgesim.quant.kernels.norms.rows import add_lanes, repeat

Float64 = NDArray[np.float64]

_MOST_LANES = 128  # of a row: with its sums and parameters it stays in the first-level cache
_MOST_ROWS = 128  # that are summed in float32 before the sums go on in float64
_ONE = np.float32(1)


class Saved(NamedTuple):
    """What the backward pass needs beside x.

    Attributes:
        s: the gate, shape of x.
        mu: of each group, shape (N, G).
        r: of each group, shape (N, G).
    """

    s: Float32
    mu: Float32
    r: Float32


class Gradients(NamedTuple):
    """At the input, shape (N, H, W, C), and at the parameters, shape (C,); float32."""

    x: Float32
    gamma: Float32
    beta: Float32
    v: Float32


class _Rows(NamedTuple):
    """Tensors of a sample as rows, shape (r, R)."""

    x: Float32
    g: Float32
    s: Float32
    g_x: Float32


def evonorm_s0(
    x_NHWC: Float32, gamma: Float32, beta: Float32, v: Float32, groups: int, epsilon: float
) -> tuple[Float32, Saved]:
    """y, shape of x, and what the backward pass needs.

    Args:
        x_NHWC: contiguous.
        gamma: scale, shape (C,), like `beta` and `v`.
        beta: shift.
        v: slope of the gate.
        groups: G, a divisor of C.
        epsilon: added to the variance.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(x_NHWC, gamma, v)
    require("beta", beta, np.float32, gamma.shape)
    y, s = np.empty_like(x_NHWC), np.empty_like(x_NHWC)
    mu, r = np.empty((2, len(x_NHWC), groups), np.float32)
    saved = Saved(s, mu, r)
    _forward(x_NHWC, gamma, beta, v, np.float32(epsilon), y, saved)
    return y, saved


def evonorm_s0_backward(
    x_NHWC: Float32, gamma: Float32, v: Float32, saved: Saved, g_NHWC: Float32
) -> Gradients:
    """Gradients for g.

    Args:
        x_NHWC: of the forward pass, like `gamma` and `v`.
        gamma: scale, shape (C,).
        v: slope of the gate, shape (C,).
        saved: from the forward pass.
        g_NHWC: gradient at y, contiguous.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(x_NHWC, gamma, v)
    require("g", g_NHWC, np.float32, x_NHWC.shape)
    require("s", saved.s, np.float32, x_NHWC.shape)
    g_gamma, g_beta, g_v = np.empty((3, len(v)), np.float32)
    gradients = Gradients(np.empty_like(x_NHWC), g_gamma, g_beta, g_v)
    _backward(x_NHWC, gamma, v, saved, g_NHWC, gradients)
    return gradients


def _check(x_NHWC: Float32, gamma: Float32, v: Float32) -> None:
    require("x", x_NHWC, np.float32, x_NHWC.shape)
    require("gamma", gamma, np.float32, x_NHWC.shape[3:])
    require("v", v, np.float32, x_NHWC.shape[3:])


@inner
def _shape_of_rows(x_NHWC: Float32) -> tuple[int, int, int]:
    N, H, W, C = x_NHWC.shape
    pixels = pixels_of_a_row(H * W, C, _MOST_LANES)
    return N, H * W // pixels, pixels * C


@compiled
def _forward(
    x_NHWC: Float32,
    gamma: Float32,
    beta: Float32,
    v: Float32,
    epsilon: np.float32,
    y_NHWC: Float32,
    saved: Saved,
) -> None:
    shape = _shape_of_rows(x_NHWC)
    x, y, s = x_NHWC.reshape(shape), y_NHWC.reshape(shape), saved.s.reshape(shape)
    N, _, R = shape
    C, G = len(gamma), saved.mu.shape[1]
    M = x_NHWC.size // (N * G) if N else 1
    one, ones = np.ones(1, np.float32), np.ones(C, np.float32)
    v_R, beta_R = np.empty(R, np.float32), np.empty(R, np.float32)
    scale_R, mu_R = np.empty(R, np.float32), np.zeros(R, np.float32)
    lanes_R, sums_C = np.empty(R, np.float32), np.empty(C, np.float64)
    repeat(one, v, v_R)
    repeat(one, beta, beta_R)
    for n in range(N):
        _sum_channels(x[n], lanes_R, sums_C)
        _write_means(sums_C, M, saved.mu[n])
        repeat(saved.mu[n], ones, mu_R)
        # Centred before squaring: E[x^2] - E[x]^2 loses all precision where mu^2 >> variance.
        _sum_squares(x[n], mu_R, lanes_R, sums_C)
        _write_means(sums_C, M, saved.r[n])
        for g in range(G):
            saved.r[n, g] = _ONE / np.sqrt(saved.r[n, g] + epsilon)
        repeat(saved.r[n], gamma, scale_R)
        _write_outputs(x[n], v_R, scale_R, beta_R, s[n], y[n])


@inner
def _sum_channels(x_rR: Float32, lanes_R: Float32, sums_C: Float64) -> None:
    sums_C[:] = 0
    for start in range(0, x_rR.shape[0], _MOST_ROWS):
        lanes_R[:] = 0
        for row in range(start, min(start + _MOST_ROWS, x_rR.shape[0])):
            for i in range(x_rR.shape[1]):
                lanes_R[i] += x_rR[row, i]
        add_lanes(lanes_R, sums_C)


@inner
def _sum_squares(x_rR: Float32, mu_R: Float32, lanes_R: Float32, sums_C: Float64) -> None:
    """Sums of (x - mu)^2."""
    sums_C[:] = 0
    for start in range(0, x_rR.shape[0], _MOST_ROWS):
        lanes_R[:] = 0
        for row in range(start, min(start + _MOST_ROWS, x_rR.shape[0])):
            for i in range(x_rR.shape[1]):
                centred = x_rR[row, i] - mu_R[i]
                lanes_R[i] += centred * centred
        add_lanes(lanes_R, sums_C)


@inner
def _write_means(sums_C: Float64, M: int, means_G: Float32) -> None:
    K = len(sums_C) // len(means_G)
    for g in range(len(means_G)):
        total = 0.0
        for c in range(g * K, (g + 1) * K):
            total += sums_C[c]
        means_G[g] = np.float32(total / M)


@inner
def _write_outputs(
    x_rR: Float32, v_R: Float32, scale_R: Float32, beta_R: Float32, s_rR: Float32, y_rR: Float32
) -> None:
    for row in range(x_rR.shape[0]):
        for i in range(x_rR.shape[1]):
            x = x_rR[row, i]
            s = sigmoid(x * v_R[i])
            s_rR[row, i] = s
            y_rR[row, i] = (x * s) * scale_R[i] + beta_R[i]


@compiled
def _backward(
    x_NHWC: Float32,
    gamma: Float32,
    v: Float32,
    saved: Saved,
    g_NHWC: Float32,
    gradients: Gradients,
) -> None:
    shape = _shape_of_rows(x_NHWC)
    x, g, s = x_NHWC.reshape(shape), g_NHWC.reshape(shape), saved.s.reshape(shape)
    g_x = gradients.x.reshape(shape)
    N, _, R = shape
    C, G = len(gamma), saved.mu.shape[1]
    M = x_NHWC.size // (N * G) if N else 1
    v_R, rows_3R = np.empty(R, np.float32), np.empty((3, R), np.float32)
    lanes_3R, sums_3C = np.empty((3, R), np.float32), np.empty((3, C), np.float64)
    g_parameters_3C, k_G = np.zeros((3, C), np.float64), np.empty(G, np.float32)
    ones = np.ones(C, np.float32)
    repeat(np.ones(1, np.float32), v, v_R)
    for n in range(N):
        rows = _Rows(x[n], g[n], s[n], g_x[n])
        _sum_gradients(rows, v_R, lanes_3R, sums_3C)
        _add_parameter_gradients(sums_3C, gamma, saved.r[n], M, g_parameters_3C, k_G)
        repeat(saved.r[n], gamma, rows_3R[0])
        repeat(k_G, ones, rows_3R[1])
        repeat(saved.mu[n], ones, rows_3R[2])
        _write_input_gradients(rows, rows_3R)
    for c in range(C):
        gradients.gamma[c] = g_parameters_3C[0, c]
        gradients.v[c] = g_parameters_3C[1, c]
        gradients.beta[c] = g_parameters_3C[2, c]


@inner
def _sum_gradients(rows: _Rows, v_R: Float32, lanes_3R: Float32, sums_3C: Float64) -> None:
    """Write p into g_x; sum g x s, g x^2 s (1 - s) and g."""
    num_rows, R = rows.x.shape
    sums_3C[:] = 0
    gxs_R, gxx_R, g_R = lanes_3R[0], lanes_3R[1], lanes_3R[2]
    for start in range(0, num_rows, _MOST_ROWS):
        lanes_3R[:] = 0
        for row in range(start, min(start + _MOST_ROWS, num_rows)):
            for i in range(R):
                x, g, s = rows.x[row, i], rows.g[row, i], rows.s[row, i]
                gs = g * s
                gxs = gs * x
                slope = gxs * (_ONE - s)
                rows.g_x[row, i] = gs + slope * v_R[i]
                gxs_R[i] += gxs
                gxx_R[i] += slope * x
                g_R[i] += g
        for i in range(3):
            add_lanes(lanes_3R[i], sums_3C[i])


@inner
def _add_parameter_gradients(
    sums_3C: Float64,
    gamma: Float32,
    r_G: Float32,
    M: int,
    g_parameters_3C: Float64,
    k_G: Float32,
) -> None:
    """Add a sample's gradients at gamma, v and beta; write the factor k of its groups."""
    K = len(gamma) // len(r_G)
    for g in range(len(r_G)):
        r, total = np.float64(r_G[g]), 0.0
        for c in range(g * K, (g + 1) * K):
            total += sums_3C[0, c] * gamma[c]
            g_parameters_3C[0, c] += sums_3C[0, c] * r
            g_parameters_3C[1, c] += sums_3C[1, c] * (r * gamma[c])
            g_parameters_3C[2, c] += sums_3C[2, c]
        k_G[g] = np.float32(total * (r * r * r) / M)


@inner
def _write_input_gradients(rows: _Rows, rows_3R: Float32) -> None:
    scale_R, k_R, mu_R = rows_3R[0], rows_3R[1], rows_3R[2]
    for row in range(rows.x.shape[0]):
        for i in range(rows.x.shape[1]):
            centred = rows.x[row, i] - mu_R[i]
            rows.g_x[row, i] = rows.g_x[row, i] * scale_R[i] - k_R[i] * centred
