"""Quantized layers of encoders as functions with gradients: products, layer norms, embeddings.

The factors of a product are both activations, so both gradients are input gradients: they come from
the gradient at the output in 8 bits (reference.md, section 1.3). Those of an embedding's rows are
weight gradients. Quantizers are straight-through.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from edgesim.quant.affine import Grid, Quantized
from edgesim.quant.backward_pass import Context
from edgesim.quant.layer_step import LayerStep


def product(a: Tensor, b: Tensor, *, codes: tuple[Quantized, Quantized], transposed: bool, step: LayerStep) -> Tensor:  # fmt: skip  # noqa: E501
    """Product of two activations in 8 bits, shape (..., M, N), float32.

    Args:
        a: shape (..., M, K), to which autograd passes the gradient; its values are not read.
        b: shape (..., K, N), or (..., N, K) if `transposed`.
        codes: of a and b, of their shapes.
        transposed: rows are multiplied with rows.
        step: the layer.

    Raises:
        NonFiniteError: in the backward pass, the gradient is not finite.
    """
    y: Tensor = _Product.apply(a, b, *codes, transposed, step)  # type: ignore[no-untyped-call]
    return y


def layer_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, *, codes: Quantized, epsilon: float, step: LayerStep
) -> Tensor:
    """Layer norm over the last axis on codes, with 8-bit parameters, scale and gradient."""
    y: Tensor = _LayerNorm.apply(x, gamma, beta, codes, epsilon, step)  # type: ignore[no-untyped-call]
    return y


def embedding(tokens: Tensor, weight_VC: Tensor, padding: int | None, *, step: LayerStep) -> Tensor:
    """Rows of a table, each in 8 bits on a scale of its own, shape (*tokens, C), float32."""
    y: Tensor = _Embedding.apply(tokens, weight_VC, padding, step)  # type: ignore[no-untyped-call]
    return y


class _Context(Context, Protocol):
    """Values that autograd keeps from the forward to the backward pass."""

    step: LayerStep


class _ProductContext(_Context, Protocol):
    grids: tuple[Grid, Grid]
    transposed: bool


class _Product(Function):
    @staticmethod
    def forward(
        ctx: _ProductContext,
        _a: Tensor,
        _b: Tensor,
        a: Quantized,
        b: Quantized,
        transposed: bool,
        step: LayerStep,
    ) -> Tensor:
        ctx.step, ctx.grids, ctx.transposed = step, (a.grid, b.grid), transposed
        ctx.save_for_backward(a.codes, b.codes)
        return step.arithmetic.multiply(a, b, "rows" if transposed else "plain")

    @staticmethod
    @once_differentiable
    def backward(ctx: _ProductContext, g: Tensor) -> tuple[Tensor | None, ...]:
        multiply = ctx.step.arithmetic.multiply
        g_8 = ctx.step.quantize_gradient(g.contiguous())
        a, b = (Quantized(c, grid) for c, grid in zip(ctx.saved_tensors, ctx.grids, strict=True))
        if ctx.transposed:  # y = a b^T
            g_a, g_b = multiply(g_8, b, "plain"), multiply(g_8, a, "columns")
        else:  # y = a b
            g_a, g_b = multiply(g_8, b, "rows"), multiply(a, g_8, "columns")
        return g_a, g_b, None, None, None, None


class _LayerNormContext(_Context, Protocol):
    grid: Grid


class _LayerNorm(Function):
    @staticmethod
    def forward(
        ctx: _LayerNormContext,
        _x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        x: Quantized,
        epsilon: float,
        step: LayerStep,
    ) -> Tensor:
        gamma_hat, beta_hat = step.requantize_parameters(gamma, beta)
        y, saved = step.arithmetic.layer_norm(x, gamma_hat, beta_hat, epsilon)
        ctx.step, ctx.grid = step, x.grid
        ctx.save_for_backward(x.codes, gamma_hat, *saved)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: _LayerNormContext, g: Tensor) -> tuple[Tensor | None, ...]:
        codes, gamma_hat, *saved = ctx.saved_tensors
        g_8 = ctx.step.quantize_gradient_by_rows(g.contiguous())
        x = Quantized(codes, ctx.grid)
        gradients = ctx.step.arithmetic.layer_norm_backward(x, gamma_hat, tuple(saved), g_8)
        return *gradients, None, None, None


class _EmbeddingContext(_Context, Protocol):
    num_rows: int
    padding: int | None


class _Embedding(Function):
    @staticmethod
    def forward(
        ctx: _EmbeddingContext,
        tokens: Tensor,
        weight_VC: Tensor,
        padding: int | None,
        step: LayerStep,
    ) -> Tensor:
        ctx.step, ctx.num_rows, ctx.padding = step, len(weight_VC), padding
        ctx.save_for_backward(tokens)
        used, places = torch.unique(tokens, return_inverse=True)
        if len(used) and not 0 <= int(used[0]) <= int(used[-1]) < len(weight_VC):
            raise IndexError(
                f"a token is {int(used[0] if used[0] < 0 else used[-1])}; the table has rows 0 to "
                f"{len(weight_VC) - 1}"
            )
        rows_UC = step.quantize_rows(weight_VC.detach()[used])
        return rows_UC[places]

    @staticmethod
    @once_differentiable
    def backward(ctx: _EmbeddingContext, g: Tensor) -> tuple[Tensor | None, ...]:
        (tokens,) = ctx.saved_tensors
        g_for_weights = ctx.step.round_for_weights(g.contiguous())
        padding = -1 if ctx.padding is None else ctx.padding
        g_VC = torch.ops.aten.embedding_dense_backward(
            g_for_weights, tokens, ctx.num_rows, padding, False
        )
        return None, g_VC, None, None
