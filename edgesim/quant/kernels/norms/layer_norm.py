"""Layer norms of codes and their gradients, compiled, one thread.

Source: `layer_norm_formulas.py`, whose symbols are used here. Sums over a row are taken in an order
that the compiler chooses, so floats differ from those of torch by rounding.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.checks import require

_ANY_ORDER = {"reassoc", "nsz"}  # of sums over a row


def moments(codes_RC: UInt8, grid: Float32, epsilon: float) -> tuple[Float32, Float32]:
    """The mean of each row of codes, zero point left out, and r; shape (R,).

    Args:
        codes_RC: contiguous.
        grid: scale and zero point.
        epsilon: eps.
    """
    require("codes", codes_RC, np.uint8, codes_RC.shape)
    mean, r = np.empty((2, len(codes_RC)), np.float32)
    _moments(codes_RC, int(grid[1]), float(grid[0]), epsilon, mean, r)
    return mean, r


def layer_norm(
    codes_RC: UInt8,
    grid: Float32,
    rows: tuple[Float32, Float32],
    parameters: tuple[Float32, Float32],
) -> Float32:
    """The result y, of the rows' mean and r^, and of gamma and beta."""
    y_RC = np.empty(codes_RC.shape, np.float32)
    _normalise(codes_RC, grid, *rows, *parameters, y_RC)
    return y_RC


def layer_norm_backward(
    codes_RC: UInt8,
    grid: Float32,
    gamma: Float32,
    rows: tuple[Float32, Float32, Float32],
    g_codes_RC: UInt8,
    g_grids_R3: Float32,
) -> tuple[Float32, Float32, Float32]:
    """Gradients at x, gamma and beta; `rows` has mean, r and r^, a row of grids that of g's row."""
    require("the gradient", g_codes_RC, np.uint8, codes_RC.shape)
    require("grids", g_grids_R3, np.float32, (len(codes_RC), 3))
    g_x = np.empty(codes_RC.shape, np.float32)
    g_gamma, g_beta = np.zeros((2, codes_RC.shape[1]), np.float32)
    _backward(codes_RC, grid, gamma, *rows, g_codes_RC, g_grids_R3, g_x, g_gamma, g_beta)
    return g_x, g_gamma, g_beta


@compiled
def _moments(
    codes_RC: UInt8, zero_point: int, scale: float, epsilon: float, mean: Float32, r: Float32
) -> None:
    count = codes_RC.shape[1]
    for row in range(len(codes_RC)):
        total = squares = np.int64(0)
        for i in range(count):
            q = np.int64(codes_RC[row, i]) - zero_point
            total += q
            squares += q * q
        var = float(squares * count - total * total) / (float(count) * float(count))
        mean[row] = total / count
        r[row] = 1.0 / np.sqrt(var * scale**2 + epsilon)


@compiled
def _normalise(
    codes_RC: UInt8,
    grid: Float32,
    mean: Float32,
    r_hat: Float32,
    gamma: Float32,
    beta: Float32,
    y_RC: Float32,
) -> None:
    scale, zero_point = grid[0], grid[1]
    for row in range(len(codes_RC)):
        offset, factor = zero_point + mean[row], r_hat[row] * scale
        for i in range(codes_RC.shape[1]):
            n = (np.float32(codes_RC[row, i]) - offset) * factor
            y_RC[row, i] = n * gamma[i] + beta[i]


@partial(compiled, fastmath=_ANY_ORDER)
def _backward(
    codes_RC: UInt8,
    grid: Float32,
    gamma: Float32,
    mean: Float32,
    r: Float32,
    r_hat: Float32,
    g_codes_RC: UInt8,
    g_grids_R3: Float32,
    g_x: Float32,
    g_gamma: Float32,
    g_beta: Float32,
) -> None:
    scale, zero_point = grid[0], grid[1]
    count = codes_RC.shape[1]
    for row in range(len(codes_RC)):
        offset = zero_point + mean[row]
        g_scale, g_zero_point = g_grids_R3[row, 0], g_grids_R3[row, 1]
        h_sum = h_x_sum = np.float32(0)
        for i in range(count):
            g = (np.float32(g_codes_RC[row, i]) - g_zero_point) * g_scale
            x_c = (np.float32(codes_RC[row, i]) - offset) * scale
            g_gamma[i] += g * (x_c * r_hat[row])
            g_beta[i] += g
            h = g * gamma[i]
            h_sum += h
            h_x_sum += h * x_c
        h_mean, factor = h_sum / np.float32(count), r[row] ** 3 * (h_x_sum / np.float32(count))
        for i in range(count):
            g = (np.float32(g_codes_RC[row, i]) - g_zero_point) * g_scale
            x_c = (np.float32(codes_RC[row, i]) - offset) * scale
            g_x[row, i] = (g * gamma[i] - h_mean) * r_hat[row] - x_c * factor
