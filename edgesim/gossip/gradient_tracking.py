"""Gradient tracking: devices also gossip an estimate of the fleet's mean step.

Source: reference.md, section 13; Pu and Nedic 2021 (arXiv 1805.11454); `gradient_tracking` of
RelaySGD's code.

Symbols:
    x: model (u is 1 throughout)   x~: x after the local steps since the last exchange
    s: x~ - x, -gamma d for one step   c: correction   x+, c+: after gossip
    eta: averaging rate   w_e: mixing weight of an edge
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, OutEdge, Share
from edgesim.gossip.corrected import CorrectedState
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.gossip.two_vectors import add_both_, compress_both, form_of_both, twice
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class TrackingState(CorrectedState):
    """Correction and starting point of a method that tracks the mean step.

    Attributes:
        before: x after the last exchange, shape (D,).
    """

    before: Tensor = field(kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTracking:
    """Gradient tracking: two vectors a message, the corrected model and the corrected step.

    Source: docs/reference.md, section 13. It needs a fixed graph in lockstep with doubly stochastic
    weights, one-way links included, and sends whole vectors. It keeps the mean of x. Differs from
    the authors' code: c follows the learning rate.

    Attributes:
        averaging_rate: eta; 1 is the published method.
        compressor: an `Identity` that rounds nothing.
    """

    name: ClassVar[str] = "gradient_tracking"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "balanced"
    carries_steps: ClassVar[bool] = True
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout
    averaging_rate: float = 1.0

    @property
    def message_layouts(self) -> tuple[ParameterLayout, ...]:
        """Of the two vectors of a message."""
        return (twice(self.layout),)

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> TrackingState:  # noqa: ARG002
        """State with c = 0."""
        return TrackingState(x, 1.0, torch.zeros_like(x), before=x.clone())

    def send_(
        self, state: TrackingState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send x~ + c and c + s; keep the own weight of both, and take s from c."""
        if not out_edges:
            return []
        x, c = state.x, state.c
        state.rescale_(c)
        s = torch.sub(x, state.before, out=state.before)
        x.add_(c)
        c.add_(s)
        message = compress_both(self.compressor, self.layout, x, c, rng)
        kept = 1 - self.averaging_rate * sum(edge.weight for edge in out_edges)
        x.mul_(kept)
        c.mul_(kept).sub_(s)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state: TrackingState, received: Sequence[Share]) -> None:
        """Add eta w_e times the two vectors of each share to x+ and c+."""
        if not received:
            return
        add_both_(state.x, state.c, received, self.averaging_rate)
        state.before.copy_(state.x)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, form_of_both(self.compressor, self.layout)
        send = vector_work(n, ops=1, passes=3) * 3 + message.compress_work()  # s, x~ + c, c + s
        send += vector_work(n, ops=1, passes=2) + vector_work(n, ops=2, passes=3)  # what is kept
        copy = vector_work(n, ops=0, passes=2)
        absorb = message.add_times_work() * in_degree + copy * min(in_degree, 1)
        return send * min(out_degree, 1) + absorb

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Two vectors, c and x before the step, and two that are sent."""
        return Buffers(kept=2, payloads=min(out_degree, 1), operands=2, models=0)
