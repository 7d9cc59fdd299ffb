"""Range EvoNorm on 8-bit codes, forward and backward, compiled (arXiv 2111.09389, Eq. 2).

Source: docs/reference.md, section 2.

Symbols:
    q: code of an entry   x = (q - z) scale: its number   g: gradient at y, from its own codes
    v, gamma, beta: slope of the gate, scale, shift, per channel, as they are used
    t = x v / 6 + 1/2   h = clip(t, 0, 1): gate   n = x h
    R: mean range of a group's chunks   s = 1 / (kappa R + eps)   s_hat: s, 8-bit
    y = n s_hat gamma + beta
Shapes:
    N: samples   P: pixels   G: groups   K: channels in a group   C = G K   J: chunks of a group

Forward results are those of float32 operations one by one, in the order of the formulas.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Codes, Float32, Int64, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.norms.chunk_extremes import pixels_of_a_row, write_chunk_extremes
from edgesim.quant.kernels.norms.range_evonorm_passes import (
    Factors,
    add_range_gradients,
    backward_but_ranges,
    normalize,
    write_scales,
)
from edgesim.quant.kernels.rounding.quantize import requantize_found

_MOST_LANES = 128  # of a row: with its sums and parameters it stays in the first-level cache


class Settings(NamedTuple):
    """Constants of a layer.

    Attributes:
        groups: G.
        chunks: J, a divisor of the entries of a sample's group.
        kappa: ratio of deviation to mean range for chunks of that size.
        epsilon: keeps s finite.
    """

    groups: int
    chunks: int
    kappa: float
    epsilon: float


class Scales(NamedTuple):
    """s and s_hat, float32, shape (N, G): what the backward pass needs beside the codes."""

    s: Float32
    s_hat: Float32


class Gradients(NamedTuple):
    """At the input, shape (N, H, W, C), and at the parameters, shape (C,); float32."""

    x: Float32
    v: Float32
    gamma: Float32
    beta: Float32


def range_evonorm(
    codes_NHWC: UInt8,
    grid: Float32,
    v: Float32,
    gamma: Float32,
    beta: Float32,
    settings: Settings,
) -> tuple[Float32, Scales]:
    """y, float32 NHWC, and the scales.

    Args:
        codes_NHWC: contiguous.
        grid: of the codes.
        v: as used, like gamma and beta, shape (C,).
        gamma: as used.
        beta: as used.
        settings: of the layer.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(codes_NHWC, v, gamma)
    require("beta", beta, np.float32, v.shape)
    s = np.empty((len(codes_NHWC), settings.groups), np.float32)
    s_hat, y = np.empty_like(s), np.empty(codes_NHWC.shape, np.float32)
    scales = Scales(s, s_hat)
    _forward(Codes(codes_NHWC, grid), v, gamma, beta, settings, scales, y)
    return y, scales


def range_evonorm_backward(
    codes_NHWC: UInt8,
    grid: Float32,
    v: Float32,
    gamma: Float32,
    settings: Settings,
    scales: Scales,
    g_codes_NHWC: UInt8,
    g_grid: Float32,
) -> Gradients:
    """Gradients for g; straight through the rounding of the scales.

    A chunk's range depends on its first maximum and its first minimum in (channel, pixel) order.

    Args:
        codes_NHWC: of the forward pass, like `grid`, `v`, `gamma` and `settings`.
        grid: of the codes.
        v: as used, shape (C,).
        gamma: as used, shape (C,).
        settings: of the layer.
        scales: from the forward pass.
        g_codes_NHWC: of the gradient at y, contiguous.
        g_grid: of these codes.

    Raises:
        KernelError: an array is of another kind.
    """
    _check(codes_NHWC, v, gamma)
    require("codes of g", g_codes_NHWC, np.uint8, codes_NHWC.shape)
    g_v, g_gamma, g_beta = np.empty((3, len(v)), np.float32)
    gradients = Gradients(np.empty(codes_NHWC.shape, np.float32), g_v, g_gamma, g_beta)
    x, g = Codes(codes_NHWC, grid), Codes(g_codes_NHWC, g_grid)
    _backward(x, g, v, gamma, settings, scales, gradients)
    return gradients


def _check(codes_NHWC: UInt8, v: Float32, gamma: Float32) -> None:
    require("codes", codes_NHWC, np.uint8, codes_NHWC.shape)
    require("v", v, np.float32, codes_NHWC.shape[3:])
    require("gamma", gamma, np.float32, codes_NHWC.shape[3:])


@compiled
def _rows(codes_NHWC: UInt8) -> tuple[int, int, int]:
    """Shape of the codes as rows of each sample."""
    N, H, W, C = codes_NHWC.shape
    pixels = pixels_of_a_row(H * W, C, _MOST_LANES)
    return N, H * W // pixels, pixels * C


@compiled
def _extremes(codes_NHWC: UInt8, groups: int, chunks: int) -> tuple[Int64, Int64]:
    N, H, W, C = codes_NHWC.shape
    lowest = np.empty((N, groups, chunks), np.int64)
    highest = np.empty((N, groups, chunks), np.int64)
    write_chunk_extremes(codes_NHWC.reshape(N, H * W, C), lowest, highest)
    return lowest, highest


@compiled
def _forward(
    x: Codes,
    v: Float32,
    gamma: Float32,
    beta: Float32,
    settings: Settings,
    scales: Scales,
    y_NHWC: Float32,
) -> None:
    lowest, highest = _extremes(x.values, settings.groups, settings.chunks)
    kappa, epsilon = np.float32(settings.kappa), np.float32(settings.epsilon)
    write_scales(lowest, highest, x.grid, kappa, epsilon, scales.s)
    found = np.empty(4, np.float32)
    s, s_hat = scales.s.reshape(-1), scales.s_hat.reshape(-1)
    requantize_found(s, False, np.uint64(0), found, s_hat)
    rows = _rows(x.values)
    of_rows = Codes(x.values.reshape(rows), x.grid)
    normalize(of_rows, v, gamma, beta, scales.s_hat, y_NHWC.reshape(rows))


@compiled
def _backward(
    x: Codes,
    g: Codes,
    v: Float32,
    gamma: Float32,
    settings: Settings,
    scales: Scales,
    gradients: Gradients,
) -> None:
    (N, G), C = scales.s.shape, len(v)
    g_s_hat, g_parameters = np.empty((N, G)), np.zeros((3, C))
    rows = _rows(x.values)
    backward_but_ranges(
        Codes(x.values.reshape(rows), x.grid),
        Codes(g.values.reshape(rows), g.grid),
        Factors(v, gamma, gamma * g.grid[0], scales.s_hat),
        gradients.x.reshape(rows),
        g_parameters,
        g_s_hat,
    )
    g_R = g_s_hat * scales.s * scales.s * (-settings.kappa / settings.chunks)
    lowest, highest = _extremes(x.values, G, settings.chunks)
    add_range_gradients(g_R, lowest, highest, gradients.x.reshape(N, -1), C)
    for c in range(C):
        gradients.v[c] = g_parameters[0, c]
        gradients.gamma[c] = g_parameters[1, c]
        gradients.beta[c] = g_parameters[2, c]
