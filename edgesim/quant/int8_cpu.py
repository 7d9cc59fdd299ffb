"""The fast back end: integer products and fused passes on one processor core (`kernels/`).

Integers equal those of the plain back end. Floats differ by rounding, since gradients are summed in
another order. The weight gradient is computed in floats, by torch where torch is faster.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from edgesim.quant.affine import Grid, Quantized, QuantizedRows, QuantizedWeight
from edgesim.quant.arithmetic import (
    Form,
    Geometry,
    Range,
    RangeBatchNormBackward,
    RangeBatchNormForward,
    RangeEvoNormBackward,
    RangeEvoNormForward,
    RangeNormShape,
)
from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.convolution.convolution import Convolution
from edgesim.quant.kernels.convolution.unfolded import UnfoldedConvolution, Window
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.norms import layer_norm, range_batch_norm, range_evonorm
from edgesim.quant.kernels.products import amx, matrix_product
from edgesim.quant.kernels.products.native import dot_product_is_native
from edgesim.quant.kernels.rounding import quantize
from edgesim.quant.kernels.rounding.quantize_rows import quantize_rows
from edgesim.quant.kernels.rounding.quantize_weights import quantize_weights
from edgesim.quant.kernels.weight_gradient.weight_gradient import WeightGradient
from edgesim.quant.range_batch_norm_formulas import chunking
from edgesim.quant.range_evonorm_formulas import EPSILON, kappa
from edgesim.quant.reference import is_linear, weight_gradient

_EvoNormSettings = range_evonorm.Settings
_ONE = np.ones(1, np.float32)
_Layer = tuple[tuple[int, int], torch.Size, Geometry]  # image size, shape of the weights


class Int8Cpu:
    """8-bit arithmetic in integers, for grids whose zero is a code.

    Not for use by two threads at once: tables of positions are made for each new shape.
    """

    name = "int8_cpu"

    def __init__(self) -> None:
        self._convolutions: dict[_Layer, Convolution | UnfoldedConvolution] = {}
        self._weight_gradients: dict[_Layer, WeightGradient | None] = {}
        self._evonorms: dict[tuple[torch.Size, RangeNormShape], _EvoNormSettings] = {}

    @property
    def description(self) -> str:
        """Which products this processor computes, for people."""
        products = "byte dot products" if dot_product_is_native() else "16-bit multiply-adds"
        if amx.is_native():
            products = "matrix tiles and byte dot products"
        return f"numba kernels: {products}, 32-bit sums"

    def sample_range(self, x_NHWC: Tensor) -> Range:
        """Mean over samples of their minima, and of their maxima."""
        low, high = quantize.sample_range(x_NHWC.numpy()).tolist()
        return low, high

    def full_range(self, x: Tensor) -> Range:
        """Minimum and maximum."""
        low, high = quantize.full_range(x.detach().numpy()).tolist()
        return low, high

    def quantize(self, x: Tensor, grid: Grid, seed: int | None) -> Tensor:
        """Codes."""
        codes = np.empty(x.shape, np.uint8)
        if seed is None:
            quantize.quantize_nearest(x.numpy(), _array(grid), codes)
        else:
            quantize.quantize_stochastic(x.numpy(), _array(grid), seed, codes)
        return torch.from_numpy(codes)

    def quantize_by_samples(self, x_NHWC: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        """Codes of x on the grid of its `sample_range`, and that range."""
        codes = np.empty(x_NHWC.shape, np.uint8)
        return _quantized(codes, quantize.quantize_by_samples(x_NHWC.numpy(), seed, codes))

    def quantize_whole(self, x: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        """Codes of x on the grid of its `full_range`, and that range."""
        codes = np.empty(x.shape, np.uint8)
        return _quantized(codes, quantize.quantize_whole(x.numpy(), seed, codes))

    def quantize_by_rows(self, x: Tensor, seed: int | None) -> tuple[QuantizedRows, Range]:
        """Codes of each row on the grid of its extremes, and the `full_range`."""
        rows = x.flatten(0, -2).numpy()
        codes, grids = np.empty(rows.shape, np.uint8), np.empty((len(rows), 3), np.float32)
        low, high = quantize_rows(rows, seed, codes, grids)
        return QuantizedRows(torch.from_numpy(codes), torch.from_numpy(grids)), (low, high)

    def requantize_whole(self, x: Tensor, seed: int | None) -> tuple[Tensor, Range]:
        """`x` rounded by `quantize_whole` and dequantized, and its range."""
        values = np.empty(x.shape, np.float32)
        found = quantize.requantize_whole(x.detach().numpy(), seed, values)
        return torch.from_numpy(values), found[:2]

    def requantize_parameters(
        self, parameters: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Range, ...]]:
        """`requantize_whole` to nearest, for each of several parameters of one shape."""
        values = torch.stack(parameters).detach()
        found = quantize.requantize_rows(values.numpy()).tolist()
        return values.unbind(), tuple((low, high) for low, high, _, _ in found)

    def quantize_weight(self, weight_OIhw: Tensor, *, per_out_channel: bool) -> QuantizedWeight:
        """Codes of a weight tensor, symmetric, channels_last in memory."""
        weights = weight_OIhw.detach().contiguous().numpy()
        codes, scales = quantize_weights(weights, per_out_channel=per_out_channel)
        return QuantizedWeight(torch.from_numpy(codes), torch.from_numpy(scales), None)

    def residual_sum(
        self, a: Tensor, a_grid: Grid, b: Tensor, b_grid: Grid, seeds: tuple[int, int] | None
    ) -> Tensor:
        """Sum of the numbers of the codes of a and b."""
        y = np.empty(a.shape, np.float32)
        operands = (a.numpy(), b.numpy(), _array(a_grid), _array(b_grid))
        if seeds is None:
            quantize.residual_sum(*operands, y)
        else:
            quantize.residual_sum_stochastic(*operands, seeds, y)
        return torch.from_numpy(y)

    def convolve(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        weight: QuantizedWeight,
        bias: Tensor | None,
        geometry: Geometry,
    ) -> Tensor:
        """Convolution of the dequantized input and weights."""
        samples, height, width, _ = codes_NHWC.shape
        convolution = self._convolution((height, width), weight, geometry)
        out_size = geometry.out_size((height, width))
        y = np.empty((samples, *out_size, len(weight.codes)), np.float32)
        convolution.convolve(
            codes_NHWC.numpy(),
            int(grid.zero_point),
            grid.scale,
            weight.codes.numpy(),
            weight.scales.numpy(),
            None if bias is None else bias.numpy(),
            y,
        )
        return torch.from_numpy(y)

    def input_gradient(
        self,
        codes_NHWO: Tensor,
        grid: Grid,
        weight: QuantizedWeight,
        geometry: Geometry,
        input_size: tuple[int, int],
    ) -> Tensor:
        """Gradient at the input for a quantized gradient at the output."""
        convolution = self._convolution(input_size, weight, geometry)
        channels = weight.codes.shape[1] * geometry.groups
        g_x = np.empty((len(codes_NHWO), *input_size, channels), np.float32)
        convolution.input_gradient(
            codes_NHWO.numpy(),
            int(grid.zero_point),
            grid.scale,
            weight.codes.numpy(),
            weight.scales.numpy() if weight.scales.numel() == 1 else _ONE,
            g_x,
        )
        return torch.from_numpy(g_x)

    def weight_gradient(
        self, codes_NHWC: Tensor, grid: Grid, g_NHWO: Tensor, weight: Tensor, geometry: Geometry
    ) -> Tensor:
        """Gradient at the weights."""
        layer = (codes_NHWC.shape[1], codes_NHWC.shape[2]), weight.shape, geometry
        if layer not in self._weight_gradients:
            self._weight_gradients[layer] = None
            if geometry.is_square and not is_linear(codes_NHWC, geometry):
                shape = _shape(*layer)
                if WeightGradient.suits(shape):
                    self._weight_gradients[layer] = WeightGradient(shape)
        kernel = self._weight_gradients[layer]
        if kernel is None:
            centered = torch.empty(codes_NHWC.shape)
            whole_steps = np.array([1.0, grid.zero_point], np.float32)
            quantize.dequantize(codes_NHWC.numpy(), whole_steps, centered.numpy())
            return weight_gradient(centered, g_NHWO, weight.shape, geometry).mul_(grid.scale)
        g_weight = np.empty(weight.shape, np.float32)
        kernel.compute(
            codes_NHWC.numpy(),
            int(grid.zero_point),
            grid.scale,
            g_NHWO.numpy(),
            g_weight,
        )
        return torch.from_numpy(g_weight)

    def range_evonorm(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        v: Tensor,
        gamma: Tensor,
        beta: Tensor,
        shape: RangeNormShape,
    ) -> RangeEvoNormForward:
        """Range EvoNorm with hard sigmoid and quantized scale."""
        y, scales = range_evonorm.range_evonorm(
            codes_NHWC.numpy(),
            _array(grid),
            v.numpy(),
            gamma.numpy(),
            beta.numpy(),
            self._evonorm(codes_NHWC, shape),
        )
        saved = (torch.from_numpy(scales.s), torch.from_numpy(scales.s_hat))
        return RangeEvoNormForward(torch.from_numpy(y), saved)

    def range_evonorm_backward(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        v: Tensor,
        gamma: Tensor,
        shape: RangeNormShape,
        saved: tuple[Tensor, ...],
        g: Quantized,
    ) -> RangeEvoNormBackward:
        """Gradients for g."""
        s, s_hat = (scale.numpy() for scale in saved)
        gradients = range_evonorm.range_evonorm_backward(
            codes_NHWC.numpy(),
            _array(grid),
            v.numpy(),
            gamma.numpy(),
            self._evonorm(codes_NHWC, shape),
            range_evonorm.Scales(s, s_hat),
            g.codes.numpy(),
            _array(g.grid),
        )
        return RangeEvoNormBackward(
            x=torch.from_numpy(gradients.x),
            v=torch.from_numpy(gradients.v),
            gamma=torch.from_numpy(gradients.gamma),
            beta=torch.from_numpy(gradients.beta),
        )

    def range_batch_norm(
        self, codes_NHWC: Tensor, grid: Grid, gamma: Tensor, beta: Tensor
    ) -> RangeBatchNormForward:
        """Range BatchNorm of a batch with quantized scale, then ReLU."""
        codes = codes_NHWC.numpy()
        moments = range_batch_norm.batch_moments(codes, _array(grid), _batch_settings(codes_NHWC))
        y = range_batch_norm.range_batch_norm(
            codes, _array(grid), moments, gamma.numpy(), beta.numpy()
        )
        mean, s, s_hat = map(torch.from_numpy, (moments.mean, moments.s, moments.s_hat))
        return RangeBatchNormForward(torch.from_numpy(y), mean, s, (mean, s, s_hat))

    def range_batch_norm_backward(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        gamma: Tensor,
        beta: Tensor,
        saved: tuple[Tensor, ...],
        g: Quantized,
    ) -> RangeBatchNormBackward:
        """Gradients for g."""
        mean, s, s_hat = (moment.numpy() for moment in saved)
        gradients = range_batch_norm.range_batch_norm_backward(
            codes_NHWC.numpy(),
            _array(grid),
            range_batch_norm.Moments(mean, s, s_hat),
            gamma.numpy(),
            beta.numpy(),
            _batch_settings(codes_NHWC),
            g.codes.numpy(),
            _array(g.grid),
        )
        return RangeBatchNormBackward(
            x=torch.from_numpy(gradients.x),
            gamma=torch.from_numpy(gradients.gamma),
            beta=torch.from_numpy(gradients.beta),
        )

    def multiply(self, a: Quantized, b: Quantized, form: Form) -> Tensor:
        """Product of matrices of numbers of codes."""
        outer = a.codes.shape[:-2]
        p, q = (x.codes.numpy().reshape(-1, *x.codes.shape[-2:]) for x in (a, b))
        rows = p.shape[2] if form == "columns" else p.shape[1]
        columns = q.shape[1] if form == "rows" else q.shape[2]
        out = np.empty((len(p), rows, columns), np.float32)
        zero_points = int(a.grid.zero_point), int(b.grid.zero_point)
        scale = np.float32(a.grid.scale) * np.float32(b.grid.scale)
        matrix_product.multiply(p, q, zero_points, scale, form, out)
        return torch.from_numpy(out).view(*outer, rows, columns)

    def layer_norm(
        self, x: Quantized, gamma: Tensor, beta: Tensor, epsilon: float
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Layer norm over the last axis with quantized scale."""
        codes, grid = x.codes.numpy().reshape(-1, x.codes.shape[-1]), _array(x.grid)
        mean, r = layer_norm.moments(codes, grid, epsilon)
        r_hat = np.empty_like(r)
        quantize.requantize_whole(r, None, r_hat)
        y = layer_norm.layer_norm(codes, grid, (mean, r_hat), (gamma.numpy(), beta.numpy()))
        saved = tuple(torch.from_numpy(row) for row in (mean, r, r_hat))
        return torch.from_numpy(y).view(x.codes.shape), saved

    def layer_norm_backward(
        self, x: Quantized, gamma: Tensor, saved: tuple[Tensor, ...], g: QuantizedRows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients for g."""
        codes = x.codes.numpy().reshape(-1, x.codes.shape[-1])
        mean, r, r_hat = (row.numpy() for row in saved)
        gradients = layer_norm.layer_norm_backward(
            codes,
            _array(x.grid),
            gamma.numpy(),
            (mean, r, r_hat),
            g.codes.numpy(),
            g.grids.numpy(),
        )
        g_x, g_gamma, g_beta = map(torch.from_numpy, gradients)
        return g_x.view(x.codes.shape), g_gamma, g_beta

    def _convolution(
        self, input_size: tuple[int, int], weight: QuantizedWeight, geometry: Geometry
    ) -> Convolution | UnfoldedConvolution:
        layer = input_size, weight.codes.shape, geometry
        if layer not in self._convolutions:
            self._convolutions[layer] = (
                Convolution(_shape(*layer))
                if geometry.is_square
                else UnfoldedConvolution(_window(*layer))
            )
        return self._convolutions[layer]

    def _evonorm(self, codes_NHWC: Tensor, shape: RangeNormShape) -> _EvoNormSettings:
        place = codes_NHWC.shape[1:], shape
        if place not in self._evonorms:
            entries = codes_NHWC[0].numel() // shape.groups // shape.chunks
            self._evonorms[place] = _EvoNormSettings(
                groups=shape.groups, chunks=shape.chunks, kappa=kappa(entries), epsilon=EPSILON
            )
        return self._evonorms[place]


def _shape(
    input_size: tuple[int, int], weight_shape: torch.Size, geometry: Geometry
) -> ConvolutionShape:
    out_channels, channels_of_group = weight_shape[:2]
    return ConvolutionShape(
        channels=channels_of_group * geometry.groups,
        out_channels=out_channels,
        height=input_size[0],
        width=input_size[1],
        kernel=geometry.kernel[0],
        stride=geometry.stride[0],
        padding=geometry.padding[0],
        groups=geometry.groups,
    )


def _window(input_size: tuple[int, int], weight_shape: torch.Size, geometry: Geometry) -> Window:
    out_channels, channels_of_group = weight_shape[:2]
    return Window(
        channels=channels_of_group * geometry.groups,
        out_channels=out_channels,
        size=input_size,
        out_size=geometry.out_size(input_size),
        kernel=geometry.kernel,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        groups=geometry.groups,
    )


def _quantized(codes: UInt8, found: quantize.Found) -> tuple[Quantized, Range]:
    """A `Quantized` and its range, from the four numbers that kernels return."""
    low, high, scale, zero_point = found
    return Quantized(torch.from_numpy(codes), Grid(scale, zero_point, 0.0)), (low, high)


def _array(grid: Grid) -> Float32:
    """A grid as the array that kernels take."""
    return np.array([grid.scale, grid.zero_point], np.float32)


def _batch_settings(codes_NHWC: Tensor) -> range_batch_norm.Settings:
    chunks, entries = chunking(codes_NHWC[..., 0].numel())
    return range_batch_norm.Settings(chunks=chunks, kappa=kappa(entries), epsilon=EPSILON)
