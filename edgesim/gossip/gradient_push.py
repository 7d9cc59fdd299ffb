"""Gradient push: SGP on directed graphs, D-PSGD where the weights are doubly stochastic.

Source: reference.md, sections 3.2 and 0.2; Assran et al. 2019 (SGP), Lian et al. 2017 (D-PSGD).

Symbols:
    x: numerator   u: push weight   x~: x after the local step   eta: averaging rate
    w_e: mixing weight of an edge
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Share, edges_with_mass
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientPush:
    """SGP on directed graphs, D-PSGD on regular ones: uncompressed models.

    Source: docs/reference.md, section 3.2. It sends x~ and needs no extra buffer.

    There is no error feedback: if the values have less than 32 bits, the rounding error stays in x
    of the sender.

    Attributes:
        averaging_rate: eta; 1 is SGP as published.
        compressor: an `Identity`, which only sets the format of the values.
    """

    name: ClassVar[str] = "gradient_push"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> GossipState:  # noqa: ARG002
        """State of numerator and push weight alone."""
        return GossipState(x, 1.0)

    def send_(
        self, state: GossipState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send x~; x = x~ - eta (1 - w_self) x~."""
        if not out_edges:
            return []
        out_edges = edges_with_mass(state, out_edges)
        x, u = state.x, state.u
        message = self.compressor.compress(x, self.layout, rng)
        leaving = self.averaging_rate * sum(edge.weight for edge in out_edges)
        message.add_to_(x, scale=-leaving)
        state.u -= leaving * u
        return [Share(edge.receiver, edge.weight, u, message, edge.address) for edge in out_edges]

    def absorb_(self, state: GossipState, received: Sequence[Share]) -> None:
        """Add each share: x += eta w_e x~_sender; u += eta w_e u_sender."""
        for share in received:
            scale = self.averaging_rate * share.weight
            share.payload.add_to_(state.x, scale=scale)
            state.u += scale * share.push_weight

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        send = message.compress_work() + message.add_times_work()  # x -= eta (1 - w) x~
        debias = vector_work(n, ops=1, passes=2)
        return send * min(out_degree, 1) + message.add_times_work() * in_degree + debias

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Nothing beside the message."""
        return Buffers(kept=0, payloads=min(out_degree, 1), operands=0)
