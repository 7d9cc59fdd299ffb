"""The plain back end: torch operations on whole numbers held in float32, on CPU and CUDA.

Every other back end is compared with this one; its speed is that of "fake quantization". Sums of
products of codes are whole numbers; float32 holds them exactly up to 2^24, in any order of
summation. With the largest codes, sums exceed 2^24 from 64 channels with 3x3 kernels on; such sums
may be rounded, with a relative error of 2^-24. (A GPU must not round the factors: `open_device`
switches TF32 off.)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

from edgesim.quant import layer_norm_formulas as layer_norm
from edgesim.quant import range_batch_norm_formulas as range_batch_norm
from edgesim.quant import range_evonorm_formulas as range_evonorm
from edgesim.quant.affine import (
    LARGEST_RANGE,
    Grid,
    Quantized,
    QuantizedRows,
    QuantizedWeight,
    grid_of,
    quantize_rows,
    quantize_weight,
)
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


class Reference:
    """8-bit arithmetic in plain torch operations.

    Args:
        has_integer_zero: also of the grid on which norms round their scales.
    """

    name = "reference"
    description = "torch operations on whole numbers in float32"

    def __init__(self, *, has_integer_zero: bool) -> None:
        self._has_integer_zero = has_integer_zero

    def sample_range(self, x_NHWC: Tensor) -> Range:
        """Mean over samples of their minima, and of their maxima."""
        lows, highs = torch.aminmax(x_NHWC.flatten(1), dim=1)
        means = torch.stack([lows, highs]).mean(1, dtype=torch.float64).to(torch.float32)
        low, high = means.tolist()
        return low, high

    def full_range(self, x: Tensor) -> Range:
        """Minimum and maximum."""
        low, high = torch.stack(torch.aminmax(x)).tolist()
        return low, high

    def quantize(self, x: Tensor, grid: Grid, seed: int | None) -> Tensor:
        """Codes."""
        return grid.quantize(x, seed)

    def quantize_by_samples(self, x_NHWC: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        """Codes of x on the grid of its `sample_range`, and that range."""
        return self._quantize_in(self.sample_range(x_NHWC), x_NHWC, seed)

    def quantize_whole(self, x: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        """Codes of x on the grid of its `full_range`, and that range."""
        return self._quantize_in(self.full_range(x), x, seed)

    def quantize_by_rows(self, x: Tensor, seed: int | None) -> tuple[QuantizedRows, Range]:
        """Codes of each row on the grid of its extremes, and the `full_range`."""
        rows = quantize_rows(x.flatten(0, -2), seed, has_integer_zero=self._has_integer_zero)
        return rows, self.full_range(x)

    def requantize_whole(self, x: Tensor, seed: int | None) -> tuple[Tensor, Range]:
        """`x` rounded by `quantize_whole` and dequantized, and its range."""
        quantized, extremes = self.quantize_whole(x, seed)
        return quantized.grid.dequantize(quantized.codes), extremes

    def requantize_parameters(
        self, parameters: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Range, ...]]:
        """`requantize_whole` to nearest, for each of several parameters of one shape."""
        values, ranges = zip(*(self.requantize_whole(p, None) for p in parameters), strict=True)
        return values, ranges

    def quantize_weight(self, weight_OIhw: Tensor, *, per_out_channel: bool) -> QuantizedWeight:
        """Codes of a weight tensor."""
        return quantize_weight(
            weight_OIhw,
            per_out_channel=per_out_channel,
            has_integer_zero=self._has_integer_zero,
        )

    def residual_sum(
        self, a: Tensor, a_grid: Grid, b: Tensor, b_grid: Grid, seeds: tuple[int, int] | None
    ) -> Tensor:
        """Sum of the numbers of the codes of a and b."""
        a_seed, b_seed = seeds or (None, None)
        a_hat = a_grid.dequantize(a_grid.quantize(a, a_seed))
        return a_hat + b_grid.dequantize(b_grid.quantize(b, b_seed))

    def convolve(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        weight: QuantizedWeight,
        bias: Tensor | None,
        geometry: Geometry,
    ) -> Tensor:
        """Convolution of the dequantized input and weights."""
        x_NCHW = _images(grid.centered(codes_NHWC))
        if x_NCHW.shape[1] == 1 and geometry.stride[0] != geometry.stride[1]:
            # With the strides of channels_last, torch 2.13 on one thread gives wrong sums for some
            # kernels whose strides differ.
            x_NCHW = x_NCHW.reshape(-1).view(x_NCHW.shape)
        sums_NCHW = functional.conv2d(
            x_NCHW,
            _images_of_weight(weight),
            None,
            geometry.stride,
            geometry.padding,
            geometry.dilation,
            geometry.groups,
        )
        y_NHWO = _rows(sums_NCHW).mul_(weight.scales * grid.factor)
        return y_NHWO if bias is None else y_NHWO.add_(bias)

    def input_gradient(
        self,
        codes_NHWO: Tensor,
        grid: Grid,
        weight: QuantizedWeight,
        geometry: Geometry,
        input_size: tuple[int, int],
    ) -> Tensor:
        """Gradient at the input for a quantized gradient at the output."""
        weight_OIhw = _images_of_weight(weight)
        channels = weight_OIhw.shape[1] * geometry.groups
        sums_NCHW = conv2d_input(
            (len(codes_NHWO), channels, *input_size),
            weight_OIhw,
            _images(grid.centered(codes_NHWO)),
            geometry.stride,
            geometry.padding,
            geometry.dilation,
            geometry.groups,
        )
        factor = np.float32(grid.factor)
        if len(weight.scales) == 1:
            factor *= np.float32(weight.scales.item())
        return _rows(sums_NCHW).mul_(float(factor))

    def weight_gradient(
        self, codes_NHWC: Tensor, grid: Grid, g_NHWO: Tensor, weight: Tensor, geometry: Geometry
    ) -> Tensor:
        """Gradient at the weights."""
        centered = grid.centered(codes_NHWC)
        return weight_gradient(centered, g_NHWO, weight.shape, geometry).mul_(grid.factor)

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
        x, factor = grid.centered(codes_NHWC), grid.factor
        y, saved = range_evonorm.forward(
            x, factor, v, gamma, beta, shape, "hard_sigmoid", grid.code_step, self._quantize_scale
        )
        return RangeEvoNormForward(y, (saved.s, saved.s_hat, saved.highest, saved.lowest))

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
        return range_evonorm.backward(
            grid.centered(codes_NHWC),
            grid.factor,
            v,
            gamma,
            shape,
            "hard_sigmoid",
            range_evonorm.Saved(*saved),
            g.grid.dequantize(g.codes),
        )

    def range_batch_norm(
        self, codes_NHWC: Tensor, grid: Grid, gamma: Tensor, beta: Tensor
    ) -> RangeBatchNormForward:
        """Range BatchNorm of a batch with quantized scale, then ReLU."""
        y, saved = range_batch_norm.forward(
            grid.centered(codes_NHWC),
            grid.factor,
            gamma,
            beta,
            grid.code_step,
            self._quantize_scale,
        )
        kept = (saved.mean, saved.s, saved.s_hat, saved.highest, saved.lowest)
        return RangeBatchNormForward(y, saved.mean, saved.s, kept)

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
        return range_batch_norm.backward(
            grid.centered(codes_NHWC),
            grid.factor,
            gamma,
            beta,
            range_batch_norm.Saved(*saved),
            g.grid.dequantize(g.codes),
        )

    def multiply(self, a: Quantized, b: Quantized, form: Form) -> Tensor:
        """Product of matrices of numbers of codes."""
        left, right = a.grid.centered(a.codes), b.grid.centered(b.codes)
        left = left.transpose(-1, -2) if form == "columns" else left
        right = right.transpose(-1, -2) if form == "rows" else right
        factor = np.float32(a.grid.factor) * np.float32(b.grid.factor)
        return (left @ right).mul_(float(factor))

    def layer_norm(
        self, x: Quantized, gamma: Tensor, beta: Tensor, epsilon: float
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Layer norm over the last axis with quantized scale."""
        q_RC = x.grid.centered(x.codes).flatten(0, -2)
        y_RC, saved = layer_norm.forward(
            q_RC, x.grid.factor, gamma, beta, epsilon, self._quantize_scale
        )
        return y_RC.view(x.codes.shape), (saved.mean, saved.r, saved.r_hat)

    def layer_norm_backward(
        self, x: Quantized, gamma: Tensor, saved: tuple[Tensor, ...], g: QuantizedRows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients for g."""
        q_RC = x.grid.centered(x.codes).flatten(0, -2)
        g_x, g_gamma, g_beta = layer_norm.backward(
            q_RC, x.grid.factor, gamma, layer_norm.Saved(*saved), g.dequantize()
        )
        return g_x.view(x.codes.shape), g_gamma, g_beta

    def _quantize_scale(self, s: Tensor) -> Tensor:
        return self.requantize_whole(s, None)[0]

    def _quantize_in(self, extremes: Range, x: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        low, high = extremes
        if high - low < LARGEST_RANGE:
            grid = grid_of(low, high, has_integer_zero=self._has_integer_zero)
        else:
            grid = Grid(1.0, 0.0, 0.0)
        return Quantized(grid.quantize(x, seed), grid), extremes


def weight_gradient(
    x_NHWC: Tensor, g_NHWO: Tensor, shape_OIhw: torch.Size, geometry: Geometry
) -> Tensor:
    """Gradient at the weights of a convolution in float32, contiguous."""
    if is_linear(x_NHWC, geometry):
        return (g_NHWO.flatten(0, 2).T @ x_NHWC.flatten(0, 2)).view(shape_OIhw)
    g_OIhw: Tensor = conv2d_weight(
        _images(x_NHWC),
        shape_OIhw,
        _images(g_NHWO),
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        geometry.groups,
    )
    return g_OIhw


def is_linear(x_NHWC: Tensor, geometry: Geometry) -> bool:
    """Whether a convolution is a fully connected layer, of one place or of the places of a text."""
    return geometry == Geometry.square(1) and x_NHWC.shape[2] == 1


def _images(x_NHWC: Tensor) -> Tensor:
    """NCHW, the layout of torch's convolutions; a view, channels_last."""
    return x_NHWC.permute(0, 3, 1, 2)


def _rows(x_NCHW: Tensor) -> Tensor:
    """NHWC, contiguous; a view if the memory is channels_last."""
    return x_NCHW.permute(0, 2, 3, 1).contiguous()


def _images_of_weight(weight: QuantizedWeight) -> Tensor:
    return weight.centered().contiguous(memory_format=torch.channels_last)
