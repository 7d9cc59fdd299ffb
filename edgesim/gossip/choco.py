"""CHOCO-SGD with push-sum that tracks the model z = x/u (reference.md, section 14).

Symbols:
    x: numerator   u: push weight   z = x/u: model   eta: averaging rate
    e = (j -> i): edge, j sends to i   w_e: its mixing weight, chosen by j   h[e]: its public copy
    q: compressed difference

The published form (choco_numerator.py) tracks x. Where u changes, x = u z still changes at
consensus, so the differences never vanish. z does not change at consensus, so here the differences
vanish. The two forms are equal where u is 1 throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import (
    LEAST_PUSH_WEIGHT,
    Buffers,
    Exchanges,
    Form,
    GossipState,
    OutEdge,
    OwnEdge,
    Share,
)
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class ChocoState(GossipState):
    """Public copies, one per edge, each equal bit for bit to the copy at the edge's other end.

    Attributes:
        sent: h[e] of out-edges.
        received: h[e] of in-edges.
    """

    sent: dict[OwnEdge, Tensor] = field(default_factory=dict)
    received: dict[OwnEdge, Tensor] = field(default_factory=dict)

    def public_copies(self) -> tuple[dict[OwnEdge, Tensor], dict[OwnEdge, Tensor]]:
        """Copies of out-edges and of in-edges."""
        return self.sent, self.received


@dataclass(frozen=True, slots=True, kw_only=True)
class Choco:
    """CHOCO-SGD with push-sum: compressed differences of models to public copies.

    Source: docs/reference.md, section 14.

    It works per edge and per message. It is also correct where push weights change: at free pace,
    on changing graphs, if devices join or leave, and on fixed digraphs whose weights are not doubly
    stochastic.

    Mass: what the sender takes from x, eta w_e u h[e], is exactly what the receiver adds.
    """

    name: ClassVar[str] = "choco"
    keeps_edges: ClassVar[bool] = True
    is_idle_without_edges: ClassVar[bool] = True

    @staticmethod
    def for_exchanges(exchanges: Exchanges) -> Form:
        """Two buffers track x, which is the model where push weights stay 1."""
        return FixedGraphChoco if exchanges.are_balanced else Choco

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> ChocoState:  # noqa: ARG002
        """No public copies yet: the first message of an edge creates one, which starts at zero."""
        return ChocoState(x, 1.0)

    def send_(
        self, state: ChocoState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send q = C(x/u - h[e]), h[e] += q on each active edge; then x -= eta u sum_e w_e h[e].

        A device that has no mass yet has no model either: its messages hold the zero vector and
        leave h[e] as it is. If u is below `LEAST_PUSH_WEIGHT`, messages change h[e] and move no
        mass.
        """
        eta, x = self.averaging_rate, state.x
        u = state.u if state.u >= LEAST_PUSH_WEIGHT else 0.0
        shares = []
        for edge in out_edges:
            h = state.sent.setdefault((edge.receiver, edge.address), torch.zeros_like(x))
            difference = (x / state.u).sub_(h) if state.u > 0 else torch.zeros_like(x)
            q = self.compressor.compress(difference, self.layout, rng)
            q.add_to_(h)
            shares.append(Share(edge.receiver, edge.weight, u, q, edge.address))
        for edge in out_edges:
            leaving = eta * edge.weight * u
            x.sub_(state.sent[edge.receiver, edge.address], alpha=leaving)
            state.u -= leaving
        return shares

    def absorb_(self, state: ChocoState, received: Sequence[Share]) -> None:
        """h[e] += q; x += eta w_e u_sender h[e]; u += eta w_e u_sender."""
        for share in received:
            h = state.received.setdefault((share.peer, share.address), torch.zeros_like(state.x))
            share.payload.add_to_(h)
            arriving = self.averaging_rate * share.weight * share.push_weight
            state.x.add_(h, alpha=arriving)
            state.u += arriving

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        edge = vector_work(n, ops=2, passes=3)  # x -= eta w u h or x += eta w u h
        model = debias = vector_work(n, ops=1, passes=2)  # z = x/u, computed for each edge
        send = model + vector_work(n, ops=1, passes=3) + message.compress_work()  # q = C(z - h)
        absorb = message.add_work() + edge
        return (send + message.add_work() + edge) * out_degree + absorb * in_degree + debias

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """A copy and a message for each edge, and z - h while it is compressed."""
        return Buffers(kept=out_degree + in_degree, payloads=out_degree, operands=1)
