"""A schedule with local steps: devices exchange in some rounds only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import networkx as nx

from topologies.errors import TopologyError
from topologies.presence import EVERYONE, Presence
from topologies.schedules import OutEdges, Schedule, exchange_of
from topologies.spans import FOREVER


@dataclass(frozen=True)
class Intermittent:
    """A schedule whose graphs hold in the last of every `every` rounds.

    In all other rounds there are no edges, so each device keeps all of its mass. This is local SGD,
    with W = I between two exchanges. Source: Koloskova et al. (2020), arXiv 2003.10422, section 4.

    Args:
        schedule: the graph of its round k is that of the k-th exchange.
        every: rounds from one exchange to the next.

    Raises:
        TopologyError: `every` is below 1, or the schedule's graphs follow time and not rounds.
        ValueError: the schedule is intermittent itself, or has presence, which counts rounds.
    """

    schedule: Schedule
    every: int

    seconds_per_round: ClassVar[None] = None
    presence: ClassVar[Presence] = EVERYONE

    def __post_init__(self) -> None:
        if self.every < 1:
            raise TopologyError(f"an exchange every {self.every} rounds; must be at least 1")
        if self.schedule.exchange_every > 1 or self.schedule.presence is not EVERYONE:
            raise ValueError("presence is put around an intermittent schedule, and no second one")
        if self.schedule.seconds_per_round is not None:
            raise TopologyError(
                f"an exchange every {self.every} rounds would miss contacts of a trace, which says "
                "when devices meet; must be 1"
            )

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0."""
        return self.schedule.num_devices

    @property
    def hold(self) -> int:
        """Rounds for which each graph stays, those without an exchange included."""
        return self.schedule.hold * self.every

    @property
    def exchange_every(self) -> int:
        """Rounds from one exchange to the next."""
        return self.every

    @property
    def is_static(self) -> bool:
        """Whether all exchanges have the same graph."""
        return self.schedule.is_static

    @property
    def period(self) -> int | None:
        """Rounds after which the graphs repeat; None if they never do."""
        period = self.schedule.period
        return None if period is None else period * self.every

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round; without edges unless devices exchange in it."""
        exchange, is_due = exchange_of(self.every, round_index)
        full = self.schedule.graph(exchange)
        if is_due:
            return full
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(full.nodes(data=True))
        return graph

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""
        exchange, is_due = exchange_of(self.every, round_index)
        return self.schedule.out_edges(device, exchange) if is_due else ()

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""
        exchange, is_due = exchange_of(self.every, round_index)
        return self.schedule.in_neighbors(device, exchange) if is_due else ()

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one may send to in any round, increasing."""
        return self.schedule.possible_receivers(device)

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that may send to this one in any round, increasing."""
        return self.schedule.possible_senders(device)

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether an edge may be active in a round from the first to the one before the end."""
        # Each group of rounds ends in its exchange; an incomplete group at the end has none.
        first = first_round // self.every
        end = end_round if end_round == FOREVER else end_round // self.every
        return self.schedule.is_ever_active(sender, receiver, first, end)

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Attributes of a link, as in the schedule."""
        return self.schedule.link_attributes(sender, receiver)
