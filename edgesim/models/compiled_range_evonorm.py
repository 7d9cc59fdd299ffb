"""Range EvoNorm of float32 tensors on a processor, by a compiled kernel.

The kernel reads the input once for the ranges and once for the output, and once in the backward
pass. Like the torch operations of `quant/range_evonorm_formulas.py`, it saves the input and small
tensors, works in channels_last, and gives equal bits for equal inputs, whatever their memory layout
was.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from edgesim.quant.arithmetic import Gate, RangeNormShape
from edgesim.quant.backward_pass import Context
from edgesim.quant.kernels.arrays import Float32
from edgesim.quant.kernels.norms import range_evonorm_fp32 as kernel
from edgesim.quant.range_evonorm_formulas import EPSILON, kappa, place_type


def compiled_range_evonorm(
    x_NCHW: Tensor, v: Tensor, gamma: Tensor, beta: Tensor, shape: RangeNormShape, gate: Gate
) -> Tensor:
    """Range EvoNorm, differentiable once in all of its tensors.

    Args:
        x_NCHW: activations, float32, in any memory layout; channels_last saves a copy.
        v: slope of the gate, shape (C,), float32, like `gamma` and `beta`.
        gamma: scale.
        beta: shift.
        shape: groups and chunks.
        gate: `sigmoid`, or the piecewise linear one.

    Returns:
        y, shape (N, C, H, W), channels_last.
    """
    y: Tensor = _CompiledRangeEvoNorm.apply(x_NCHW, v, gamma, beta, shape, gate)  # type: ignore[no-untyped-call]
    return y


class _Context(Context, Protocol):
    settings: kernel.Settings


class _CompiledRangeEvoNorm(Function):
    @staticmethod
    def forward(
        ctx: _Context,
        x_NCHW: Tensor,
        v: Tensor,
        gamma: Tensor,
        beta: Tensor,
        shape: RangeNormShape,
        gate: Gate,
    ) -> Tensor:
        x_NHWC = x_NCHW.detach().permute(0, 2, 3, 1).contiguous()
        entries = x_NHWC[0].numel() // shape.groups // shape.chunks
        ctx.settings = kernel.Settings(
            shape.groups, shape.chunks, kappa(entries), EPSILON, gate == "hard_sigmoid"
        )
        y, saved = kernel.range_evonorm_fp32(
            x_NHWC.numpy(), _array(v), _array(gamma), _array(beta), ctx.settings
        )
        places = [
            torch.from_numpy(place).to(place_type(entries))
            for place in (saved.highest, saved.lowest)
        ]
        ctx.save_for_backward(x_NHWC, v, gamma, torch.from_numpy(saved.s), *places)
        return torch.from_numpy(y).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients at x, v, gamma and beta."""
        x, v, gamma, s, highest, lowest = ctx.saved_tensors
        saved = kernel.Saved(s.numpy(), highest.int().numpy(), lowest.int().numpy())
        g = _array(g_NCHW.permute(0, 2, 3, 1))
        gradients = kernel.range_evonorm_fp32_backward(
            _array(x), _array(v), _array(gamma), ctx.settings, saved, g
        )
        g_x, *g_parameters = (torch.from_numpy(array) for array in gradients)
        return g_x.permute(0, 3, 1, 2), *g_parameters, None, None


def _array(tensor: Tensor) -> Float32:
    array: Float32 = tensor.detach().contiguous().numpy()
    return array
