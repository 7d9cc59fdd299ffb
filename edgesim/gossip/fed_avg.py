"""FedAvg: a server averages what devices made of its model in some local steps.

Source: reference.md, section 13; McMahan et al. 2017 (arXiv 1602.05629).

Symbols:
    x: model   base: the server's model, from which x was trained   n_i: samples of device i
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Place, Share
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout
from topologies import Schedule, ServerRounds


@dataclass(slots=True)
class FedAvgState(GossipState):
    """State of FedAvg beside x.

    Attributes:
        base: the server's model at the start of the cycle, shape (D,).
        is_server: whether it is device 0.
        num_samples: n_i.
        has_stepped: whether the device has taken a step since it got `base`.
    """

    base: Tensor
    is_server: bool
    num_samples: int
    has_stepped: bool = False

    def take_rate_(self, gamma: float) -> None:  # noqa: ARG002
        """Note that the device trains."""
        self.has_stepped = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg:
    """FedAvg: device 0 is the server, and trains on its own data like the others.

    Source: docs/reference.md, section 13. It needs a star in lockstep, and sends fp32. A cycle is
    gossip.local_steps rounds with a step, the last of which sends x - base to the server, and one
    round in which the server sends its new model to the devices of the next cycle. A device that is
    not drawn for a cycle has no model in it (u is 0); so the averaged model of an evaluation is the
    server's. Momentum stays on its device from cycle to cycle.

    Attributes:
        compressor: an `Identity` that rounds nothing.
    """

    name: ClassVar[str] = "fedavg"
    keeps_edges: ClassVar[bool] = False
    is_idle_without_edges: ClassVar[bool] = True
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout

    @staticmethod
    def exchanges(num_devices: int) -> int:  # noqa: ARG004
        """Exchanges of an average: to the server and back."""
        return 2

    @staticmethod
    def own_schedule(
        links: Schedule, *, local_steps: int, participation: float, seed: int
    ) -> Schedule:
        """Its exchanges over the scenario's links."""
        return ServerRounds(links, local_steps, participation, seed)

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> FedAvgState:  # noqa: ARG002
        """State of a server with one sample."""
        return FedAvgState(x, 1.0, x.clone(), is_server=True, num_samples=1)

    def init_at(self, x: Tensor, in_weights: Mapping[int, float], place: Place) -> FedAvgState:  # noqa: ARG002
        """State at the start; devices that are not drawn for the first cycle have no model."""
        state = FedAvgState(x, 1.0, x.clone(), place.index == 0, place.num_samples)
        if not (state.is_server or place.steps_first):
            _drop_model_(state)
        return state

    def send_(
        self, state: FedAvgState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """A device sends x - base, with n_i for the push weight; the server its model."""
        if state.is_server:
            return self._send_model(state, out_edges, rng)
        if not out_edges:
            return []
        change = self.compressor.compress(state.x.sub_(state.base), self.layout, rng)
        _drop_model_(state)
        weight = float(state.num_samples)
        return [Share(edge.receiver, edge.weight, weight, change) for edge in out_edges]

    def _send_model(
        self, state: FedAvgState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        if not out_edges:
            return []
        model = self.compressor.compress(state.x, self.layout, rng)
        state.base.copy_(state.x)
        state.has_stepped = False
        return [Share(edge.receiver, edge.weight, 1.0, model) for edge in out_edges]

    def absorb_(self, state: FedAvgState, received: Sequence[Share]) -> None:
        """The server sets x = base + sum_i n_i (x_i - base) / sum_i n_i; a device takes its model.

        The sums are over the devices that trained; the server may be one of them.
        """
        if not received:
            return
        if not state.is_server:
            state.x.zero_()
            received[0].payload.add_to_(state.x)
            state.u = 1.0
        else:
            own = state.num_samples if state.has_stepped else 0
            total = own + sum(share.push_weight for share in received)
            state.x.sub_(state.base).mul_(own / total).add_(state.base)
            for share in received:
                share.payload.add_to_(state.x, scale=share.push_weight / total)
        state.base.copy_(state.x)
        state.has_stepped = False

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip; the server averages in rounds with messages."""
        n, message = self.layout.numel, self.compressor.form(self.layout)
        change = vector_work(n, ops=1, passes=3) + message.compress_work()
        average = vector_work(n, ops=3, passes=3) + vector_work(n, ops=0, passes=2)
        absorb = message.add_times_work() * in_degree + average * min(in_degree, 1)
        return change * min(out_degree, 1) + absorb

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """The server's model and one message."""
        return Buffers(kept=1, payloads=min(out_degree, 1), operands=0, models=0)


def _drop_model_(state: FedAvgState) -> None:
    """The device has no model until the server sends one."""
    state.x.zero_()
    state.u = 0.0
    state.has_stepped = False
