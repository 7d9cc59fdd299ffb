"""Quantized layers as functions with gradients, for autograd.

Gradient bifurcation (arXiv 1805.11046; arXiv 2111.09389, section 3; reference.md, section 1.3): the
gradient g at the output of a product enters the input gradient in 8 bits and the weight gradient in
16 or 32 bits.

    forward:   y = x^ w^ + b^             with x^, w^, b^ the numbers of the 8-bit codes of x, w, b
    backward:  g_x = Q8(g) w^             g_w = x^ g            g_b = sum(g)

Where weights have one scale t_o for each output channel o, g is multiplied by them before it is
quantized: g_x = Q8(g t) k, with k the codes of w. Then the sum over o is a sum of integers.

Quantizers are straight-through. For the backward pass codes are saved, one byte per entry. Shapes:
as in `arithmetic.py`.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from edgesim.quant.affine import Grid, Quantized, QuantizedWeight
from edgesim.quant.arithmetic import Geometry, RangeNormShape
from edgesim.quant.backward_pass import Context
from edgesim.quant.layer_step import LayerStep


def convolution(
    x_NCHW: Tensor,
    weight_OIhw: Tensor,
    bias: Tensor | None,
    *,
    x: Quantized,
    geometry: Geometry,
    step: LayerStep,
) -> Tensor:
    """Convolution in 8 bits; fully connected layers are 1x1 convolutions of one pixel.

    Args:
        x_NCHW: the input, to which autograd passes the gradient; its values are not read.
        weight_OIhw: float32 master weights.
        bias: shape (O,), or None.
        x: codes of `x_NCHW`, NHWC.
        geometry: of the convolution.
        step: the layer.

    Raises:
        NonFiniteError: weights are not finite; in the backward pass: the gradient is not.
    """
    y: Tensor = _Convolution.apply(x_NCHW, weight_OIhw, bias, x, geometry, step)  # type: ignore[no-untyped-call]
    return y


def residual_sum(
    a_NCHW: Tensor, b_NCHW: Tensor, *, a_grid: Grid, b_grid: Grid, step: LayerStep
) -> Tensor:
    """Sum of two tensors, each in 8 bits; the gradient of the sum is quantized for both.

    Source: reference.md, section 1.2.
    """
    y: Tensor = _ResidualSum.apply(a_NCHW, b_NCHW, a_grid, b_grid, step)  # type: ignore[no-untyped-call]
    return y


def range_evonorm(
    x_NCHW: Tensor,
    v: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    x: Quantized,
    shape: RangeNormShape,
    step: LayerStep,
) -> Tensor:
    """Range EvoNorm on codes, with 8-bit parameters and gradient; arguments as of `convolution`.

    Source: reference.md, section 2.
    """
    y: Tensor = _RangeEvoNorm.apply(x_NCHW, v, gamma, beta, x, shape, step)  # type: ignore[no-untyped-call]
    return y


def range_batch_norm(
    x_NCHW: Tensor, gamma: Tensor, beta: Tensor, *, x: Quantized, step: LayerStep
) -> tuple[Tensor, Tensor, Tensor]:
    """Range BatchNorm of a batch on codes, then ReLU (reference.md, section 2).

    Returns:
        The result, and the batch's mean and scale, shape (C,), which have no gradient.
    """
    result: tuple[Tensor, Tensor, Tensor] = _RangeBatchNorm.apply(x_NCHW, gamma, beta, x, step)  # type: ignore[no-untyped-call]
    return result


class _Context(Context, Protocol):
    """Values that autograd keeps from the forward to the backward pass."""

    needs_input_grad: tuple[bool, ...]
    step: LayerStep


class _ConvolutionContext(_Context, Protocol):
    grid: Grid
    geometry: Geometry
    weight_grid: Grid | None
    input_size: tuple[int, int]
    has_bias: bool


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: _ConvolutionContext,
        x_NCHW: Tensor,
        weight_OIhw: Tensor,
        bias: Tensor | None,
        x: Quantized,
        geometry: Geometry,
        step: LayerStep,
    ) -> Tensor:
        weight = step.quantize_weight(weight_OIhw)
        b_hat = None if bias is None else step.requantize_parameters(bias)[0]
        ctx.step, ctx.grid, ctx.geometry = step, x.grid, geometry
        ctx.weight_grid, ctx.has_bias = weight.grid, bias is not None
        ctx.input_size = (x_NCHW.shape[2], x_NCHW.shape[3])
        ctx.save_for_backward(x.codes, weight.codes, weight.scales)
        return _images(step.arithmetic.convolve(x.codes, x.grid, weight, b_hat, geometry))

    @staticmethod
    @once_differentiable
    def backward(ctx: _ConvolutionContext, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        step, geometry, g = ctx.step, ctx.geometry, rows(g_NCHW)
        codes, weight_codes, scales = ctx.saved_tensors
        weight = QuantizedWeight(weight_codes, scales, ctx.weight_grid)
        g_8 = None
        if ctx.needs_input_grad[0]:
            g_8 = step.quantize_gradient(g * scales if len(scales) > 1 else g)
        else:
            step.require_finite(step.arithmetic.full_range(g), "gradients")

        g_weight = g_bias = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            g_for_weights = step.round_for_weights(g)
            g_weight = step.arithmetic.weight_gradient(
                codes, ctx.grid, g_for_weights, weight_codes, geometry
            )
            g_bias = g_for_weights.sum((0, 1, 2)) if ctx.has_bias else None

        g_x = None
        if g_8 is not None:
            size = ctx.input_size
            g_x = _images(
                step.arithmetic.input_gradient(g_8.codes, g_8.grid, weight, geometry, size)
            )
        return g_x, g_weight, g_bias, None, None, None


class _ResidualSum(Function):
    @staticmethod
    def forward(
        ctx: _Context, a_NCHW: Tensor, b_NCHW: Tensor, a_grid: Grid, b_grid: Grid, step: LayerStep
    ) -> Tensor:
        ctx.step = step
        a, b = rows(a_NCHW), rows(b_NCHW)
        return _images(step.arithmetic.residual_sum(a, a_grid, b, b_grid, step.activation_seeds))

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        g_hat = _images(ctx.step.requantize_gradient(rows(g_NCHW)))
        return g_hat, g_hat, None, None, None


class _RangeEvoNormContext(_Context, Protocol):
    grid: Grid
    shape: RangeNormShape


class _RangeEvoNorm(Function):
    @staticmethod
    def forward(
        ctx: _RangeEvoNormContext,
        _x_NCHW: Tensor,
        v: Tensor,
        gamma: Tensor,
        beta: Tensor,
        x: Quantized,
        shape: RangeNormShape,
        step: LayerStep,
    ) -> Tensor:
        v_hat, gamma_hat, beta_hat = step.requantize_parameters(v, gamma, beta)
        result = step.arithmetic.range_evonorm(x.codes, x.grid, v_hat, gamma_hat, beta_hat, shape)
        ctx.step, ctx.grid, ctx.shape = step, x.grid, shape
        ctx.save_for_backward(x.codes, v_hat, gamma_hat, *result.saved)
        return _images(result.y)

    @staticmethod
    @once_differentiable
    def backward(ctx: _RangeEvoNormContext, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        step, g = ctx.step, ctx.step.quantize_gradient(rows(g_NCHW))
        codes, v_hat, gamma_hat, *saved = ctx.saved_tensors
        gradients = step.arithmetic.range_evonorm_backward(
            codes, ctx.grid, v_hat, gamma_hat, ctx.shape, tuple(saved), g
        )
        g_x = _images(gradients.x)
        return g_x, gradients.v, gradients.gamma, gradients.beta, None, None, None


class _RangeBatchNormContext(_Context, Protocol):
    grid: Grid

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...


class _RangeBatchNorm(Function):
    @staticmethod
    def forward(
        ctx: _RangeBatchNormContext,
        _x_NCHW: Tensor,
        gamma: Tensor,
        beta: Tensor,
        x: Quantized,
        step: LayerStep,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gamma_hat, beta_hat = step.requantize_parameters(gamma, beta)
        result = step.arithmetic.range_batch_norm(x.codes, x.grid, gamma_hat, beta_hat)
        ctx.step, ctx.grid = step, x.grid
        ctx.save_for_backward(x.codes, gamma_hat, beta_hat, *result.saved)
        mean, scale = result.mean.clone(), result.scale.clone()
        ctx.mark_non_differentiable(mean, scale)
        return _images(result.y), mean, scale

    @staticmethod
    @once_differentiable
    def backward(
        ctx: _RangeBatchNormContext, g_NCHW: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, ...]:
        step, g = ctx.step, ctx.step.quantize_gradient(rows(g_NCHW))
        codes, gamma_hat, beta_hat, *saved = ctx.saved_tensors
        gradients = step.arithmetic.range_batch_norm_backward(
            codes, ctx.grid, gamma_hat, beta_hat, tuple(saved), g
        )
        return _images(gradients.x), gradients.gamma, gradients.beta, None, None


def rows(x_NCHW: Tensor) -> Tensor:
    """NHWC, contiguous; a view if the memory is channels_last."""
    return x_NCHW.permute(0, 2, 3, 1).contiguous()


def _images(x_NHWC: Tensor) -> Tensor:
    """NCHW in the memory layout channels_last, the same memory.

    The result is not a view, since a view keeps its base alive. Autograd adds gradients of branches
    in place only if nothing else refers to the memory; otherwise it allocates new memory for the
    sum.
    """
    return x_NHWC.permute(0, 3, 1, 2).detach()
