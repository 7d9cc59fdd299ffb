"""Global Update Tracking, without momentum (GUT) and with quasi-global momentum (QG-GUTm).

Source: reference.md, section 13; Aketi, Hashemi and Roy 2023 (arXiv 2305.04792); `GUT` of their
code. Devices send only models, from whose changes the receiver computes the updates of others.

Symbols:
    x: model (u is 1 throughout), after the last exchange   x~: x - gamma g after the local step
    M: sum_j w_ij x_j, the own model included   y: tracked update   m: quasi-global momentum
    mu: tracking factor   beta: momentum   x+, M+: after gossip

    delta = g - (M - x) / gamma;    y = delta + mu r;    d = beta m + y;    x+ = x - gamma d
    r = (M before - M) / gamma - g before - beta (M before - x before) / gamma
    m+ = beta m + (1 - beta) d

Their code writes r as a sum of shifted updates of the neighbours, less delta before. For beta = 0
the shifts and the gossip in delta cancel. R = gamma r and Y = gamma m are kept, as both add to x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Share
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class GutState(GossipState):
    """State of GUT beside x.

    Attributes:
        before: x after the last exchange, shape (D,).
        mixed: M, shape (D,).
        tracked: R, shape (D,).
        momentum: Y, shape (D,); None without momentum.
        gamma: learning rate that R and Y belong to; 0 before the first step.
    """

    before: Tensor
    mixed: Tensor
    tracked: Tensor
    momentum: Tensor | None = None
    gamma: float = 0.0

    def take_rate_(self, gamma: float) -> None:
        """Rescale R and Y to a learning rate."""
        if self.gamma not in {0.0, gamma}:
            self.tracked.mul_(gamma / self.gamma)
            if self.momentum is not None:
                self.momentum.mul_(gamma / self.gamma)
        self.gamma = gamma


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalUpdateTracking:
    """Global Update Tracking: neighbours' updates from the models that they send anyway.

    Source: docs/reference.md, section 13. It needs a fixed graph with symmetric weights in
    lockstep, and sends whole vectors. The momentum is of the method: set
    training.optimizer.momentum to 0. Differs from the authors' code: at a new learning rate the
    models are mixed with full weight.

    Attributes:
        mu: tracking factor; 0 is D-PSGD; as published 0.9 without momentum, 0.06 with 0.9 of it.
        momentum: beta of the quasi-global momentum (QG-GUTm); 0 is GUT.
        averaging_rate: eta, factor of the weights; 1 as published.
        compressor: an `Identity` that rounds nothing.
    """

    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True
    needs_one_graph: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "balanced"
    carries_steps: ClassVar[bool] = True
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout
    mu: Annotated[float, Field(ge=0, lt=1)] = 0.9
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    averaging_rate: float = 1.0
    name: str = "gut"

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> GutState:  # noqa: ARG002
        """State in which all models are equal, so M = x."""
        momentum = torch.zeros_like(x) if self.momentum else None
        return GutState(x, 1.0, x.clone(), x.clone(), torch.zeros_like(x), momentum)

    def send_(
        self, state: GutState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Set x+ = x - gamma d and send it; begin the next M and R."""
        if not out_edges:
            return []
        x, before, beta = state.x, state.before, self.momentum
        step = x - before  # -gamma g
        gossip = state.mixed - before
        update = step + gossip
        update.sub_(state.tracked, alpha=self.mu)  # -gamma y
        if state.momentum is not None:
            update.sub_(state.momentum, alpha=beta)  # -gamma d
            state.momentum.mul_(beta).sub_(update, alpha=1 - beta)
        torch.add(state.mixed, step, out=state.tracked).sub_(gossip, alpha=beta)
        torch.add(before, update, out=x)
        before.copy_(x)
        leaving = self.averaging_rate * sum(edge.weight for edge in out_edges)
        torch.mul(x, 1 - leaving, out=state.mixed)
        message = self.compressor.compress(x, self.layout, rng)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state: GutState, received: Sequence[Share]) -> None:
        """Set M+ += eta w_e x+ for each share; then R -= M+."""
        if not received:
            return
        for share in received:
            share.payload.add_to_(state.mixed, scale=self.averaging_rate * share.weight)
        state.tracked.sub_(state.mixed)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        sums = 5 + (1 if self.momentum else 0)  # step, gossip, update, R begun, x+; with momentum R
        send = vector_work(n, ops=1, passes=3) * sums + vector_work(n, ops=2, passes=3)  # mu R
        if self.momentum:
            send += vector_work(n, ops=2, passes=3) + vector_work(n, ops=3, passes=3)
        send += vector_work(n, ops=0, passes=2) + vector_work(n, ops=1, passes=2)
        send += message.compress_work()
        track = vector_work(n, ops=1, passes=3)
        absorb = message.add_times_work() * in_degree + track * min(in_degree, 1)
        return send * min(out_degree, 1) + absorb

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Three or four vectors; step, gossip and update while x+ is made."""
        kept = 3 + (1 if self.momentum else 0)
        return Buffers(kept=kept, payloads=min(out_degree, 1), operands=3, models=0)
