"""Local optimizers on flat vectors: Nesterov SGD and quasi-global momentum.

Source: reference.md, section 3.5.

Not torch.optim: a device's state is a few flat vectors that can be moved between processes, and the
first step of torch.optim would import a compiler stack into every actor.

Symbols:
    x: numerator   g: gradient at z = x/u   u: push-sum weight   gamma: learning rate
    beta: momentum   wd: weight decay   m: momentum buffer   a: decayed gradient   d: direction
    x~ = x - gamma d: the half step before gossip   x+: after gossip
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from edgesim.hardware.layer_kinds import LayerKind
from edgesim.hardware.work import FAR_ENTRIES, LayerTally, Work, vector_work

_PART = 1 << 17  # entries of a part, which stays in the caches over several passes
_LONG = 1 << 16  # entries from which one pass takes less time than several calls
_LANES = 16  # float32 of the widest register


MomentumKind = Literal["local", "quasi_global"]


@dataclass(slots=True)
class OptimizerState:
    """State of a device's optimizer between rounds.

    Attributes:
        momentum: shape (D,); local momentum m, or the quasi-global estimate.
        half_step: shape (D,), x~ of the round under way, kept only by optimizers that compare it
            with x+; otherwise None.
    """

    momentum: Tensor
    half_step: Tensor | None = None


class Optimizer(Protocol):
    """An optimizer: a frozen object of hyper-parameters, to which its state is passed.

    Attributes:
        kept: vectors of the trained parameters' length that its state holds between rounds.
        kept_in_gossip: further ones that it holds from the local step to the end of gossip.
    """

    @property
    def kept(self) -> int:  # noqa: D102
        ...

    @property
    def kept_in_gossip(self) -> int:  # noqa: D102
        ...

    def work(self, num_trainable: int) -> Work:
        """Work of the local step of a round, and of `after_gossip_`."""
        ...

    def init(self, x: Tensor) -> OptimizerState:
        """State before the first step."""
        ...

    def step_(self, state: OptimizerState, x: Tensor, g: Tensor, gamma: float) -> None:
        """Local step x~ = x - gamma d, in place in `x`. `g` may be overwritten."""
        ...

    def after_gossip_(self, state: OptimizerState, x: Tensor, u: float, gamma: float) -> None:
        """Update the state by the change of x in gossip.

        `u` is the push weight at which `g` was taken, and `x` is u z+: a change of the push weight
        alone moves no model.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """SGD with local heavy-ball or Nesterov momentum, equal to torch.optim.SGD on x.

    a = g + wd x;  m = beta m + a;  d = a + beta m (Nesterov) or m;  x~ = x - gamma d.
    """

    kept: ClassVar[int] = 1
    kept_in_gossip: ClassVar[int] = 0

    momentum: float
    nesterov: bool
    weight_decay: float

    def work(self, num_trainable: int) -> Work:
        """Of a = g + wd x, m = beta m + a, x -= gamma d; Nesterov: d = a + beta m. Two each."""
        ops = 8 if self.nesterov else 6
        # g, x, m read; x, m written.
        return update_work("sgd_update", num_trainable, ops=ops, passes=5)

    def init(self, x: Tensor) -> OptimizerState:
        """Zero momentum."""
        return OptimizerState(torch.zeros_like(x))

    def step_(self, state: OptimizerState, x: Tensor, g: Tensor, gamma: float) -> None:
        """Local step in place in `x`; `g` is overwritten, at least in part."""
        beta, done = self.momentum, self._in_one_pass_(state, x, g, gamma)
        for part, g_part, m in in_parts(x[done:], g[done:], state.momentum[done:]):
            a = g_part.add_(part, alpha=self.weight_decay)
            m.mul_(beta).add_(a)
            d = a.add_(m, alpha=beta) if self.nesterov else m
            part.sub_(d, alpha=gamma)

    def _in_one_pass_(self, state: OptimizerState, x: Tensor, g: Tensor, gamma: float) -> int:
        """The step of a long vector's first entries by torch's fused kernel; how many they are.

        Their bits are those of single operations. The last entries, which fill no whole register,
        would get other bits, and so would all of them on a GPU.
        """
        if len(x) < _LONG or not x.is_cpu or not self.momentum or not self.weight_decay:
            return 0
        whole = len(x) // _LANES * _LANES
        torch._fused_sgd_(  # what torch.optim.SGD(fused=True) calls
            [x[:whole]],
            [g[:whole]],
            [state.momentum[:whole]],
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=gamma,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,
        )
        return whole

    def after_gossip_(self, state: OptimizerState, x: Tensor, u: float, gamma: float) -> None:
        """Do nothing: local momentum does not depend on gossip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuasiGlobalMomentum:
    """Quasi-global momentum: the buffer follows the movement that gossip produced.

    Source: reference.md, section 3.5.

    a = g + wd x;  b = beta m + a;  d = a + beta b (Nesterov) or b;  x~ = x - gamma d;
    then m <- beta m + (1 - beta) d - (1 - beta) r / gamma with r = x+ - x~, which is
    m <- beta m + (1 - beta) (x - x+) / gamma; x+ is that at the u of the step, u z+.

    Differs from the authors' code, where r is divided by u, which is 1 in all their runs: m and d
    must move the same vector, x or z. Else the sum of m over devices is not that of the steps.
    """

    kept: ClassVar[int] = 1
    kept_in_gossip: ClassVar[int] = 1

    momentum: float
    nesterov: bool
    weight_decay: float

    def work(self, num_trainable: int) -> Work:
        """Work of the local step and of `after_gossip_`, counted from the formulas."""
        # a: 2; d = (1 + beta) a + beta^2 m: 3, or a + beta m: 2; x: 2;
        # m = beta m + (1 - beta) d: 3; then r = x - x~: 1, m -= r (1 - beta) / gamma: 2.
        ops = 13 if self.nesterov else 12
        # g, x, m read and x, m, x~ written; then x, x~, m read and m written.
        return update_work("quasi_global_sgd_update", num_trainable, ops=ops, passes=6 + 4)

    def init(self, x: Tensor) -> OptimizerState:
        """Zero momentum."""
        return OptimizerState(torch.zeros_like(x))

    def step_(self, state: OptimizerState, x: Tensor, g: Tensor, gamma: float) -> None:
        """Local step in place in `x`; `g` becomes the direction."""
        beta = self.momentum
        for part, g_part, m in in_parts(x, g, state.momentum):
            a = g_part.add_(part, alpha=self.weight_decay)
            if self.nesterov:
                d = a.mul_(1 + beta).add_(m, alpha=beta * beta)  # a + beta (beta m + a)
            else:
                d = a.add_(m, alpha=beta)
            part.sub_(d, alpha=gamma)
            m.mul_(beta).add_(d, alpha=1 - beta)
        state.half_step = x.clone()

    def after_gossip_(self, state: OptimizerState, x: Tensor, u: float, gamma: float) -> None:  # noqa: ARG002
        """Fold the movement by gossip into the momentum."""
        assert state.half_step is not None, "after_gossip_ follows step_"
        r = torch.sub(x, state.half_step, out=state.half_step)
        state.momentum.sub_(r, alpha=(1 - self.momentum) / gamma)
        state.half_step = None


def update_work(kind: LayerKind, num_trainable: int, *, ops: int, passes: int) -> Work:
    """Work of an update, as `vector_work` counts it, with its kind (hardware/layer_kinds.py)."""
    counts = vector_work(num_trainable, ops=ops, passes=passes)
    tally = LayerTally(
        kind=kind,
        calls=1,
        macs=0,
        entries=num_trainable,
        far_entries=max(0, num_trainable - FAR_ENTRIES),
        weights=0,
        work=counts,
    )
    return replace(counts, layers=(tally,))


def in_parts(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of parts of vectors of one length.

    The results do not depend on the size of the parts.
    """
    if len(vectors[0]) <= _PART:
        return iter((vectors,))
    return zip(*(vector.split(_PART) for vector in vectors), strict=True)


def sgd(
    *, momentum_kind: MomentumKind, momentum: float, nesterov: bool, weight_decay: float
) -> Sgd | QuasiGlobalMomentum:
    """Stochastic gradient descent with momentum, of own gradients or quasi-global."""
    kind = Sgd if momentum_kind == "local" else QuasiGlobalMomentum
    return kind(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)


class LearningRates(Protocol):
    """Learning rate over the epochs: a frozen object."""

    def at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSchedule:
    """Rates that fall at milestones, with a reduced rate in the first epochs.

    Source: docs/reference.md, section 5.

    Attributes:
        base: learning rate gamma before any milestone.
        milestones: epochs, increasing, from which the rate is multiplied by `factor` once more.
        warmup_epochs: epochs at the start that train at `warmup_factor` times the rate.
    """

    base: float
    milestones: tuple[int, ...]
    factor: float
    warmup_epochs: int
    warmup_factor: float

    def at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        rate = self.base * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
        return rate * self.warmup_factor if epoch < self.warmup_epochs else rate
