"""D2: a correction keeps devices with unlike data at the common minimum.

Source: reference.md, section 13; Tang et al. 2018 (arXiv 1803.07068); `d2` of RelaySGD's code.

As published x+ = W (x~ + c) and c+ = x+ - x~. So c takes up, and keeps, what rounding adds to x+ in
each round: at a small learning rate all devices together would leave the optimum. Here c takes up
the differences W v - v alone. The difference of two devices is the same number for both but for
its sign, so that the sum of c over all devices stays zero.

Symbols:
    x: model (u is 1 throughout)   x~: x after the local step   x+: after gossip
    c: correction   v: x~ + c, which is sent   c+: c + sum_e eta w_e (v[e] - v)
    eta: averaging rate   w_e: mixing weight of an edge   W: mixing matrix of the weights eta w_e
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, OutEdge, Share
from edgesim.gossip.corrected import CorrectedState
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout

LEAST_EIGENVALUE = -1 / 3
"""Of W; at it and below, differences of devices do not vanish (Tang et al. 2018, assumption 1)."""

_MARGIN = 1e-9  # of an eigenvalue, for rounding
_MOST_DEVICES = 3000  # whose eigenvalues are computed


@dataclass(frozen=True, slots=True, kw_only=True)
class D2:
    """D2: each device corrects its next model by what gossip changed in the last.

    Source: docs/reference.md, section 13. It needs a fixed graph with symmetric weights whose
    least eigenvalue is above -1/3; an averaging rate below 1 raises it. It sends whole vectors, as
    rounding errors would add up in c. It keeps the mean of x. Differs from the authors' code: c
    follows the learning rate.

    Attributes:
        averaging_rate: eta; 1 is D2 as published.
        compressor: an `Identity` that rounds nothing.
    """

    name: ClassVar[str] = "d2"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True
    needs_one_graph: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "balanced"
    carries_steps: ClassVar[bool] = True
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout
    averaging_rate: float = 1.0

    def graph_problem(self, graph: nx.DiGraph[int]) -> str:
        """Reason why the weights of a graph do not let devices come together."""
        if len(graph) > _MOST_DEVICES:
            return (
                f"its eigenvalues are computed for {_MOST_DEVICES:,} devices at most; "
                "use fewer devices, or gradient_tracking"
            )
        W = nx.to_numpy_array(graph, nodelist=range(len(graph)), weight="weight")
        W += np.diag(1 - W.sum(1))
        least = float(np.linalg.eigvalsh((W + W.T) / 2)[0])
        eta = self.averaging_rate
        if 1 - eta * (1 - least) > LEAST_EIGENVALUE + _MARGIN:
            return ""
        return (
            f"the least eigenvalue of the weights must be above -1/3, and is "
            f"{1 - eta * (1 - least):.4g}; set gossip.averaging_rate below "
            f"{(1 - LEAST_EIGENVALUE) / (1 - least):.3g}"
        )

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> CorrectedState:  # noqa: ARG002
        """State with c = 0."""
        return CorrectedState(x, 1.0, torch.zeros_like(x))

    def send_(
        self, state: CorrectedState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send v = x~ + c."""
        if not out_edges:
            return []
        state.rescale_(state.c)
        message = self.compressor.compress(state.x + state.c, self.layout, rng)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state: CorrectedState, received: Sequence[Share]) -> None:
        """Set c = c + sum_e eta w_e (v[e] - v); then x+ = x~ + c."""
        if not received:
            return
        x, c = state.x, state.c
        v = x + c
        for share in received:
            difference = share.payload.decode().sub_(v)
            c.add_(difference.mul_(self.averaging_rate * share.weight))
        x.add_(c)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        add = vector_work(n, ops=1, passes=3)
        send = add + message.compress_work()  # v = x~ + c
        each = message.add_work() + vector_work(n, ops=2, passes=3)  # v[e] - v; c += eta w_e (...)
        return send * min(out_degree, 1) + each * in_degree + add * 2 * min(in_degree, 1)

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """One vector, c, one message; v and a difference to it."""
        return Buffers(kept=1, payloads=min(out_degree, 1), operands=2, models=0)
