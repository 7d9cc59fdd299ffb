"""CHOCO-SGD in two buffers, for fixed graphs (arXiv 2111.09389, Algorithm 2).

Source: reference.md, section 3.3.

Symbols:
    x: numerator   u: push weight   x~: x after the local step   eta: averaging rate
    w_e: mixing weight of an edge   h: public copy   q: compressed difference
    S: sum over in-edges of w_e h[e]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Share
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class FixedGraphChocoState(GossipState):
    """The two extra buffers of CHOCO that the paper counts.

    Attributes:
        h: public copy, the same on all out-edges because they always carry the same messages.
        S: sum over in-edges of w_e h[e].
    """

    h: Tensor
    S: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedGraphChoco:
    """CHOCO-SGD where the same edges carry one message each in every exchange.

    This form needs two buffers, whatever the degree. Its result equals that of `ChocoNumerator` up
    to rounding; it equals that of `Choco` if the weights are doubly stochastic, since u then stays
    1. The form is wrong if edges change, or if a device may absorb several messages of one edge, or
    none, in a round. Example: at free pace device 0 absorbs two messages of device 1 and one of
    device 2. S then holds the public copy of device 1 after both messages, but it is added to x
    only once, so mass is lost. A round without any message is a local step.
    """

    name: ClassVar[str] = "choco"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> FixedGraphChocoState:  # noqa: ARG002
        """Public copies start at zero."""
        return FixedGraphChocoState(x, 1.0, torch.zeros_like(x), torch.zeros_like(x))

    def send_(
        self, state: FixedGraphChocoState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send q = C(x~ - h); then h += q and x = x~ - eta (1 - w_self) h."""
        if not out_edges:
            return []
        x, u, h = state.x, state.u, state.h
        q = self.compressor.compress(x - h, self.layout, rng)
        q.add_to_(h)
        leaving = self.averaging_rate * sum(edge.weight for edge in out_edges)
        x.sub_(h, alpha=leaving)
        state.u -= leaving * u
        return [Share(edge.receiver, edge.weight, u, q) for edge in out_edges]

    def absorb_(self, state: FixedGraphChocoState, received: Sequence[Share]) -> None:
        """Set S += w_e q for each in-edge, then x += eta S; u += eta sum_e w_e u_sender."""
        if not received:  # a local step between two exchanges
            return
        eta = self.averaging_rate
        for share in received:
            share.payload.add_to_(state.S, scale=share.weight)
            state.u += eta * share.weight * share.push_weight
        state.x.add_(state.S, alpha=eta)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        send = vector_work(n, ops=1, passes=3) + message.compress_work()  # q = C(x - h)
        send += message.add_work() + vector_work(n, ops=2, passes=3)  # h += q, x -= eta (1 - w) h
        mix = vector_work(n, ops=2, passes=3)  # x += eta S
        debias = vector_work(n, ops=1, passes=2)
        absorb = message.add_times_work() * in_degree + mix * min(in_degree, 1)
        return send * min(out_degree, 1) + absorb + debias

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Two copies, and x - h while it is compressed."""
        return Buffers(kept=2, payloads=min(out_degree, 1), operands=1)
