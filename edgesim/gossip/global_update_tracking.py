"""Global Update Tracking, without momentum (GUT) and with quasi-global momentum (QG-GUTm).

Source: reference.md, section 13; Aketi, Hashemi and Roy 2023 (arXiv 2305.04792); `GUT` of their
code. Devices send only models, from whose changes the receiver computes the updates of others.

Symbols:
    o: own model, which is sent; x in the paper   x: sum_j w_ij o_j, the own one included
    x~: x - gamma g after the local step, g being the gradient at x   y: tracked update
    mu: tracking factor   m: quasi-global momentum   beta: momentum   o+, x+: after gossip

    delta = g - (x - o) / gamma;    y = delta + mu r;    d = beta m + y;    o+ = o - gamma d
    r+ = (x - x+) / gamma - g - beta (x - o) / gamma;    m+ = beta m + (1 - beta) d

As in their code, gradients are those at the mixed model, and here x is what is trained and
evaluated. Their code writes r as a sum of shifted updates of the neighbours, less delta before. R =
gamma r and Y = gamma m are kept, as both add to x. For beta = 0 the shifts and the gossip in delta
cancel: o+ = x~ - mu R and R+ = x~ - x+. Then mu = 1 is D2.
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
from edgesim.gossip.algorithm import Buffers, OutEdge, Share
from edgesim.gossip.corrected import RatedState
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class GutState(RatedState):
    """State of GUT beside x.

    Attributes:
        tracked: R, shape (D,).
        momentum: Y, shape (D,); it and the next two are None without momentum.
        own: o, shape (D,).
        shift: x - o after the last exchange, shape (D,).
    """

    tracked: Tensor
    momentum: Tensor | None = None
    own: Tensor | None = None
    shift: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalUpdateTracking:
    """Global Update Tracking: neighbours' updates from the models that they send anyway.

    Source: docs/reference.md, section 13. It needs a fixed graph with symmetric weights in
    lockstep, and sends whole vectors. The momentum is of the method: set
    training.optimizer.momentum to 0. Differs from the authors' code: at a new learning rate the
    models are mixed with full weight, and the momentum is that of section 3.5, where their program
    has m = beta m + y and moves x by it.

    Attributes:
        mu: tracking factor; 0 is D-PSGD; as published 0.9 without momentum, 0.06 with 0.9 of it.
        momentum: beta of the quasi-global momentum (QG-GUTm); 0 is GUT.
        averaging_rate: eta, factor of the weights; 1 as published.
        compressor: an `Identity` that rounds nothing.
    """

    name: ClassVar[str] = "gut"
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

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> GutState:  # noqa: ARG002
        """State in which all models are equal, so o = x."""
        state = GutState(x, 1.0, torch.zeros_like(x))
        if self.momentum:
            state.momentum, state.shift = torch.zeros_like(x), torch.zeros_like(x)
            state.own = x.clone()
        return state

    def send_(
        self, state: GutState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send o+ = x~ - mu R - beta Y; begin the next R and x; Y+ = beta Y + (1-beta) (o - o+)."""
        if not out_edges:
            return []
        x, R, beta = state.x, state.tracked, self.momentum
        state.rescale_(R, state.momentum)
        v = torch.sub(x, R, alpha=self.mu)
        R.copy_(x)
        if state.momentum is not None and state.own is not None and state.shift is not None:
            v.sub_(state.momentum, alpha=beta)
            R.sub_(state.shift, alpha=beta)
            state.momentum.mul_(beta).add_(state.own.sub_(v), alpha=1 - beta)
            state.own.copy_(v)
        message = self.compressor.compress(v, self.layout, rng)
        torch.mul(v, 1 - self.averaging_rate * sum(edge.weight for edge in out_edges), out=x)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state: GutState, received: Sequence[Share]) -> None:
        """Set x+ += eta w_e o+ for each share; then R -= x+."""
        if not received:
            return
        for share in received:
            share.payload.add_to_(state.x, scale=self.averaging_rate * share.weight)
        state.tracked.sub_(state.x)
        if state.own is not None:
            torch.sub(state.x, state.own, out=state.shift)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        subtract, scaled = vector_work(n, ops=1, passes=3), vector_work(n, ops=2, passes=3)
        copy = vector_work(n, ops=0, passes=2)
        send = scaled + copy + vector_work(n, ops=1, passes=2) + message.compress_work()
        track = subtract
        if self.momentum:  # v -= beta Y, R -= beta shift; own - v, Y, own; then the next shift
            send += scaled * 2 + subtract + vector_work(n, ops=3, passes=3) + copy
            track += subtract
        absorb = message.add_times_work() * in_degree + track * min(in_degree, 1)
        return send * min(out_degree, 1) + absorb

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """R, with momentum three vectors more, and v while it is compressed."""
        kept = 4 if self.momentum else 1
        return Buffers(kept=kept, payloads=min(out_degree, 1), operands=1, models=0)
