"""Schedules in which one average of all devices takes several rounds.

A cycle is H + K - 1 rounds: H local steps, and K exchanges, the first of them in the round of the
last step. In the other rounds of exchanges no device takes a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import networkx as nx
import numpy as np

from topologies.errors import TopologyError
from topologies.presence import EVERYONE, Presence
from topologies.schedules import OutEdges, Schedule
from topologies.spans import FOREVER

_UP, _DOWN = 0, 1  # exchanges of a server


@dataclass(frozen=True)
class SeveralExchanges(ABC):
    """Local steps and exchanges in cycles; subclasses say who sends in which exchange.

    Args:
        links: fixed schedule with the links of the fleet.
        local_steps: H.

    Raises:
        TopologyError: the links are not those that the exchanges need.
    """

    links: Schedule
    local_steps: int

    seconds_per_round: ClassVar[None] = None
    presence: ClassVar[Presence] = EVERYONE

    @property
    @abstractmethod
    def exchanges(self) -> int:
        """K."""

    @property
    @abstractmethod
    def is_static(self) -> bool:
        """Whether all exchanges have the same graph."""

    @property
    @abstractmethod
    def period(self) -> int | None:
        """Rounds after which the graphs repeat; None if they never do."""

    @property
    @abstractmethod
    def step_share(self) -> float:
        """Mean share of its rounds in which a device takes a step."""

    @abstractmethod
    def trains(self, device: int, cycle: int) -> bool:
        """Whether a device takes the steps of a cycle."""

    @abstractmethod
    def _receivers(self, device: int, cycle: int, exchange: int) -> OutEdges:
        """Receivers in an exchange with their weights, sorted."""

    @abstractmethod
    def _senders(self, device: int, cycle: int, exchange: int) -> tuple[int, ...]:
        """Senders in an exchange, sorted."""

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0."""
        return self.links.num_devices

    @property
    def exchange_every(self) -> int:
        """Rounds of a cycle."""
        return self.local_steps + self.exchanges - 1

    @property
    def hold(self) -> int:
        """Rounds of a cycle."""
        return self.exchange_every

    def takes_step(self, device: int, round_index: int) -> bool:
        """Whether a device takes a step in a round."""
        cycle, place = divmod(round_index, self.exchange_every)
        return place < self.local_steps and self.trains(device, cycle)

    def steps_before(self, round_index: int) -> int:
        """Number of earlier rounds with a step."""
        cycle, place = divmod(round_index, self.exchange_every)
        return cycle * self.local_steps + min(place, self.local_steps)

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""
        cycle, exchange = self._exchange(round_index)
        return () if exchange < 0 else self._receivers(device, cycle, exchange)

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""
        cycle, exchange = self._exchange(round_index)
        return () if exchange < 0 else self._senders(device, cycle, exchange)

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round; without edges unless devices exchange in it."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(self.links.graph(0).nodes(data=True))
        for device in range(self.num_devices):
            for receiver, weight in self.out_edges(device, round_index):
                graph.add_edge(device, receiver, weight=weight)
        return graph

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one may send to in any round, increasing."""
        return self.links.possible_receivers(device)

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that may send to this one in any round, increasing."""
        return self.links.possible_senders(device)

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether such an edge exists, and a cycle ends in these rounds."""
        ends = end_round // self.exchange_every > first_round // self.exchange_every
        return ends and self.links.is_ever_active(sender, receiver)

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Attributes of a link."""
        return self.links.link_attributes(sender, receiver)

    def _exchange(self, round_index: int) -> tuple[int, int]:
        """Cycle of a round, and its exchange, below 0 if there is none."""
        cycle, place = divmod(round_index, self.exchange_every)
        return cycle, place - (self.local_steps - 1)


@dataclass(frozen=True)
class RingReduction(SeveralExchanges):
    """2 (n - 1) exchanges along a directed ring, for a ring all-reduce."""

    def __post_init__(self) -> None:
        n = self.num_devices
        if n < 2 or any(
            [receiver for receiver, _ in self.links.out_edges(device, 0)] != [(device + 1) % n]
            for device in range(n)
        ):
            raise TopologyError(
                "a ring all-reduce sends from each device to the next alone, between at least 2 "
                "devices; use kind: directed_ring"
            )

    @property
    def is_static(self) -> bool:
        """Always: the ring."""
        return True

    @property
    def exchanges(self) -> int:
        """K = 2 (n - 1)."""
        return ring_exchanges(self.num_devices)

    @property
    def period(self) -> int:
        """Rounds of a cycle."""
        return self.exchange_every

    @property
    def step_share(self) -> float:
        """Share of the rounds that have a step."""
        return self.local_steps / self.exchange_every

    def trains(self, device: int, cycle: int) -> bool:  # noqa: ARG002
        """All do."""
        return True

    def _receivers(self, device: int, cycle: int, exchange: int) -> OutEdges:  # noqa: ARG002
        return self.links.out_edges(device, 0)

    def _senders(self, device: int, cycle: int, exchange: int) -> tuple[int, ...]:  # noqa: ARG002
        return self.links.in_neighbors(device, 0)


@dataclass(frozen=True)
class ServerRounds(SeveralExchanges):
    """Two exchanges with device 0: devices that trained send to it, those that are next receive.

    Args:
        participation: share of the devices that train in a cycle, rounded, at least one; they are
            drawn anew for each cycle, device 0 like every other.
        seed: of the draws.
    """

    participation: float
    seed: int

    def __post_init__(self) -> None:
        n = self.num_devices
        leaves = [[receiver for receiver, _ in self.links.out_edges(d, 0)] for d in range(1, n)]
        if n < 2 or any(receivers != [0] for receivers in leaves):
            raise TopologyError(
                "a server, device 0, exchanges with at least one other device, and the others with "
                "it alone; use kind: star"
            )

    @property
    def is_static(self) -> bool:
        """Never: messages go up, then down."""
        return False

    @property
    def exchanges(self) -> int:
        """K = 2: up and down."""
        return 2

    @property
    def period(self) -> int | None:
        """Rounds of a cycle, if all devices train in each."""
        return self.exchange_every if self.num_drawn == self.num_devices else None

    @property
    def num_drawn(self) -> int:
        """Devices that train in a cycle."""
        return max(1, round(self.participation * self.num_devices))

    @property
    def step_share(self) -> float:
        """Mean share over devices and rounds."""
        return self.local_steps * self.num_drawn / (self.exchange_every * self.num_devices)

    def trains(self, device: int, cycle: int) -> bool:
        """Whether the device is drawn for the cycle."""
        return device in self.drawn(cycle)

    def drawn(self, cycle: int) -> frozenset[int]:
        """Devices that train in a cycle."""
        return _draw(self.num_devices, self.num_drawn, self.seed, cycle)

    def _receivers(self, device: int, cycle: int, exchange: int) -> OutEdges:
        if exchange == _UP:
            is_sender = device != 0 and self.trains(device, cycle)
            return self._up[device] if is_sender else ()
        if device != 0:
            return ()
        return tuple(edge for edge in self._up[0] if self.trains(edge[0], cycle + 1))

    def _senders(self, device: int, cycle: int, exchange: int) -> tuple[int, ...]:
        if exchange == _DOWN:
            return (0,) if device != 0 and self.trains(device, cycle + 1) else ()
        return tuple(sorted(self.drawn(cycle) - {0})) if device == 0 else ()

    @cached_property
    def _up(self) -> tuple[OutEdges, ...]:
        return tuple(self.links.out_edges(device, 0) for device in range(self.num_devices))


def ring_exchanges(num_devices: int) -> int:
    """Exchanges of a ring all-reduce: 2 (n - 1)."""
    return 2 * (num_devices - 1)


def takes_step(schedule: Schedule, device: int, round_index: int) -> bool:
    """Whether a device takes a step in a round; in most schedules it does in each."""
    if isinstance(schedule, SeveralExchanges):
        return schedule.takes_step(device, round_index)
    return True


def steps_before(schedule: Schedule, round_index: int) -> int:
    """Number of earlier rounds in which devices took a step."""
    if isinstance(schedule, SeveralExchanges):
        return schedule.steps_before(round_index)
    return round_index


def step_share(schedule: Schedule) -> float:
    """Mean share of its rounds in which a device takes a step."""
    return schedule.step_share if isinstance(schedule, SeveralExchanges) else 1.0


@lru_cache(maxsize=64)
def _draw(num_devices: int, num_drawn: int, seed: int, cycle: int) -> frozenset[int]:
    if num_drawn == num_devices:
        return frozenset(range(num_devices))
    rng = np.random.default_rng([seed, cycle])
    return frozenset(rng.choice(num_devices, num_drawn, replace=False).tolist())
