"""Bagua's LowPrecisionDecentralizedAlgorithm, to the letter (reference.md, section 7).

It is DCD (dcd.py) on a ring, with one minimum and maximum per bucket of parameters, the exchange
after the first of H steps, and sites: their devices average in fp32, their leaders gossip.

Symbols:
    x: model (u is 1 throughout)   w: public copy of x   L, R: copies of the left and right peer's w
    t: difference that is compressed   C: compressor
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor, Identity
from edgesim.compression.payload import Payload
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Place, Share
from edgesim.gossip.sites import Role, SitePlace
from edgesim.hardware.widths import FLOAT_BYTES
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout
from topologies import SITE_EXCHANGES, Schedule, SiteRounds, peer_ranks

DEFAULT_BUCKET_BYTES = 10 * 2**20
_WITHIN_SITES = Identity(values="fp32")


@dataclass(slots=True)
class LowPrecisionState(GossipState):
    """State of a device; members of a site that do not lead it have no public copies.

    Attributes:
        w: own public copy, shape (D,), equal to x after an exchange.
        copies: L and R by peer, each equal bit for bit to its owner's w; one if both are the same.
        left: peer with copy L; the device itself if there is no other leader.
        right: peer with copy R.
        mates: devices of its site, increasing, itself included.
        role: of the device in its site.
    """

    w: Tensor
    copies: dict[int, Tensor]
    left: int
    right: int
    mates: tuple[int, ...]
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class BaguaLowPrecision:
    """Bagua's low-precision decentralized SGD: DCD on a ring in 8 bits, buckets, sites.

    Source: docs/reference.md, section 7. The first of gossip.local_steps steps is followed by the
    exchange.

    Attributes:
        compressor: of the differences, `MinMaxUInt8` in Bagua.
        num_devices: of the fleet.
        bucket_bytes: size in fp32 at which a bucket of parameters is closed; parameters are taken
            in reverse order, and each bucket has one minimum and maximum.
        sites: number of the site of each device; None without sites.
        role: part of the device for which work and memory are stated.
        num_peers: other leaders that it exchanges with.
    """

    name: ClassVar[str] = "bagua_low_precision"
    keeps_edges: ClassVar[bool] = False
    mixes_first: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout
    num_devices: int
    bucket_bytes: int = DEFAULT_BUCKET_BYTES
    sites: tuple[int, ...] | None = None
    role: Role = "device"
    num_peers: int = 2

    @staticmethod
    def exchanges(num_devices: int, sites: object = None) -> int:  # noqa: ARG004
        """Exchanges of an average: with sites up, among leaders, and down."""
        return 1 if sites is None else SITE_EXCHANGES

    @staticmethod
    def own_schedule(
        links: Schedule, *, local_steps: int, sites: tuple[int, ...] | None = None
    ) -> Schedule:
        """Its exchanges over the scenario's links."""
        return SiteRounds(links, local_steps, sites, "ring")

    @property
    def message_layouts(self) -> tuple[ParameterLayout, ...]:
        """Buckets; within sites the model's own layout."""
        buckets = bucket_layout(self.layout, self.bucket_bytes)
        return (buckets, self.layout) if self._has_sites else (buckets,)

    @property
    def longest_message(self) -> tuple[Compressor, ParameterLayout]:
        """Compressor and layout of its longest messages: within sites they hold fp32."""
        if self._has_sites:
            return _WITHIN_SITES, self.layout
        return self.compressor, self.message_layouts[0]

    @property
    def _has_sites(self) -> bool:
        return self.sites is not None or self.role != "device"

    def message_between(self, sender: int, receiver: int) -> tuple[Compressor, ParameterLayout]:
        """Compressor and layout of the messages on an edge."""
        if self.sites is not None and self.sites[sender] == self.sites[receiver]:
            return _WITHIN_SITES, self.layout
        return self.compressor, self.message_layouts[0]

    def for_device(self, device: int) -> BaguaLowPrecision:
        """The algorithm whose work and memory are those of a device."""
        place = SitePlace.of(self.sites, device, self.num_devices)
        num_peers = min(len(place.leaders) - 1, 2)
        return replace(self, role=place.role, num_peers=num_peers, sites=None)

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> LowPrecisionState:  # noqa: ARG002
        """State of device 0."""
        return self._state(x, 0)

    def init_at(
        self,
        x: Tensor,
        in_weights: Mapping[int, float],  # noqa: ARG002
        place: Place,
    ) -> LowPrecisionState:
        """All copies start at the common initial model."""
        return self._state(x, place.index)

    def _state(self, x: Tensor, device: int) -> LowPrecisionState:
        place = SitePlace.of(self.sites, device, self.num_devices)
        ring, n = place.leaders, len(place.leaders)
        left, right = ring[(place.rank - 1) % n], ring[(place.rank + 1) % n]
        peers = () if place.role == "member" else peer_ranks("ring", place.rank, n, 0)
        copies = {ring[rank]: x.clone() for rank in sorted(peers)}
        w = x.new_empty(0) if place.role == "member" else x.clone()
        return LowPrecisionState(x, 1.0, w, copies, left, right, place.mates, place.role)

    def send_(
        self, state: LowPrecisionState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send C(t) to leaders, or x in fp32 to a device of the same site."""
        if not out_edges:
            return []
        if out_edges[0].receiver in state.mates:
            if state.role == "leader" and not state.copies:
                self._move_(state, rng)  # the only site: its leader is both peers of itself
            message = _WITHIN_SITES.compress(state.x, self.layout, rng)
        else:
            message = self._move_(state, rng)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def _move_(self, state: LowPrecisionState, rng: np.random.Generator) -> Payload:
        """Compress t = x + L/3 + R/3 - 5/3 w; then w += C(t); x = w."""
        x, w = state.x, state.w
        # Products are rounded before sums, on processors with fused multiply-add too.
        t = x + state.copies.get(state.left, w) * (1 / 3)
        t.add_(state.copies.get(state.right, w) * (1 / 3))
        t.add_(w * (-5 / 3))
        message = self.compressor.compress(t, self.message_layouts[0], rng)
        message.add_to_(w)
        x.copy_(w)
        return message

    def absorb_(self, state: LowPrecisionState, received: Sequence[Share]) -> None:
        """Change a leader's copy by its difference; within a site take the mean, or the mean's."""
        if not received:
            return
        if received[0].peer not in state.mates:
            for share in received:
                share.payload.add_to_(state.copies[share.peer])
        elif state.role == "member":
            state.x.copy_(received[0].payload.decode())
        else:
            for share in received:
                share.payload.add_to_(state.x)
            state.x.div_(len(state.mates))

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`.

        A leader sends and absorbs at once only among leaders, and absorbs alone only in its site.
        """
        n = self.layout.numel
        difference = self.compressor.form(self.message_layouts[0])
        vector = _WITHIN_SITES.form(self.layout)
        move = vector_work(n, ops=2, passes=3) * 3 + difference.compress_work()
        move += difference.add_work() + vector_work(n, ops=0, passes=2)
        if self.role == "device" or (self.role == "leader" and out_degree and in_degree):
            return move * min(out_degree, 1) + difference.add_work() * in_degree
        send = vector.compress_work() * min(out_degree, 1)
        if self.role == "member":
            return send + vector_work(n, ops=0, passes=2) * in_degree
        if out_degree and not self.num_peers:
            send += move
        mean = vector_work(n, ops=1, passes=2) * min(in_degree, 1)
        return send + vector.add_work() * in_degree + mean

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """Public copies, and t while it is compressed; a product before that is smaller."""
        payloads = min(out_degree, 1)
        if self.role == "member":
            return Buffers(kept=0, payloads=payloads, operands=0, models=0)
        return Buffers(kept=1 + self.num_peers, payloads=payloads, operands=1, models=0)


@lru_cache(maxsize=64)
def bucket_layout(layout: ParameterLayout, bucket_bytes: int) -> ParameterLayout:
    """Buckets of Bagua as the tensors of a vector, in the vector's order.

    Source: docs/reference.md, section 7. Parameters are taken in reverse order; the one with which
    a bucket reaches its size is the bucket's last. A bucket is a range of the vector, so the order
    of the entries within it need not be reversed: its minimum and maximum are the same.

    Args:
        layout: of the model.
        bucket_bytes: at which a bucket is closed, in fp32.
    """
    sizes, entries = [], 0
    for size in reversed(layout.sizes):
        entries += size
        if entries * FLOAT_BYTES >= bucket_bytes:
            sizes.append(entries)
            entries = 0
    if entries:
        sizes.append(entries)
    names = [f"bucket {number}" for number in range(len(sizes))]
    return ParameterLayout(tuple(reversed(names)), tuple((size,) for size in reversed(sizes)))
