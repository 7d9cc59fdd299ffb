"""An algorithm of one's own: gossip whose error feedback fades (after ECQ-SGD, arXiv 1806.08054).

Symbols:
    x: numerator   u: push weight   eta: averaging rate   w_e: mixing weight of an edge
    delta: accumulated compression error   c: compressed model
"""

from dataclasses import dataclass

import torch

from edgesim.gossip.algorithm import Buffers, GossipState, Share, edges_with_mass
from edgesim.hardware.work import vector_work


@dataclass(slots=True)
class EcqState(GossipState):
    delta: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class EcqGossip:
    compressor: object
    layout: object
    averaging_rate: float
    fade: float  # factor of delta in the next message
    name = "ecq"  # in the headers of messages; without an annotation, so that it is no option
    keeps_edges = False

    def init(self, x, in_weights):
        return EcqState(x, 1.0, torch.zeros_like(x))

    def send_(self, state, out_edges, rng):
        if not out_edges:
            return []
        out_edges = edges_with_mass(state, out_edges)
        u, v = state.u, state.delta.mul_(self.fade).add_(state.x)
        c = self.compressor.compress(v, self.layout, rng)
        c.add_to_(v, scale=-1.0)  # v is the new delta
        leaving = self.averaging_rate * sum(edge.weight for edge in out_edges)
        c.add_to_(state.x, scale=-leaving)
        state.u -= leaving * u
        return [Share(edge.receiver, edge.weight, u, c, edge.address) for edge in out_edges]

    def absorb_(self, state, received):
        for share in received:
            arriving = self.averaging_rate * share.weight
            share.payload.add_to_(state.x, scale=arriving)
            state.u += arriving * share.push_weight

    def work(self, out_degree, in_degree):
        n, message = self.layout.numel, self.compressor.form(self.layout)
        send = vector_work(n, ops=2, passes=3) + message.compress_work()
        send += message.add_work() + message.add_times_work()
        model = vector_work(n, ops=1, passes=2)  # z = x/u
        return send * min(out_degree, 1) + message.add_times_work() * in_degree + model

    def buffers(self, out_degree, in_degree):
        return Buffers(kept=1, payloads=min(out_degree, 1), operands=0)
