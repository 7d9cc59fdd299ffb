"""Range EvoNorm: EvoNorm that estimates the deviation by a range (arXiv 2111.09389, Eq. 2).

Source: reference.md, section 2.

Symbols:
    x: input   y: output   g: gradient at y   v, gamma, beta: slope, scale, shift, per channel
    h: gate, sigmoid(v x) or clip(v x / 6 + 1/2, 0, 1)   n = x h
    R: range of a sample's group   kappa R: its estimate of the deviation   s = 1 / (kappa R + eps)
    q(s): the scale as it is used: quantized, or s itself
Shapes:
    N: samples   G: groups   K: channels in a group   C = G K   H, W: height, width
    P: chunks of a group   M = K H W / P: entries in a chunk

The input is given as `factor` times numbers `x`: with integers from 8-bit codes, ranges are exact.
R is the mean of the chunks' ranges. Of codes it is at least one step, and at least a 16th of the
group's range; such an R does not depend on the input. Otherwise a group that is clipped has R = 0
and s = 1e5, all other scales vanish on their common grid, and the training diverges
(docs/decisions/62-least-range.md). `step` is the distance of codes in the unit of x, None for fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi, prod, sqrt

import torch
from torch import Tensor

from edgesim.quant.arithmetic import Gate, RangeEvoNormBackward, RangeNormShape

EPSILON = 1e-5  # reference.md, section 2
MOST_CHUNKS = 16  # reference.md, section 2
LEAST_SHARE = 16  # of codes: R is no less than a 16th of the range of the group


def kappa(entries: int) -> float:
    """Ratio of the standard deviation of Gaussian numbers to the mean range of `entries` of them.

    Source: reference.md, section 2.
    """
    return 0.5 * 0.35 * (1 + sqrt(pi * log(4))) / sqrt(2 * log(entries))


def chunks_of(entries: int) -> int:
    """Number of chunks of a group: the largest divisor of `entries` up to 16.

    Source: reference.md, section 2.

    Raises:
        ValueError: chunks of one entry have no range.
    """
    for chunks in range(MOST_CHUNKS, 0, -1):
        if entries % chunks == 0 and entries > chunks:
            return chunks
    raise ValueError(f"a range norm can't take the range of a group of {entries} entries")


def mean_range(
    tops: Tensor, bottoms: Tensor, dims: tuple[int, int], step: float | None
) -> tuple[Tensor, Tensor | None]:
    """R in the unit of x, and where it is the least that counts.

    Args:
        tops: maxima of the chunks.
        bottoms: their minima.
        dims: over which chunks are counted.
        step: distance of codes; None for fp32, where no range is too small.
    """
    total = tops.sum(dims) - bottoms.sum(dims)
    chunks = prod(tops.shape[dim] for dim in dims)
    R = total * (1 / chunks)
    if step is None:
        return R, None
    of_all = tops.amax(dims) - bottoms.amin(dims)
    is_least = (total < chunks * step) | (total * LEAST_SHARE < of_all * chunks)
    return torch.maximum(R, (of_all / LEAST_SHARE).clamp_(min=step)), is_least


@dataclass(frozen=True, slots=True)
class Saved:
    """Values that the backward pass needs beside the input.

    Attributes:
        s: shape (N, G); s_hat: q(s).
        highest: place in each chunk of its first maximum, shape (N, G, P); a byte where M allows.
        lowest: likewise of its first minimum; of its maximum where R does not depend on the input.
    """

    s: Tensor
    s_hat: Tensor
    highest: Tensor
    lowest: Tensor


def forward(
    x_NHWC: Tensor,
    factor: float,
    v: Tensor,
    gamma: Tensor,
    beta: Tensor,
    shape: RangeNormShape,
    gate: Gate,
    step: float | None,
    quantize: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Saved]:
    """Give y = x h q(s) gamma + beta, NHWC; `quantize` is q."""
    chunks_NGPM = _groups(x_NHWC, shape).unflatten(2, (shape.chunks, -1))
    entries = chunks_NGPM.shape[-1]
    highest, lowest = chunks_NGPM.argmax(3, keepdim=True), chunks_NGPM.argmin(3, keepdim=True)
    tops, bottoms = chunks_NGPM.gather(3, highest), chunks_NGPM.gather(3, lowest)
    R, is_least = mean_range(tops, bottoms, (2, 3), step)
    if is_least is not None:
        lowest = torch.where(is_least[:, :, None, None], highest, lowest)  # gradients cancel
    R.mul_(factor)
    s = (R * kappa(entries)).add_(EPSILON).reciprocal_()
    s_hat = quantize(s)
    x = x_NHWC * factor
    n = x * _gate(x, v, gate)
    y = (n * _per_channel(s_hat, x)).mul_(gamma).add_(beta)
    places = [place.squeeze(3).to(place_type(entries)) for place in (highest, lowest)]
    return y, Saved(s, s_hat, *places)


def backward(
    x_NHWC: Tensor,
    factor: float,
    v: Tensor,
    gamma: Tensor,
    shape: RangeNormShape,
    gate: Gate,
    saved: Saved,
    g_NHWC: Tensor,
) -> RangeEvoNormBackward:
    """Gradients at x (in its own unit), v, gamma and beta; straight through q."""
    x = x_NHWC * factor
    s_hat = _per_channel(saved.s_hat, x)
    h = _gate(x, v, gate)
    g_n = g_NHWC * s_hat * gamma
    slope = _gate_slope(x, v, h, gate)
    g_z = g_n * x * slope  # z = v x
    g_x = g_n * h + g_z * v
    g_y_n = g_NHWC * x * h
    g_s_hat = _groups(g_y_n * gamma, shape).sum(2)
    entries = x[0].numel() // shape.groups // shape.chunks
    g_R = (g_s_hat * saved.s.square() * (-kappa(entries) / shape.chunks)).unsqueeze(2)
    starts = torch.arange(shape.chunks, device=x.device) * entries
    by_place_NGL = torch.zeros_like(_groups(g_x, shape))
    by_place_NGL.scatter_(2, saved.highest + starts, g_R.expand(-1, -1, shape.chunks))
    by_place_NGL.scatter_add_(2, saved.lowest + starts, -g_R.expand(-1, -1, shape.chunks))
    g_x += _ungroup(by_place_NGL, x)
    return RangeEvoNormBackward(
        x=g_x,
        v=(g_z * x).sum((0, 1, 2)),
        gamma=(g_y_n * s_hat).sum((0, 1, 2)),
        beta=g_NHWC.sum((0, 1, 2)),
    )


def place_type(entries: int) -> torch.dtype:
    """The smallest integer type that holds a place below `entries`."""
    if entries <= 1 << 8:
        return torch.uint8
    return torch.int16 if entries <= 1 << 15 else torch.int32


def _gate(x: Tensor, v: Tensor, gate: Gate) -> Tensor:
    if gate == "sigmoid":
        return torch.sigmoid(x * v)
    return (x * v).mul_(1 / 6).add_(0.5).clamp_(0, 1)


def _gate_slope(x: Tensor, v: Tensor, h: Tensor, gate: Gate) -> Tensor:
    """Derivative dh/dz; at the corners of the hard sigmoid its inner slope."""
    if gate == "sigmoid":
        return h * (1 - h)
    t = (x * v).mul_(1 / 6).add_(0.5)
    return ((t >= 0) & (t <= 1)).to(x) / 6


def _groups(x_NHWC: Tensor, shape: RangeNormShape) -> Tensor:
    """Each sample's groups in (K, H, W) order, shape (N, G, K H W); a copy."""
    return x_NHWC.permute(0, 3, 1, 2).reshape(x_NHWC.shape[0], shape.groups, -1)


def _ungroup(x_NGL: Tensor, like_NHWC: Tensor) -> Tensor:
    """Inverse of `_groups`: NHWC from groups; a view."""
    N, H, W, C = like_NHWC.shape
    return x_NGL.view(N, C, H, W).permute(0, 2, 3, 1)


def _per_channel(by_group_NG: Tensor, like_NHWC: Tensor) -> Tensor:
    """Values by group as (N, 1, 1, C)."""
    channels = like_NHWC.shape[3] // by_group_NG.shape[1]
    return by_group_NG.repeat_interleave(channels, dim=1)[:, None, None, :]
