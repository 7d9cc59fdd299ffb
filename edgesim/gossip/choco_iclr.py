"""CHOCO-SGD in the order of its authors' code of 2020: mix the old public copies, then compress.

Source: reference.md, section 3.3; Koloskova et al. 2020 (arXiv 1907.09356), `parallel_choco_v.py`
of their code. Messages of one round are needed only at the end of the next step, so a device may
train while they travel; here a round still waits for its messages.

Symbols:
    x: model (u is 1 throughout)   x~: x after the local step   eta: averaging rate
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
from edgesim.gossip.algorithm import Buffers, OutEdge, Share
from edgesim.gossip.fixed_graph_choco import FixedGraphChocoState
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ChocoIclr:
    """CHOCO-SGD in the order of its authors' code of 2020: old public copies are mixed.

    Source: docs/reference.md, section 3.3. It needs a fixed graph in lockstep with doubly
    stochastic weights, on which it keeps the mean of x. Any compressor is allowed.
    """

    name: ClassVar[str] = "choco_iclr"
    keeps_edges: ClassVar[bool] = False
    mixes_first: ClassVar[bool] = True
    is_idle_without_edges: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "balanced"

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> FixedGraphChocoState:  # noqa: ARG002
        """Public copies start at zero."""
        return FixedGraphChocoState(x, 1.0, torch.zeros_like(x), torch.zeros_like(x))

    def send_(
        self, state: FixedGraphChocoState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Set x = x~ + eta (S - (1 - w_self) h); send q = C(x - h); then h += q."""
        if not out_edges:
            return []
        eta, x, h = self.averaging_rate, state.x, state.h
        x.add_(state.S, alpha=eta).sub_(h, alpha=eta * sum(edge.weight for edge in out_edges))
        q = self.compressor.compress(x - h, self.layout, rng)
        q.add_to_(h)
        return [Share(edge.receiver, edge.weight, state.u, q) for edge in out_edges]

    def absorb_(self, state: FixedGraphChocoState, received: Sequence[Share]) -> None:
        """Set S += w_e q for each in-edge, to be mixed in the next exchange."""
        for share in received:
            share.payload.add_to_(state.S, scale=share.weight)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        send = vector_work(n, ops=4, passes=6)  # x += eta S, x -= eta (1 - w) h
        send += vector_work(n, ops=1, passes=3) + message.compress_work()  # q = C(x - h)
        send += message.add_work()
        return send * min(out_degree, 1) + message.add_times_work() * in_degree

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Two copies, and x - h while it is compressed."""
        return Buffers(kept=2, payloads=min(out_degree, 1), operands=1, models=0)
