"""Layer normalisation of codes, in torch (arXiv 1607.06450), with a scale in 8 bits.

The paper does not say how it quantizes layer norms. As in its other norms (docs/reference.md,
section 2) input, parameters, scale and gradient are 8-bit codes; mean and variance are those of the
codes, and the scale keeps the true one in the derivative.

Symbols:
    q: code of the input, zero point left out   s: scale of the codes   x = s q
    mu, var: mean and biased variance of a row of q   r = 1 / sqrt(s^2 var + eps)   c = q - mu
    r^: r in 8 bits   n = s c r^   y = n gamma + beta   g: gradient at y   h = g gamma
Shapes: R rows of C entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Saved:
    """Values by row that the backward pass needs, shape (R, 1): mu, r, r^."""

    mean: Tensor
    r: Tensor
    r_hat: Tensor


def forward(
    q_RC: Tensor,
    factor: float,
    gamma: Tensor,
    beta: Tensor,
    epsilon: float,
    quantize: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Saved]:
    """Give y and what is saved; `factor` is s, `quantize` gives r^."""
    q = q_RC.to(torch.float64)  # sums of squares of integers are exact
    count = q.shape[1]
    total, squares = q.sum(1, keepdim=True), (q * q).sum(1, keepdim=True)
    var = (squares * count - total * total) / (count * count)
    r = (var * factor**2 + epsilon).rsqrt().to(q_RC.dtype)
    mean = (total / count).to(q_RC.dtype)
    saved = Saved(mean, r, quantize(r))
    n = (q_RC - mean).mul_(saved.r_hat * factor)
    return n.mul_(gamma).add_(beta), saved


def backward(
    q_RC: Tensor, factor: float, gamma: Tensor, saved: Saved, g_RC: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients at x, gamma and beta: dx = r^ (h - mean h) - x_c r^3 mean(h x_c), x_c = s c."""
    x_c = (q_RC - saved.mean).mul_(factor)
    g_gamma = (g_RC * (x_c * saved.r_hat)).sum(0)
    h = g_RC * gamma
    h_mean, h_x = h.mean(1, keepdim=True), (h * x_c).mean(1, keepdim=True)
    g_x = h.sub_(h_mean).mul_(saved.r_hat).sub_(x_c.mul_(saved.r**3 * h_x))
    return g_x, g_gamma, g_RC.sum(0)
