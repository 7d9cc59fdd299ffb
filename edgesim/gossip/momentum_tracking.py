"""Momentum Tracking: gradient tracking of the local momentum, mixing x before the step.

Source: reference.md, section 13; Takezawa et al. 2023 (arXiv 2209.15505); `MTOptimizer` of their
code. The momentum m is that of the optimizer: heavy ball as published, training.optimizer.nesterov
false. State, messages and what is done with those that arrive are those of gradient tracking.

Symbols:
    x: model (u is 1 throughout), after the last exchange   x~: x - gamma m   c: correction
    s: x~ - x, -gamma m for one step   x+, c+: after gossip   C: gamma c
    eta: averaging rate   w_e: mixing weight of an edge
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgesim.gossip.algorithm import OutEdge, Share
from edgesim.gossip.gradient_tracking import GradientTracking, TrackingState
from edgesim.gossip.two_vectors import compress_both, form_of_both
from edgesim.hardware.work import Work, vector_work


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumTracking(GradientTracking):
    """Momentum Tracking: two vectors a message, the model and the corrected momentum.

    Source: docs/reference.md, section 13. It needs a fixed graph in lockstep with doubly stochastic
    weights, one-way links included, and sends whole vectors. The mean of x moves by the mean
    momentum. Differs from the authors' code: c and m start at zero, since their start takes an
    average over all devices.

    Attributes:
        averaging_rate: eta; 1 is the published method.
        compressor: an `Identity` that rounds nothing.
    """

    name: ClassVar[str] = "momentum_tracking"
    mixes_first: ClassVar[bool] = True

    def send_(
        self, state: TrackingState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send x and C + s; keep the own weight of both, add s + C to x, take s from C."""
        if not out_edges:
            return []
        x, C, before = state.x, state.c, state.before
        state.rescale_(C)
        s = x.sub_(before)  # x becomes s
        C.add_(s)
        message = compress_both(self.compressor, self.layout, before, C, rng)
        kept = 1 - self.averaging_rate * sum(edge.weight for edge in out_edges)
        before.mul_(kept).add_(C)  # x+ without what arrives
        C.mul_(kept).sub_(s)
        x.copy_(before)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, form_of_both(self.compressor, self.layout)
        send = vector_work(n, ops=1, passes=3) * 2 + message.compress_work()  # s, C + s
        send += vector_work(n, ops=2, passes=3) * 2 + vector_work(n, ops=0, passes=2)
        copy = vector_work(n, ops=0, passes=2)
        absorb = message.add_times_work() * in_degree + copy * min(in_degree, 1)
        return send * min(out_degree, 1) + absorb
