"""Adam on flat vectors, with moments of the device's own gradients or of the fleet's movement.

Sources: arXiv 1412.6980, Algorithm 1; arXiv 2102.04761 (quasi-global moments); docs/reference.md,
sections 3.5, 5 and 9.8.

Symbols: as in optimizers.py, and
    v: second moment   t: number of the step, from 1   eps: keeps quotients finite
    b1, b2: decay of the first and of the second moment   n: normalised movement of a whole round
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgesim.hardware.work import Work
from edgesim.learning.optimizers import in_parts, update_work

_DIRECTION_EPSILON = 1e-8  # added to the norm of a movement, as in the authors' code

Decay = Annotated[float, Field(ge=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, le=1)]
WeightDecay = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(slots=True)
class AdamState:
    """State of a device's Adam between rounds.

    Attributes:
        m: first moment, shape (D,).
        v: second moment, shape (D,).
        steps: t, steps that were taken.
        before: shape (D,), x before the step of the round under way, kept only by optimizers that
            compare it with x+; otherwise None.
    """

    m: Tensor
    v: Tensor
    steps: int = 0
    before: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Adam with moments of the device's own gradients, equal to torch.optim.Adam or AdamW on x.

    a = g + wd x;  m = b1 m + (1 - b1) a;  v = b2 v + (1 - b2) a^2;
    x~ = x - gamma (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
    Decoupled (arXiv 1711.05101): a = g, and x is first multiplied by 1 - gamma wd.

    Attributes:
        beta1: b1.
        beta2: b2; the paper prints 0.9, probably 0.999 mistyped (docs/reference.md, section 9.8).
        epsilon: eps.
        weight_decay: wd.
        decoupled: AdamW: decay does not pass through the moments.
    """

    kept: ClassVar[int] = 2
    kept_in_gossip: ClassVar[int] = 0

    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.0
    decoupled: bool = False

    def work(self, num_trainable: int) -> Work:
        """Of the formulas above, entry by entry."""
        # a: 2, or x (1 - gamma wd): 1; m: 3; v: 4; root, quotient by sqrt(1 - b2^t), + eps: 3;
        # product with gamma / (1 - b1^t), quotient, difference: 3.
        ops = 14 if self.decoupled else 15
        # g, x, m, v read; x, m, v written.
        return update_work("adam_update", num_trainable, ops=ops, passes=7)

    def init(self, x: Tensor) -> AdamState:
        """Zero moments."""
        return AdamState(torch.zeros_like(x), torch.zeros_like(x))

    def step_(self, state: AdamState, x: Tensor, g: Tensor, gamma: float) -> None:
        """Local step in place in `x`; `g` is overwritten."""
        state.steps += 1
        rates = _rates(gamma, self.beta1, self.beta2, state.steps)
        for part, g_part, m, v in in_parts(x, g, state.m, state.v):
            if self.decoupled:
                part.mul_(1 - gamma * self.weight_decay)
                a = g_part
            else:
                a = g_part.add_(part, alpha=self.weight_decay)
            m.mul_(self.beta1).add_(a, alpha=1 - self.beta1)
            v.mul_(self.beta2).addcmul_(a, a, value=1 - self.beta2)
            _move_(part, m, v, rates, self.epsilon)

    def after_gossip_(self, state: AdamState, x: Tensor, u: float, gamma: float) -> None:
        """Do nothing: own moments do not depend on gossip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuasiGlobalAdam:
    """Adam whose moments follow the movement that gossip produced (QG-DAdam).

    a = g + wd x;  m' = b1 m + c a;  v' = b2 v + (1 - b2) a^2;
    x~ = x - gamma (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps);  after gossip
    n = (x - x+) / (|x - x+| + 1e-8 u);  m <- b1 m + (1 - b1) n;  v <- b2 v + (1 - b2) n^2.
    The authors' code has c = 1; Adam's own is c = 1 - b1.

    Attributes:
        beta1: b1.
        beta2: b2; the paper prints 0.9, probably 0.999 mistyped (docs/reference.md, section 9.8).
        epsilon: eps.
        weight_decay: wd.
        damped: c = 1 - beta1 instead of 1.
    """

    kept: ClassVar[int] = 2
    kept_in_gossip: ClassVar[int] = 1

    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.0
    damped: bool = False

    def work(self, num_trainable: int) -> Work:
        """Work of the local step and of `after_gossip_`, entry by entry."""
        # a: 2; m': 2, or 3 with c; v': 4; root, quotient, sum: 3; product, quotient, difference: 3.
        # Then x - x+ 1, its norm 2, n: 1; m: 3; v: 4.
        ops = 26 if self.damped else 25
        # g, x, m, v read; x and its copy written; then x, its copy, m, v read; m, v written.
        return update_work("quasi_global_adam_update", num_trainable, ops=ops, passes=6 + 6)

    def init(self, x: Tensor) -> AdamState:
        """Zero moments."""
        return AdamState(torch.zeros_like(x), torch.zeros_like(x))

    def step_(self, state: AdamState, x: Tensor, g: Tensor, gamma: float) -> None:
        """Local step in place in `x`; `g` is overwritten, the moments stay."""
        state.steps += 1
        state.before = x.clone()
        rates = _rates(gamma, self.beta1, self.beta2, state.steps)
        c = 1 - self.beta1 if self.damped else 1.0
        for part, g_part, m, v in in_parts(x, g, state.m, state.v):
            a = g_part.add_(part, alpha=self.weight_decay)
            second = (v * self.beta2).addcmul_(a, a, value=1 - self.beta2)
            first = a.mul_(c).add_(m, alpha=self.beta1)
            _move_(part, first, second, rates, self.epsilon)

    def after_gossip_(self, state: AdamState, x: Tensor, u: float, gamma: float) -> None:  # noqa: ARG002
        """Fold the direction of the whole round's movement into the moments."""
        assert state.before is not None, "after_gossip_ follows step_"
        moved = state.before.sub_(x)
        # In float64: the norm must not depend on the order in which torch adds.
        norm = float(torch.linalg.vector_norm(moved, dtype=torch.float64))
        n = moved.mul_(1 / (norm + _DIRECTION_EPSILON * u))
        state.m.mul_(self.beta1).add_(n, alpha=1 - self.beta1)
        state.v.mul_(self.beta2).addcmul_(n, n, value=1 - self.beta2)
        state.before = None


def _rates(gamma: float, beta1: float, beta2: float, steps: int) -> tuple[float, float]:
    """The factors gamma / (1 - b1^t) and sqrt(1 - b2^t)."""
    return gamma / (1 - beta1**steps), sqrt(1 - beta2**steps)


def _move_(x: Tensor, m: Tensor, v: Tensor, rates: tuple[float, float], epsilon: float) -> None:
    """Subtract rate m / (sqrt(v) / root + eps) from x."""
    rate, root = rates
    x.addcdiv_(m, v.sqrt().div_(root).add_(epsilon), value=-rate)
