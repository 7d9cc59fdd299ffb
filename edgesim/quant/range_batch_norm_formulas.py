"""Range BatchNorm, which estimates the deviation by a mean range (arXiv 1805.11046), then ReLU.

Source: reference.md, section 2.

Symbols:
    x: input   y: output   g: gradient at y   gamma, beta: scale, shift, per channel
    mu: mean   R: mean range of the chunks   s = 1 / (kappa R + eps)   q(s): the scale as it is used
Shapes:
    L = N H W: entries of a channel   P: chunks   M = L / P, rounded down: entries in a chunk
    The last L - P M entries count for the mean and not for the range.

The input is given as `factor` times numbers `x`, and R has a least value, as for Range EvoNorm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from edgesim.quant.arithmetic import RangeBatchNormBackward
from edgesim.quant.errors import LayerInputError
from edgesim.quant.range_evonorm_formulas import EPSILON, MOST_CHUNKS, kappa, mean_range

OLD_WEIGHT = 0.1  # of running statistics; the batch's is 0.9 (reference.md, section 2)


@dataclass(frozen=True, slots=True)
class Saved:
    """Values that the backward pass needs beside the input.

    Attributes:
        mean: mu, shape (C,); s and s_hat = q(s) likewise.
        highest: place of each chunk's first maximum, shape (P, C); lowest: of its first minimum;
            of its maximum where R does not depend on the input.
    """

    mean: Tensor
    s: Tensor
    s_hat: Tensor
    highest: Tensor
    lowest: Tensor


def chunking(entries: int) -> tuple[int, int]:
    """Number of chunks of a channel, and their length.

    Raises:
        LayerInputError: a single entry has no range.
    """
    if entries < 2:
        raise LayerInputError(
            "range batch norm can't take the range of a single value of a channel; larger batches "
            "have more"
        )
    chunks = min(MOST_CHUNKS, entries // 2)
    return chunks, entries // chunks


def forward(
    x_NHWC: Tensor,
    factor: float,
    gamma: Tensor,
    beta: Tensor,
    step: float | None,
    quantize: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Saved]:
    """Give y = relu((x - mu) q(s) gamma + beta) of a batch; `quantize` is q."""
    x_LC = x_NHWC.flatten(0, 2)
    chunks, entries = chunking(len(x_LC))
    x_PMC = x_LC[: chunks * entries].unflatten(0, (chunks, entries))
    highest, lowest = x_PMC.argmax(1, keepdim=True), x_PMC.argmin(1, keepdim=True)
    tops, bottoms = x_PMC.gather(1, highest), x_PMC.gather(1, lowest)
    R, is_least = mean_range(tops, bottoms, (0, 1), step)
    if is_least is not None:
        lowest = torch.where(is_least, highest, lowest)  # gradients cancel
    R.mul_(factor)
    s = (R * kappa(entries)).add_(EPSILON).reciprocal_()
    mean = x_LC.mean(0, dtype=torch.float64).to(x_LC.dtype).mul_(factor)
    starts = torch.arange(chunks, device=x_LC.device).unsqueeze(1) * entries
    saved = Saved(mean, s, quantize(s), highest.squeeze(1) + starts, lowest.squeeze(1) + starts)
    return apply(x_NHWC, factor, mean, saved.s_hat, gamma, beta), saved


def apply(
    x_NHWC: Tensor, factor: float, mean: Tensor, s_hat: Tensor, gamma: Tensor, beta: Tensor
) -> Tensor:
    """Give y = relu((x - mean) s_hat gamma + beta) with a given mean and scale."""
    centered = (x_NHWC * factor).sub_(mean)
    return centered.mul_(s_hat).mul_(gamma).add_(beta).relu_()


def backward(
    x_NHWC: Tensor,
    factor: float,
    gamma: Tensor,
    beta: Tensor,
    saved: Saved,
    g_NHWC: Tensor,
) -> RangeBatchNormBackward:
    """Gradients at x (in its own unit), gamma and beta; straight through q."""
    mask = apply(x_NHWC, factor, saved.mean, saved.s_hat, gamma, beta) > 0
    g = g_NHWC * mask
    g_y_x = g * (x_NHWC * factor).sub_(saved.mean)
    g_x = g * (gamma * saved.s_hat)
    g_x -= g_x.mean((0, 1, 2))
    chunks, entries = chunking(g[..., 0].numel())
    sum_g_y_x = g_y_x.sum((0, 1, 2))
    g_R = sum_g_y_x * gamma * saved.s.square() * (-kappa(entries) / chunks)
    g_x_LC = g_x.flatten(0, 2)
    g_x_LC.scatter_add_(0, saved.highest, g_R.expand_as(saved.highest))
    g_x_LC.scatter_add_(0, saved.lowest, (-g_R).expand_as(saved.lowest))
    return RangeBatchNormBackward(g_x, gamma=sum_g_y_x * saved.s_hat, beta=g.sum((0, 1, 2)))
