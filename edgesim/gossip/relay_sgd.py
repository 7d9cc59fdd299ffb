"""RelaySGD: sums of models are relayed along a tree, so the average is exact, but of older models.

Source: reference.md, section 13; Vogels et al. 2021 (arXiv 2110.04175); `relaysum_model` of their
code.

Symbols:
    x~: x after the local step   x_0: initial model   n: devices   x+: after gossip
    r[j]: newest sum that neighbour j sent   count[j]: number of models in it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import networkx as nx
import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Place, Share
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout


@dataclass(slots=True)
class RelayState(GossipState):
    """State of RelaySGD beside x.

    Attributes:
        x_0: initial model, shape (D,), which stands for models that have not arrived yet.
        num_devices: n.
        received: r[j] by neighbour.
        counts: count[j] by neighbour.
    """

    x_0: Tensor
    num_devices: int
    received: dict[int, Tensor] = field(default_factory=dict)
    counts: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySgd:
    """RelaySGD: on a tree, the exact average of models that are as old as their way is long.

    Source: docs/reference.md, section 13. It needs a fixed tree in lockstep, such as topology.kind
    chain or star; its weights are ignored. It sends whole vectors. The number of models in a sum
    travels in the place of the push weight.

    Attributes:
        compressor: an `Identity` that rounds nothing.
    """

    name: ClassVar[str] = "relay_sgd"
    keeps_edges: ClassVar[bool] = True
    is_idle_without_edges: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "fixed"
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout

    def graph_problem(self, graph: nx.DiGraph[int]) -> str:
        """Reason why a graph is no tree with links both ways."""
        both_ways = all(graph.has_edge(*reversed(edge)) for edge in graph.edges)
        if both_ways and nx.is_tree(graph.to_undirected(as_view=True)):
            return ""
        return "its graph must be a tree with links both ways; choose chain, star, or a file"

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> RelayState:
        """State of a device in a fleet of itself and its in-neighbours."""
        return RelayState(x, 1.0, x.clone(), 1 + len(in_weights))

    def init_at(self, x: Tensor, in_weights: Mapping[int, float], place: Place) -> RelayState:  # noqa: ARG002
        """State before any sum has arrived."""
        return RelayState(x, 1.0, x.clone(), place.num_devices)

    def send_(
        self, state: RelayState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send each neighbour x~ and all that the others have sent last."""
        shares = []
        for edge in out_edges:
            relayed, count = state.x.clone(), 1.0
            for peer in sorted(state.received):
                if peer != edge.receiver:
                    relayed.add_(state.received[peer])
                    count += state.counts[peer]
            message = self.compressor.compress(relayed, self.layout, rng)
            shares.append(Share(edge.receiver, edge.weight, count, message))
        return shares

    def absorb_(self, state: RelayState, received: Sequence[Share]) -> None:
        """Keep the sums; set x+ = (x~ + sum_j r[j] + (n - 1 - sum_j count[j]) x_0) / n."""
        if not received:
            return
        for share in received:
            state.received[share.peer] = share.payload.decode()
            state.counts[share.peer] = share.push_weight
        for peer in sorted(state.received):
            state.x.add_(state.received[peer])
        missing = state.num_devices - 1 - sum(state.counts.values())
        if missing:
            state.x.add_(state.x_0, alpha=missing)
        state.x.div_(state.num_devices)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`; all sums have arrived."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        add = vector_work(n, ops=1, passes=3)
        copy = vector_work(n, ops=0, passes=2)
        send = copy + add * max(in_degree - 1, 0) + message.compress_work()
        average = vector_work(n, ops=1, passes=2) * min(in_degree, 1)
        return send * out_degree + (copy + add) * in_degree + average

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """The initial model, a sum for each neighbour, and the sum that is sent."""
        return Buffers(kept=1 + in_degree, payloads=out_degree, operands=1, models=0)
