"""CHOCO-SGD with push-sum as published: it tracks the numerator x (arXiv 2111.09389, Algorithm 2).

Source: reference.md, section 3.3. This form serves for comparison; use choco.py where u changes.

Symbols:
    x: numerator   u: push weight   x~: x after the local step   eta: averaging rate
    e = (j -> i): edge, j sends to i   w_e: its mixing weight, chosen by j   h[e]: its public copy
    q: compressed difference

The correction uses sum_e w_e h[e] - (1 - w_self) h, never (W - I)_ij (h_j - h_i) as printed in the
paper's Algorithm 5, which loses mass unless the rows of W sum to one (reference.md, section 9.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, Exchanges, Form, OutEdge, Share
from edgesim.gossip.choco import ChocoState
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.optional_members import Disagreement
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ChocoNumerator:
    """CHOCO-SGD as published: differences of x = u z, not of the model.

    Source: docs/reference.md, section 3.3.

    It works per edge and per message, on changing graphs and at any pace.

    Where push weights change, x changes even at consensus. Then compression noise keeps devices
    apart, and with a large averaging rate the distance grows without bound. A device whose u falls
    below `LEAST_PUSH_WEIGHT` still sends mass: unlike `Choco`, the published form has no guard.
    Quasi-global momentum compares models, z = x/u before and after gossip, where reference.md,
    section 3.5, compares numerators; the two are the same where u is 1.

    Mass: what the sender takes from x, eta w_e h[e], is exactly what the receiver adds.

    Attributes:
        name: in the headers of messages; the name of `Choco`, as its messages have the same parts
            and length.
    """

    name: ClassVar[str] = "choco"
    keeps_edges: ClassVar[bool] = True
    is_idle_without_edges: ClassVar[bool] = True
    disagrees: ClassVar[Disagreement] = "where push weights move"

    @staticmethod
    def for_exchanges(exchanges: Exchanges) -> Form:
        """Two buffers do where all edges carry one message in every exchange."""
        return FixedGraphChoco if exchanges.are_fixed else ChocoNumerator

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> ChocoState:  # noqa: ARG002
        """No public copies yet: the first message of an edge creates one, which starts at zero."""
        return ChocoState(x, 1.0)

    def send_(
        self, state: ChocoState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send q = C(x~ - h[e]), h[e] += q on each edge; then x = x~ - eta sum_e w_e h[e]."""
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

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        edge = vector_work(n, ops=2, passes=3)  # x -= eta w h or x += eta w h
        send = vector_work(n, ops=1, passes=3) + message.compress_work()  # q = C(x - h)
        absorb = message.add_work() + edge
        debias = vector_work(n, ops=1, passes=2)
        return (send + message.add_work() + edge) * out_degree + absorb * in_degree + debias

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """A copy and a message for each edge, and x - h while it is compressed."""
        return Buffers(kept=out_degree + in_degree, payloads=out_degree, operands=1)
