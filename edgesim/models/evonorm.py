"""EvoNorm-S0, normalisation and nonlinearity in one (arXiv 2004.02967), in few passes.

Source: reference.md, section 2.

Written in plain torch operations, EvoNorm takes more time in a ResNet-20 than all convolutions: on
one thread each operation is a pass through memory, and torch's variance is slow. This autograd
function takes eighteen passes, forward and backward, saves two tensors of the input's size between
them, and works in channels_last, in which the convolutions are fastest. It uses plain torch
operations in a fixed order: equal inputs give equal bits, whatever their memory layout was. Large
images in float32 on a processor go through a compiled kernel instead (`compiled_evonorm.py`).

Symbols:
    x: input   y: output   g: gradient at y   gamma, beta, v: scale, shift, gate slope, per channel
    s = sigmoid(v x): gate   mu, r: mean and 1 / sqrt(variance + eps) of a sample's group
    M: entries in a sample's group   p_x, p_v: parts of the gradients at x and v
Shapes:
    N: samples   G: groups   K: channels in a group   C = G K   H, W: height, width
    R = W C: a row of pixels with their channels. Activations are processed as NHR, so that values
    by channel form one contiguous row of length R instead of many short ones of length C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from edgesim.models.norms import GROUPS, NormKind, check_groups, takes_kernels
from edgesim.quant.backward_pass import Context
from edgesim.quant.norm_parameters import GatedNorm

EPSILON = 1e-5  # reference.md, section 2
# Entries of a sample. With fewer, a run of some seconds gains less than the half second that every
# process takes to load the kernel.
COMPILED_FROM = 4096


class EvoNormS0(GatedNorm):
    """y = gamma x sigmoid(v x) / sqrt(variance + eps) + beta; initially gamma = v = 1, beta = 0.

    The variance is the biased one of a sample's group of consecutive channels; there are no running
    statistics, and training and evaluation are the same. No nonlinearity follows: it is included.

    Args:
        channels: C of the input, shape (N, C, H, W).
        groups: number of groups of channels.

    Raises:
        ModelError: `channels` can't be divided into `groups`.
    """

    def __init__(self, channels: int, groups: int = 8) -> None:
        check_groups("evonorm_s0", channels, groups, "batch")
        super().__init__(channels, groups)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and gated activations, shape and type of the input, channels_last."""
        return evonorm_s0(x_NCHW, self.gamma, self.beta, self.v, self.groups)


def evonorm_s0(x_NCHW: Tensor, gamma: Tensor, beta: Tensor, v: Tensor, groups: int) -> Tensor:
    """EvoNorm-S0 as a function, differentiable once in all of its tensors.

    Args:
        x_NCHW: activations, floating-point, in any memory layout; channels_last saves a copy.
        gamma: scale, shape (C,).
        beta: shift, shape (C,).
        v: slope of the gate, shape (C,).
        groups: G, a divisor of C.

    Returns:
        y, shape (N, C, H, W), channels_last.
    """
    if _is_for_the_kernel(x_NCHW):
        from edgesim.models.compiled_evonorm import compiled_evonorm_s0  # loads numba

        return compiled_evonorm_s0(x_NCHW, gamma, beta, v, groups, EPSILON)
    y: Tensor = _EvoNormS0.apply(x_NCHW, gamma, beta, v, groups)  # type: ignore[no-untyped-call]
    return y


def _is_for_the_kernel(x_NCHW: Tensor) -> bool:
    return x_NCHW.shape[1:].numel() >= COMPILED_FROM and takes_kernels(x_NCHW)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Sizes of a batch, and conversions between its shapes."""

    N: int
    G: int
    K: int
    H: int
    W: int

    @property
    def M(self) -> int:  # noqa: N802 (the symbol of the legend)
        """Entries in a sample's group."""
        return self.K * self.H * self.W

    def rows(self, x_NCHW: Tensor) -> Tensor:
        """Activations as NHR: a view if the memory is channels_last, otherwise a copy."""
        return x_NCHW.permute(0, 2, 3, 1).contiguous().view(self.N, self.H, -1)

    def images(self, x_NHR: Tensor) -> Tensor:
        """NCHW from NHR; a view."""
        return x_NHR.view(self.N, self.H, self.W, -1).permute(0, 3, 1, 2)

    def tile(self, per_channel_C: Tensor) -> Tensor:
        """Values by channel, repeated for each pixel of a row: shape (R,)."""
        return per_channel_C.expand(self.W, -1).reshape(-1)

    def spread(self, per_sample_NGk: Tensor) -> Tensor:
        """One row for each sample, (N, 1, R), from values by channel (k = K) or group (k = 1)."""
        per_channel = per_sample_NGk.expand(-1, -1, self.K).reshape(self.N, 1, 1, -1)
        return per_channel.expand(-1, -1, self.W, -1).reshape(self.N, 1, -1)

    def sum_pixels(self, x_NHR: Tensor) -> Tensor:
        """Sums over height and width, shape (N, G, K)."""
        by_pixel = x_NHR.view(self.N, self.H * self.W, self.G * self.K)
        return by_pixel.sum(1).view(self.N, self.G, self.K)


class _Context(Context, Protocol):
    """What autograd keeps from the forward to the backward pass."""

    geometry: _Geometry


class _EvoNormS0(Function):
    """Forward: 8 passes over the activations, counting a reduction as one. Backward: 10."""

    @staticmethod
    def forward(
        ctx: _Context, x_NCHW: Tensor, gamma: Tensor, beta: Tensor, v: Tensor, groups: int
    ) -> Tensor:
        N, C, H, W = x_NCHW.shape
        ctx.geometry = geometry = _Geometry(N, groups, C // groups, H, W)
        x = geometry.rows(x_NCHW)
        # Centred before squaring: E[x^2] - E[x]^2 loses all precision where mu^2 >> variance.
        mu = geometry.sum_pixels(x).sum(2, keepdim=True).div_(geometry.M)
        work = x - geometry.spread(mu)
        squares = geometry.sum_pixels(torch.mul(work, work, out=work)).sum(2, keepdim=True)
        r = squares.div_(geometry.M).add_(EPSILON).rsqrt_()
        s = torch.mul(x, geometry.tile(v), out=work).sigmoid_()
        y = x * s
        scale = geometry.spread(r * gamma.view(groups, -1))
        torch.addcmul(geometry.tile(beta), y, scale, out=y)
        ctx.save_for_backward(x, s, mu, r, gamma, v)
        return geometry.images(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients at x, gamma, beta and v.

        With d(x s)/dx = s + v x s (1-s), d(x s)/dv = x^2 s (1-s), dr/dx = -r^3 (x - mu) / M:
            dx = gamma r g (s + v x s (1-s)) - k (x - mu),   k = r^3 / M * sum_group(gamma g x s)
            dgamma = sum(r g x s),   dbeta = sum(g),   dv = gamma sum(r g x^2 s (1-s))
        """
        x, s, mu, r, gamma, v = ctx.saved_tensors
        geometry = ctx.geometry
        gamma_GK = gamma.view(geometry.G, geometry.K)
        g = geometry.rows(g_NCHW)
        g_beta = g.view(-1, len(gamma)).sum(0)

        p_x = g * s
        p_v = p_x * x  # g x s
        sum_gxs = geometry.sum_pixels(p_v)
        p_v.addcmul_(p_v, s, value=-1)  # g x s (1-s)
        p_x.addcmul_(p_v, geometry.tile(v))  # g (s + v x s (1-s))
        sum_p_v = geometry.sum_pixels(p_v.mul_(x))  # g x^2 s (1-s)

        g_gamma = (r * sum_gxs).sum(0).view(-1)
        g_v = (r * sum_p_v).sum(0).view(-1).mul_(gamma)
        k = (gamma_GK * sum_gxs).sum(2, keepdim=True).mul_(r**3).div_(geometry.M)
        g_x = torch.addcmul(
            geometry.spread(k * mu), x, geometry.spread(k), value=-1, out=p_v
        )  # p_v is not needed any more: its memory becomes -k (x - mu)
        g_x.addcmul_(p_x, geometry.spread(r * gamma_GK))
        return geometry.images(g_x), g_gamma, g_beta, g_v, None


EVONORM_S0 = NormKind(
    make=lambda channels, _: EvoNormS0(channels, GROUPS),
)
