"""BEER: gradient tracking whose messages are compressed differences to public copies.

Source: reference.md, section 13; Zhao et al. 2022 (arXiv 2201.13320), Algorithm 1; `BEER` of its
authors' code, whose order this is: tracker, model, then one message with what both have changed.

The authors' program keeps the sum of the neighbours' copies, and takes its own copy from it when it
mixes. Rounding errors of that sum would remain, and c would add them up in every round. R is that
difference: what a message adds to R of its receiver is taken from R of its sender, so that errors
vanish as the devices come together.

Symbols:
    x: model (u is 1 throughout)   x~: x after the local steps since the last exchange
    s: x~ - x, -gamma d for one step   y: tracker of the fleet's mean step, -gamma v   c: y - s
    eta: averaging rate   w_e: mixing weight of an edge   q: compressed difference
    h, g: public copies of x and y; p: both, one after the other
    R: sum over in-edges of w_e p[e], less the sum over out-edges of w_e p
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, OutEdge, Share
from edgesim.gossip.corrected import CorrectedState
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.gossip.two_vectors import form_of_both, twice
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class BeerState(CorrectedState):
    """Correction, starting point and public copies of compressed gradient tracking.

    Attributes:
        before: x after the last exchange, shape (D,).
        p: own public copies of x and y, shape (2D,).
        R: sum over in-edges of w_e p[e], less that over out-edges of w_e p, shape (2D,).
    """

    before: Tensor = field(kw_only=True)
    p: Tensor = field(kw_only=True)
    R: Tensor = field(kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beer:
    """BEER: gradient tracking that sends compressed differences of model and tracker.

    Source: docs/reference.md, section 13. It needs a fixed graph in lockstep with doubly stochastic
    weights, on which it keeps the mean of x. Any compressor is allowed; the proofs are of
    contractive ones. Differs from the authors' code: y and its copies follow the learning rate.

    Attributes:
        averaging_rate: eta, which is gamma in the publication.
    """

    name: ClassVar[str] = "beer"
    keeps_edges: ClassVar[bool] = False
    mixes_first: ClassVar[bool] = True
    is_idle_without_edges: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "balanced"
    carries_steps: ClassVar[bool] = True

    averaging_rate: float
    compressor: Compressor
    layout: ParameterLayout

    @property
    def message_layouts(self) -> tuple[ParameterLayout, ...]:
        """Of the two vectors of a message."""
        return (twice(self.layout),)

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> BeerState:  # noqa: ARG002
        """Public copies and c start at zero, so that the first y is s."""
        p, R = torch.zeros_like(torch.cat((x, x))), torch.zeros_like(torch.cat((x, x)))
        return BeerState(x, 1.0, torch.zeros_like(x), before=x.clone(), p=p, R=R)

    def send_(
        self, state: BeerState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Mix c and x~ by R; x = x~ + c, y = s + c; send q = C((x, y) - p); p += q; R -= w_e q."""
        if not out_edges:
            return []
        x, c, p, R, numel = state.x, state.c, state.p, state.R, self.layout.numel
        state.rescale_(c, p[numel:], R[numel:])
        y = torch.sub(x, state.before, out=state.before)  # s
        c.add_(R[numel:], alpha=self.averaging_rate)
        x.add_(R[:numel], alpha=self.averaging_rate).add_(c)
        y.add_(c)
        q = self.compressor.compress(torch.cat((x, y)).sub_(p), twice(self.layout), rng)
        q.add_to_(p)
        for edge in out_edges:  # one by one: the same products as at the receivers
            q.add_to_(R, scale=-edge.weight)
        state.before.copy_(x)
        return [Share(edge.receiver, edge.weight, state.u, q) for edge in out_edges]

    def absorb_(self, state: BeerState, received: Sequence[Share]) -> None:
        """Set R += w_e q for each in-edge, to be mixed in the next exchange."""
        for share in received:
            share.payload.add_to_(state.R, scale=share.weight)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, form_of_both(self.compressor, self.layout)
        send = vector_work(n, ops=1, passes=3) * 3  # s = x~ - x, x += c, y = s + c
        send += vector_work(n, ops=2, passes=3) * 2  # c and x: += eta R
        send += vector_work(2 * n, ops=1, passes=3) + message.compress_work()  # q = C((x, y) - p)
        send += message.add_work() + vector_work(n, ops=0, passes=2)  # p += q, the copy of x
        mix = message.add_times_work() * (out_degree + in_degree)  # R -= w_e q, R += w_e q
        return send * min(out_degree, 1) + mix

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Six vectors: c, x before the step, p and R; and both differences that are compressed."""
        return Buffers(kept=6, payloads=min(out_degree, 1), operands=2, models=0)
