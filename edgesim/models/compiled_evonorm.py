"""EvoNorm-S0 of float32 tensors on a processor, by a compiled kernel.

The kernel reads the input once in the forward and once in the backward pass. Like the torch
operations of `evonorm.py`, it saves two tensors of the input's size, works in channels_last, and
gives equal bits for equal inputs, whatever their memory layout was.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from edgesim.quant.backward_pass import Context
from edgesim.quant.kernels.arrays import Float32
from edgesim.quant.kernels.norms import evonorm_s0 as kernel


def compiled_evonorm_s0(
    x_NCHW: Tensor, gamma: Tensor, beta: Tensor, v: Tensor, groups: int, epsilon: float
) -> Tensor:
    """EvoNorm-S0, differentiable once in all of its tensors.

    Args:
        x_NCHW: activations, float32, in any memory layout; channels_last saves a copy.
        gamma: scale, shape (C,), float32, like `beta` and `v`.
        beta: shift.
        v: slope of the gate.
        groups: G, a divisor of C.
        epsilon: added to the variance.

    Returns:
        y, shape (N, C, H, W), channels_last.
    """
    y: Tensor = _CompiledEvoNormS0.apply(x_NCHW, gamma, beta, v, groups, epsilon)  # type: ignore[no-untyped-call]
    return y


class _CompiledEvoNormS0(Function):
    @staticmethod
    def forward(
        ctx: Context,
        x_NCHW: Tensor,
        gamma: Tensor,
        beta: Tensor,
        v: Tensor,
        groups: int,
        epsilon: float,
    ) -> Tensor:
        x_NHWC = x_NCHW.detach().permute(0, 2, 3, 1).contiguous()
        y, saved = kernel.evonorm_s0(
            x_NHWC.numpy(), _array(gamma), _array(beta), _array(v), groups, epsilon
        )
        ctx.save_for_backward(x_NHWC, gamma, v, *(torch.from_numpy(array) for array in saved))
        return torch.from_numpy(y).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients at x, gamma, beta and v."""
        x, gamma, v, *saved = (_array(tensor) for tensor in ctx.saved_tensors)
        g = _array(g_NCHW.permute(0, 2, 3, 1))
        gradients = kernel.evonorm_s0_backward(x, gamma, v, kernel.Saved(*saved), g)
        g_x, *g_parameters = (torch.from_numpy(array) for array in gradients)
        return g_x.permute(0, 3, 1, 2), *g_parameters, None, None


def _array(tensor: Tensor) -> Float32:
    array: Float32 = tensor.detach().contiguous().numpy()
    return array
