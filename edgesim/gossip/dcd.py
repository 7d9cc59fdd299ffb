"""DCD-PSGD, Bagua's low-precision decentralized SGD (reference.md, section 7).

Symbols:
    x: model (u is 1 throughout)   x~: x after the local step   h: own public copy
    h[e]: copy of the in-neighbour at the other end of e   w_e: mixing weight   q: compressed step

After every exchange x equals the public copy, so x follows the compressed trajectory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Share
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class DcdState(GossipState):
    """Own copy and one copy per in-neighbour, each equal bit for bit to its owner's x.

    Attributes:
        h: own public copy, shape (D,).
        received: copies by sender.
        in_weights: w_e by sender; the same in every exchange.
    """

    h: Tensor
    received: dict[int, Tensor]
    in_weights: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dcd:
    """Bagua's low-precision decentralized SGD: weights on the compressed path.

    Source: docs/reference.md, section 7.

    It averages with one fixed W, equal in both directions, and has no push weights to mend another.
    """

    name: ClassVar[str] = "dcd"
    keeps_edges: ClassVar[bool] = False
    mixes_first: ClassVar[bool] = True
    is_idle_without_edges: ClassVar[bool] = True
    needs_one_graph: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> DcdState:
        """All copies start at the common initial model."""
        received = {peer: x.clone() for peer in sorted(in_weights)}
        return DcdState(x, 1.0, x.clone(), received, dict(in_weights))

    def send_(
        self, state: DcdState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send q = C(t) with t = x~ - h + sum_e w_e h[e] - (1 - w_self) h; then h += q; x = h."""
        if not out_edges:  # no neighbour would repeat a change of the public copy
            return []
        x, h = state.x, state.h
        t = x - h
        for peer in sorted(state.received):
            t.add_(state.received[peer], alpha=state.in_weights[peer])
        t.sub_(h, alpha=sum(edge.weight for edge in out_edges))
        q = self.compressor.compress(t, self.layout, rng)
        q.add_to_(h)
        x.copy_(h)
        return [Share(edge.receiver, edge.weight, state.u, q) for edge in out_edges]

    def absorb_(self, state: DcdState, received: Sequence[Share]) -> None:
        """Change the copies of the neighbours by their differences: h[e] += q."""
        for share in received:
            share.payload.add_to_(state.received[share.peer])

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        # t = x - h + sum_e w_e h[e] - (1 - w) h, q = C(t), h += q, x = h; u is 1 throughout.
        send = vector_work(n, ops=1, passes=3) + vector_work(n, ops=2, passes=3) * (in_degree + 1)
        send += message.compress_work() + message.add_work() + vector_work(n, ops=0, passes=2)
        return send * min(out_degree, 1) + message.add_work() * in_degree

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """The own copy, one for each in-neighbour, and t while it is compressed."""
        return Buffers(kept=1 + in_degree, payloads=min(out_degree, 1), operands=1, models=0)
