"""CHOCO-SGD with push-sum over directed graphs (arXiv 2111.09389, Algorithm 2; R§3.3).

Symbols:
    x: numerator   u: push weight   x~: x after the local step   eta: averaging rate
    e = (j -> i): edge, j sends to i   w_e: its mixing weight, chosen by j   h[e]: its public copy
    q: compressed difference   S: sum over in-edges of w_e h[e]

The correction uses sum_e w_e h[e] - (1 - w_self) h, never (W - I)_ij (h_j - h_i) as printed in the
paper's Algorithm 5, which loses mass unless the rows of W sum to one (R§9.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import GossipState, OutEdge, OwnEdge, Share
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
        """Both kinds."""
        return self.sent, self.received


@dataclass(frozen=True, slots=True, kw_only=True)
class Choco:
    """CHOCO-SGD per edge and per message: right on fixed and on changing graphs, at any pace.

    Mass: what the sender takes from x, eta w_e h[e], is exactly what the receiver adds.
    """

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout
    name: str = "choco"

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> ChocoState:  # noqa: ARG002
        """All public copies start at zero and come to be with the first message of their edge."""
        return ChocoState(x, 1.0)

    def send_(
        self, state: ChocoState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Q = C(x~ - h[e]); h[e] += q on each active edge, then x = x~ - eta sum_e w_e h[e]."""
        eta, x, u = self.averaging_rate, state.x, state.u
        shares = []
        for edge in out_edges:
            h = state.sent.setdefault((edge.receiver, edge.address), torch.zeros_like(x))
            q = self.compressor.compress(x - h, self.layout, rng)
            q.add_to_(h)
            shares.append(Share(edge.receiver, edge.weight, u, q, edge.address))
        for edge in out_edges:
            x.sub_(state.sent[edge.receiver, edge.address], alpha=eta * edge.weight)
            state.u -= eta * edge.weight * u
        return shares

    def absorb_(self, state: ChocoState, received: Sequence[Share]) -> None:
        """h[e] += q; x += eta w_e h[e]; u += eta w_e u_sender."""
        eta = self.averaging_rate
        for share in received:
            h = state.received.setdefault((share.peer, share.address), torch.zeros_like(state.x))
            share.payload.add_to_(h)
            state.x.add_(h, alpha=eta * share.weight)
            state.u += eta * share.weight * share.push_weight


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
    """CHOCO-SGD where the same edges carry one message each in every exchange (R§3.3 as printed).

    Equal to `Choco` up to rounding; needs two buffers whatever the degree. Wrong where edges come
    and go, or where a device may absorb none or two messages of an edge beside one of another. A
    round without any message is a local step.
    """

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout
    name: str = "choco"

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> FixedGraphChocoState:  # noqa: ARG002
        """Public copies start at zero."""
        return FixedGraphChocoState(x, 1.0, torch.zeros_like(x), torch.zeros_like(x))

    def send_(
        self, state: FixedGraphChocoState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Q = C(x~ - h); h += q; x = x~ - eta (1 - w_self) h."""
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
        """S += w_e q for each in-edge, then x += eta S; u += eta sum_e w_e u_sender."""
        if not received:  # a local step between two exchanges
            return
        eta = self.averaging_rate
        for share in received:
            share.payload.add_to_(state.S, scale=share.weight)
            state.u += eta * share.weight * share.push_weight
        state.x.add_(state.S, alpha=eta)
