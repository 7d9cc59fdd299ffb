"""The arithmetic of 8 bits written out in numpy, for tests: floats where edgesim uses floats, but
sums of products in int64.

Symbols: as in edgesim.quant.affine; k: codes of weights   A grid is (scale, zero_point, offset).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from edgesim.assembly.build import quantization_settings
from edgesim.quant import autograd
from edgesim.quant.affine import Grid, Quantized
from edgesim.quant.layer_step import LayerStep
from edgesim.quant.reference import Reference
from edgesim.quant.settings import QuantizationSettings

F = np.float32
MASK, MASK_64 = 2**32 - 1, 2**64 - 1


def lowbias32(x: int) -> int:
    """The hash, in whole numbers without bound."""
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def splitmix64(x: int) -> int:
    """The finalizer of SplitMix64, in whole numbers without bound."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK_64
    return x ^ x >> 31


def place_seed(seed: int, *places: int) -> int:
    """Seed of a place under a seed, both of 64 bits."""
    state = splitmix64(seed)
    for place in places:
        state = splitmix64(state + (place + 1) * 0x9E3779B97F4A7C15 & MASK_64)
    return state


def noise(num_entries: int, seed: int) -> np.ndarray:
    """Noise of every entry: the low halves of all hashes, then their high halves."""
    half = -(-num_entries // 2)
    first, step = seed % 2**32, seed // 2**32 | 1
    words = [lowbias32(i * step + first & MASK) for i in range(half)]
    parts = [word % 65536 for word in words] + [word // 65536 for word in words]
    return ((np.array(parts[:num_entries], dtype=np.float64)) / 65536).astype(F)


def grid_of(low: float, high: float, *, has_integer_zero: bool = True) -> Grid:
    """Grid of a range: R's, or the one widened to hold zero."""
    lo, hi = F(low), F(high)
    if not has_integer_zero:
        return Grid(float(max((hi - lo) / F(255), F(1e-8))), 0.0, float(lo))
    lo, hi = min(lo, F(0)), max(hi, F(0))
    scale = max((hi - lo) / F(255), F(1e-30))
    return Grid(float(scale), float(np.clip(np.rint(-lo * (F(1) / scale)), 0, 255)), 0.0)


def codes_of(x: np.ndarray, grid: Grid, seed: int | None = None) -> np.ndarray:
    """Codes as int64, each operation in float32."""
    inverse = F(1) / F(grid.scale)
    steps = (x - F(grid.offset)) * inverse + F(grid.zero_point)
    if seed is None:
        return np.clip(np.rint(steps), 0, 255).astype(np.int64)
    u = noise(x.size, seed).reshape(x.shape)
    return np.clip(np.floor(steps + u), 0, 255).astype(np.int64)


def numbers_of(codes: np.ndarray, grid: Grid) -> np.ndarray:
    """What codes stand for, float32."""
    return (codes.astype(F) - F(grid.zero_point)) * F(grid.scale) + F(grid.offset)


def rounded(x: np.ndarray, *, has_integer_zero: bool = True) -> np.ndarray:
    """A tensor by way of 8 bits on the grid of its extremes, to nearest."""
    grid = grid_of(x.min(), x.max(), has_integer_zero=has_integer_zero)
    return numbers_of(codes_of(x, grid), grid)


def weight_codes(w: np.ndarray, *, per_out_channel: bool) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric codes of weights, int64 in [-127, 127], and their scales, shape (1,) or (O,)."""
    largest = np.abs(w).reshape(len(w) if per_out_channel else 1, -1).max(1)
    scales = np.maximum(largest / F(127), F(1e-8))
    steps = np.rint(w * (F(1) / scales).reshape(-1, 1, 1, 1))
    return np.clip(steps, -127, 127).astype(np.int64), scales


def taps(k_OIhw, x_padded_NHWC, out_size, geometry):
    """For each entry of the kernel and each group: its weights, its pixels, channels in and out."""
    channels_out, per_group_in, height, width = k_OIhw.shape
    per_group_out = channels_out // geometry.groups
    for row in range(height):
        for column in range(width):
            rows, columns = (
                slice(first, first + stride * (outs - 1) + 1, stride)
                for first, stride, outs in zip(
                    (row * geometry.dilation[0], column * geometry.dilation[1]),
                    geometry.stride,
                    out_size,
                    strict=True,
                )
            )
            for group in range(geometry.groups):
                outs = slice(group * per_group_out, (group + 1) * per_group_out)
                ins = slice(group * per_group_in, (group + 1) * per_group_in)
                pixels = x_padded_NHWC[:, rows, columns, ins]
                yield k_OIhw[outs, :, row, column], pixels, outs


def out_size(height: int, width: int, geometry) -> tuple[int, int]:
    """Height and width of what a convolution gives."""
    kernel, stride, padding, dilation, _ = geometry
    return tuple(
        (side + 2 * p - d * (k - 1) - 1) // s + 1
        for side, k, s, p, d in zip((height, width), kernel, stride, padding, dilation, strict=True)
    )


def padded(x_NHWC: np.ndarray, geometry) -> np.ndarray:
    """With zeros around the image."""
    rows, columns = geometry.padding
    return np.pad(x_NHWC, ((0, 0), (rows, rows), (columns, columns), (0, 0)))


def convolution(x_NHWC: np.ndarray, k_OIhw: np.ndarray, geometry) -> np.ndarray:
    """Sums of products, NHWO, in the type of the factors."""
    size = out_size(*x_NHWC.shape[1:3], geometry)
    y = np.zeros((len(x_NHWC), *size, len(k_OIhw)), x_NHWC.dtype)
    for k_OI, pixels, outs in taps(k_OIhw, padded(x_NHWC, geometry), size, geometry):
        y[..., outs] += pixels @ k_OI.T
    return y


def input_gradient(g_NHWO, k_OIhw, geometry, input_size) -> np.ndarray:
    """Its transpose: what each pixel was multiplied with, NHWC."""
    channels = k_OIhw.shape[1] * geometry.groups
    g_x = padded(np.zeros((len(g_NHWO), *input_size, channels), g_NHWO.dtype), geometry)
    for k_OI, pixels, outs in taps(k_OIhw, g_x, g_NHWO.shape[1:3], geometry):
        pixels += g_NHWO[..., outs] @ k_OI  # a view of g_x
    top, left = geometry.padding
    return g_x[:, top : top + input_size[0], left : left + input_size[1]]


def weight_gradient(x_NHWC, g_NHWO, geometry, shape) -> np.ndarray:
    """Sums over samples and pixels, in the type of the factors."""
    g_w = np.zeros(shape, x_NHWC.dtype)
    taps_of_g_w = taps(g_w, padded(x_NHWC, geometry), g_NHWO.shape[1:3], geometry)
    for g_w_OI, pixels, outs in taps_of_g_w:
        g_w_OI += np.einsum("nhwo,nhwi->oi", g_NHWO[..., outs], pixels)
    return g_w


def settings(**changes) -> QuantizationSettings:
    """Edgesim's defaults, with changes."""
    return replace(quantization_settings(), **changes)


def step(seed: int = 0, **changes) -> LayerStep:
    """A layer in training by the reference back end."""
    chosen = settings(**changes)
    arithmetic = Reference(has_integer_zero=chosen.has_integer_zero)
    return LayerStep(arithmetic, chosen, layer="layer", seed=seed, training=True)


def coded(x_NCHW: torch.Tensor, grid: Grid, step: LayerStep) -> Quantized:
    """The input of a layer in 8 bits, by its back end, on a grid that need not be the input's."""
    x_NHWC = autograd.rows(x_NCHW.detach())
    return Quantized(step.arithmetic.quantize(x_NHWC, grid, step.activation_seed), grid)
