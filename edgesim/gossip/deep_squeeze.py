"""DeepSqueeze with push-sum, also known as Sparse-Push (arXiv 2111.09389, Algorithm 4).

Source: reference.md, section 3.4.

Symbols:
    x: numerator   u: push weight   x~: x after the local step   eta: averaging rate
    delta: accumulated compression error   c: compressed model   w_e: mixing weight of an edge
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Share, edges_with_mass
from edgesim.gossip.optional_members import Disagreement
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class DeepSqueezeState(GossipState):
    """Adds the error-feedback memory delta, shape (D,)."""

    delta: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSqueeze:
    """DeepSqueeze / Sparse-Push: compressed models with error feedback.

    Source: docs/reference.md, section 3.4.

    Mass: for each active out-edge the sender subtracts eta w_e c from x, and the receiver adds
    exactly that.
    """

    name: ClassVar[str] = "deepsqueeze"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True
    disagrees: ClassVar[Disagreement] = "everywhere"

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> DeepSqueezeState:  # noqa: ARG002
        """State with delta = 0."""
        return DeepSqueezeState(x, 1.0, torch.zeros_like(x))

    def send_(
        self, state: DeepSqueezeState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send c = C(x~ + delta); set delta = x~ + delta - c and x = x~ - eta (1 - w_self) c."""
        if not out_edges:
            return []
        out_edges = edges_with_mass(state, out_edges)
        x, u = state.x, state.u
        v = state.delta.add_(x)
        c = self.compressor.compress(v, self.layout, rng)
        c.add_to_(v, scale=-1.0)  # v becomes the new delta
        leaving = self.averaging_rate * sum(edge.weight for edge in out_edges)
        c.add_to_(x, scale=-leaving)
        state.u -= leaving * u
        return [Share(edge.receiver, edge.weight, u, c, edge.address) for edge in out_edges]

    def absorb_(self, state: DeepSqueezeState, received: Sequence[Share]) -> None:
        """Add each share: x += eta w_e c; u += eta w_e u_sender."""
        for share in received:
            scale = self.averaging_rate * share.weight
            share.payload.add_to_(state.x, scale=scale)
            state.u += scale * share.push_weight

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        send = vector_work(n, ops=1, passes=3) + message.compress_work()  # v = delta + x, c = C(v)
        send += message.add_work() + message.add_times_work()  # delta = v - c, x -= eta (1 - w) c
        debias = vector_work(n, ops=1, passes=2)
        return send * min(out_degree, 1) + message.add_times_work() * in_degree + debias

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """One vector, delta, and one message."""
        return Buffers(kept=1, payloads=min(out_degree, 1), operands=0)
