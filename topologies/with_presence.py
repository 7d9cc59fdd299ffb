"""A schedule of graphs whose devices come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx

from topologies.presence import Presence
from topologies.schedules import OutEdges, Schedule
from topologies.spans import FOREVER, common_spans


@dataclass(frozen=True)
class WithPresence:
    """The edges of a schedule between devices that are present.

    The weight of a missing edge stays with its sender, who keeps one minus the sum of the others.
    So columns sum to one. A graph with equal weights in both directions keeps that property, since
    an edge and its reverse are missing together; doubly stochastic weights stay doubly stochastic.
    New weights of 1/(out-degree + 1) would keep the sums of columns only.

    Args:
        schedule: graphs of the fleet with all devices present.
        presence: presence of the same devices.
    """

    schedule: Schedule
    presence: Presence

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0, present or not."""
        return self.schedule.num_devices

    @property
    def hold(self) -> int:
        """One round, since devices come and go in any round."""
        return 1

    @property
    def exchange_every(self) -> int:
        """Rounds from one exchange to the next, as in the schedule."""
        return self.schedule.exchange_every

    @property
    def is_static(self) -> bool:
        """False: the graph changes with the devices that are present."""
        return False

    @property
    def period(self) -> None:
        """Joins, leaves and absences don't repeat."""

    @property
    def seconds_per_round(self) -> float | None:
        """Virtual seconds of a round, as in the schedule."""
        return self.schedule.seconds_per_round

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round; absent devices have no edges."""
        full = self.schedule.graph(round_index)
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(full.nodes(data=True))
        graph.add_edges_from(
            (sender, receiver, attributes)
            for sender, receiver, attributes in full.edges(data=True)
            if self._is_there(sender, receiver, round_index)
        )
        return graph

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""
        if not self.presence.is_present(device, round_index):
            return ()
        return tuple(
            (receiver, weight)
            for receiver, weight in self.schedule.out_edges(device, round_index)
            if self.presence.is_present(receiver, round_index)
        )

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""
        if not self.presence.is_present(device, round_index):
            return ()
        return tuple(
            sender
            for sender in self.schedule.in_neighbors(device, round_index)
            if self.presence.is_present(sender, round_index)
        )

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one may send to in any round, increasing."""
        return tuple(
            peer
            for peer in self.schedule.possible_receivers(device)
            if self.is_ever_active(device, peer)
        )

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that may send to this one in any round, increasing."""
        return tuple(
            peer
            for peer in self.schedule.possible_senders(device)
            if self.is_ever_active(peer, device)
        )

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether an edge may be active in one of these rounds, apart from random absences."""
        asked = ((first_round, end_round),)
        there = common_spans(self.presence.spans(sender), self.presence.spans(receiver))
        return any(
            self.schedule.is_ever_active(sender, receiver, start, end)
            for start, end in common_spans(tuple(there), asked)
        )

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Attributes of a link, as in the schedule."""
        return self.schedule.link_attributes(sender, receiver)

    def _is_there(self, sender: int, receiver: int, round_index: int) -> bool:
        is_present = self.presence.is_present
        return is_present(sender, round_index) and is_present(receiver, round_index)


def with_everyone(schedule: Schedule) -> Schedule:
    """The graphs of a schedule with all devices present."""
    return schedule.schedule if isinstance(schedule, WithPresence) else schedule
