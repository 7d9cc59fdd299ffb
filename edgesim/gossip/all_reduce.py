"""All-reduce SGD: the exact average of all models after each step, by a ring all-reduce.

Source: reference.md, section 13. The models are averaged after the local step. Where the step is
linear in the gradient, as in SGD with momentum, that is SGD with the averaged gradient. With
gossip.local_steps it is local SGD.

Symbols:
    x: model (u is 1 throughout)   n: devices   i: own number   p: exchange, 0 to 2 (n - 1) - 1
    chunk c: entries c D / n to (c + 1) D / n of x, rounded down
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Place, Share
from edgesim.gossip.optional_members import NeededExchanges
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout
from topologies import RingReduction, Schedule, ring_exchanges


@dataclass(slots=True)
class AllReduceState(GossipState):
    """State of an all-reduce; within one, x holds sums of some chunks.

    Attributes:
        index: i.
        exchange: p, the next exchange.
    """

    index: int
    exchange: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """All-reduce SGD: after each step the exact average, in 2 (n - 1) exchanges of D / n entries.

    Source: docs/reference.md, section 13. It needs a directed ring in lockstep, and sends fp32. All
    devices have the same bits afterwards. A step takes 2 (n - 1) rounds, the first with the local
    step; with gossip.local_steps H there are H steps before each average (local SGD).

    Attributes:
        compressor: an `Identity` that rounds nothing.
        num_devices: n.
    """

    name: ClassVar[str] = "all_reduce"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True
    needs_exchanges: ClassVar[NeededExchanges] = "fixed"
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout
    num_devices: int

    @staticmethod
    def exchanges(num_devices: int) -> int:
        """Exchanges of an average."""
        return ring_exchanges(num_devices)

    @staticmethod
    def own_schedule(links: Schedule, *, local_steps: int) -> Schedule:
        """Its exchanges over the scenario's links."""
        return RingReduction(links, local_steps)

    @property
    def message_layouts(self) -> tuple[ParameterLayout, ...]:
        """Of chunks, which differ by at most one entry."""
        sizes = {self._end(c) - self._end(c - 1) for c in range(self.num_devices)} - {0}
        return tuple(_chunk_layout(size) for size in sorted(sizes, reverse=True))

    def graph_problem(self, graph: nx.DiGraph[int]) -> str:
        """Reason why a model can't be cut into as many chunks as there are devices."""
        if self.layout.numel >= len(graph):
            return ""
        return f"a model of {self.layout.numel} entries is too small for {len(graph)} chunks"

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> AllReduceState:  # noqa: ARG002
        """State of device 0."""
        return AllReduceState(x, 1.0, 0)

    def init_at(self, x: Tensor, in_weights: Mapping[int, float], place: Place) -> AllReduceState:  # noqa: ARG002
        """State before the first exchange."""
        return AllReduceState(x, 1.0, place.index)

    def send_(
        self, state: AllReduceState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send chunk i - p: first sums of some models, from p = n - 1 on the average."""
        if not out_edges:
            return []
        chunk = self._chunk(state, state.index - state.exchange)
        message = self.compressor.compress(chunk, _chunk_layout(len(chunk)), rng)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state: AllReduceState, received: Sequence[Share]) -> None:
        """Add the sum to chunk i - p - 1, which for p = n - 2 completes it; later replace it."""
        for share in received:
            n, p = self.num_devices, state.exchange
            chunk = self._chunk(state, state.index - p - 1)
            if p >= n - 1:
                chunk.zero_()
            share.payload.add_to_(chunk)
            if p == n - 2:
                chunk.div_(n)
            state.exchange = (p + 1) % self.exchanges(n)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Mean work of an exchange: half of them add, the others replace."""
        message = self.compressor.form(self.message_layouts[0])
        add = message.add_work()
        mean = Work(elementwise_ops=add.elementwise_ops // 2, traffic_bytes=add.traffic_bytes)
        return message.compress_work() * out_degree + mean * in_degree

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """One chunk that is sent."""
        return Buffers(kept=0, payloads=min(out_degree, 1), operands=0, models=0)

    def _chunk(self, state: AllReduceState, number: int) -> Tensor:
        """View of a chunk of x; numbers count modulo n."""
        c = number % self.num_devices
        return state.x[self._end(c - 1) : self._end(c)]

    def _end(self, chunk: int) -> int:
        return (chunk + 1) * self.layout.numel // self.num_devices


def _chunk_layout(size: int) -> ParameterLayout:
    return ParameterLayout(("chunk",), ((size,),))
