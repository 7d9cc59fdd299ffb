"""Bagua's DecentralizedAlgorithm: averages in fp32 of all models, or of two.

Source: reference.md, section 7.

Bagua exchanges the models from before the step, while the gradient at them is computed, and applies
the step to the average: x+ = mean(x) + s. So models differ by their last steps.

Symbols:
    x: model (u is 1 throughout)   s: change of x by the first of H steps   base: x before it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Buffers, GossipState, OutEdge, Place, Share
from edgesim.gossip.sites import Role, SitePlace
from edgesim.hardware.work import Work, vector_work
from edgesim.learning.parameters import ParameterLayout
from topologies import SITE_EXCHANGES, Schedule, SiteRounds

_UP, _AMONG_LEADERS, _DOWN = range(SITE_EXCHANGES)


@dataclass(slots=True)
class DecentralizedState(GossipState):
    """State of a device; during an average, x holds s.

    Attributes:
        base: what is sent: x from before the step, during an average the mean so far; shape (D,).
        mean: memory in which a mean is computed, shape (D,).
        index: number of the device.
        role: of the device in its site.
        place: rounds since the cycle began.
    """

    base: Tensor
    mean: Tensor
    index: int
    role: Role
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BaguaDecentralized:
    """Bagua's decentralized SGD in fp32: all average, or each with one other in turn; sites.

    Source: docs/reference.md, section 7. The first of gossip.local_steps steps is taken at the
    models that are exchanged, and applied to their average.

    Attributes:
        compressor: an `Identity` that rounds nothing.
        num_devices: of the fleet.
        local_steps: H.
        peers: `all`, or `shift_one` for one other at a time.
        sites: number of the site of each device; None without sites.
        role: part of the device for which work and memory are stated.
        is_alone: whether that device is the only one of its site.
    """

    name: ClassVar[str] = "bagua_decentralized"
    keeps_edges: ClassVar[bool] = False
    needs_exact_messages: ClassVar[bool] = True

    compressor: Compressor
    layout: ParameterLayout
    num_devices: int
    local_steps: int = 1
    peers: Literal["all", "shift_one"] = "all"
    sites: tuple[int, ...] | None = None
    role: Role = "device"
    is_alone: bool = False

    @staticmethod
    def exchanges(num_devices: int, sites: object = None) -> int:  # noqa: ARG004
        """Exchanges of an average: with sites up, among leaders, and down."""
        return 1 if sites is None else SITE_EXCHANGES

    @staticmethod
    def own_schedule(
        links: Schedule,
        *,
        local_steps: int,
        peers: Literal["all", "shift_one"] = "all",
        sites: tuple[int, ...] | None = None,
    ) -> Schedule:
        """Its exchanges over the scenario's links."""
        return SiteRounds(links, local_steps, sites, peers)

    def for_device(self, device: int) -> BaguaDecentralized:
        """The algorithm whose work and memory are those of a device."""
        place = SitePlace.of(self.sites, device, self.num_devices)
        is_alone = place.role == "leader" and len(place.mates) == 1
        return replace(self, role=place.role, is_alone=is_alone, sites=None)

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> DecentralizedState:  # noqa: ARG002
        """State of device 0."""
        return self._state(x, 0)

    def init_at(
        self,
        x: Tensor,
        in_weights: Mapping[int, float],  # noqa: ARG002
        place: Place,
    ) -> DecentralizedState:
        """State before the first exchange."""
        return self._state(x, place.index)

    def _state(self, x: Tensor, device: int) -> DecentralizedState:
        place = SitePlace.of(self.sites, device, self.num_devices)
        return DecentralizedState(x, 1.0, x.clone(), x.clone(), device, place.role)

    def send_(
        self, state: DecentralizedState, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Send x from before the step; a leader sends the mean of its site, then of all sites."""
        if not out_edges:
            return []
        message = self.compressor.compress(state.base, self.layout, rng)
        return [Share(edge.receiver, edge.weight, state.u, message) for edge in out_edges]

    def absorb_(self, state: DecentralizedState, received: Sequence[Share]) -> None:
        """Take the mean of what arrived and of the own; at the end x+ = mean + s, base = x+."""
        if state.role == "device":
            if received:
                state.x.sub_(state.base)
                _average_(state, received)
                state.x.add_(state.base)
            state.base.copy_(state.x)
            return
        if state.place == _UP:
            state.x.sub_(state.base)
        if received:
            if state.place == _DOWN:
                state.base.copy_(received[0].payload.decode())
            else:
                _average_(state, received)
        if state.place >= _DOWN:
            if state.place == _DOWN:
                state.x.add_(state.base)
            state.base.copy_(state.x)
        state.place = (state.place + 1) % (self.local_steps + SITE_EXCHANGES - 1)

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip, as defined by `Algorithm.work`.

        With sites, the sum of a cycle is right, but for the copy of each round without exchange,
        which the degrees alone do not tell: it lacks. The subtraction and the sum around an average
        are counted in the round of the last exchange of a device.
        """
        n, message = self.layout.numel, self.compressor.form(self.layout)
        copy, add = vector_work(n, ops=0, passes=2), vector_work(n, ops=1, passes=3)
        send = message.compress_work() * min(out_degree, 1)
        mean = vector_work(n, ops=0, passes=1) + message.add_work() * in_degree + add
        mean += vector_work(n, ops=1, passes=2)
        whole = add * 2 + copy
        if self.role == "device":
            return send + ((mean + whole) if in_degree else copy)
        if self.role == "member":
            return send + (copy + whole if in_degree else Work())
        send += mean if in_degree else Work()
        is_last = in_degree if self.is_alone else out_degree and not in_degree
        return send + (whole if is_last else Work())

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:  # noqa: ARG002
        """The model from before the step, and a mean."""
        return Buffers(kept=2, payloads=min(out_degree, 1), operands=0, models=0)


def _average_(state: DecentralizedState, received: Sequence[Share]) -> None:
    """Set base to the mean of itself and what arrived, summed in the order of devices.

    So all that average the same vectors get the same bits.
    """
    state.mean.zero_()
    own_is_added = False
    for share in received:
        if share.peer > state.index and not own_is_added:
            state.mean.add_(state.base)
            own_is_added = True
        share.payload.add_to_(state.mean)
    if not own_is_added:
        state.mean.add_(state.base)
    state.mean.div_(1 + len(received))
    state.base, state.mean = state.mean, state.base
