"""Contact traces: schedules of graphs from times of contact between devices.

# S: seconds_per_round   a contact [time, time + duration) is active in round k if it overlaps
# [k S, (k + 1) S)   d: links that leave a device in a round
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, TypeAlias

import networkx as nx

from topologies.errors import TopologyError
from topologies.mixing import Weights, check_weights
from topologies.presence import EVERYONE, Presence
from topologies.schedules import OutEdges
from topologies.spans import FOREVER, is_ever_on

Contacts: TypeAlias = Mapping[tuple[int, int], Sequence[int]]
"""Rounds in which each edge (sender, receiver) becomes active and inactive, in turn, increasing."""

_SHORTEST_REPLAY = 16  # changes between two snapshots at least


@dataclass(frozen=True)
class ContactTrace:
    """Edges that are active while two devices are in contact.

    Args:
        num_devices: number of devices of the fleet.
        contacts: contacts of every edge that is ever active.
        seconds_per_round: virtual seconds that a round stands for, above 0.
        repeat: whether the trace begins anew after its last round; else contacts end there.
        weights: `column_stochastic`, 1/(d + 1), or `metropolis`, 1/(1 + the larger d of both ends),
            which needs every contact in both directions.
        names: names of the devices, by number; empty where the trace uses numbers.
        link_figures: rate, latency, jitter and loss by link (`LINK_FIGURES`), where they are given.
        spans_s: begin and length in seconds of the contacts of each edge in turn, where they are
            known; of contacts that go both ways maybe for one way alone.

    Raises:
        TopologyError: no contacts, impossible contacts, or contacts that the weights do not allow.
    """

    num_devices: int
    contacts: Contacts
    seconds_per_round: float
    repeat: bool = False
    weights: Weights = "column_stochastic"
    names: tuple[str, ...] = ()
    link_figures: Mapping[tuple[int, int], Mapping[str, float]] = field(default_factory=dict)
    spans_s: Mapping[tuple[int, int], Sequence[float]] = field(default_factory=dict)
    _histories: dict[tuple[int, bool], _PeerHistory] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    exchange_every: ClassVar[int] = 1
    presence: ClassVar[Presence] = EVERYONE

    def __post_init__(self) -> None:
        check_weights(self.weights)
        if not self.contacts:
            raise TopologyError("a trace without contacts: needs at least one")
        for edge, changes in self.contacts.items():
            _check_contacts(edge, changes, self.num_devices)
        if self.weights == "metropolis":
            for (sender, receiver), changes in self.contacts.items():
                if self.contacts.get((receiver, sender)) != changes:
                    raise TopologyError(
                        "metropolis weights need every contact in both directions, and "
                        f"{self._name(sender)} -> {self._name(receiver)} has no such way back; "
                        "use weights: column_stochastic or undirected: true"
                    )

    @cached_property
    def num_rounds(self) -> int:
        """Number of rounds of the trace; its last contact ends in the last of them."""
        return max(changes[-1] for changes in self.contacts.values())

    @cached_property
    def first_round(self) -> int:
        """The round in which the first contact begins."""
        return min(changes[0] for changes in self.contacts.values())

    @property
    def hold(self) -> int:
        """One round."""
        return 1

    @property
    def is_static(self) -> bool:
        """Whether the trace has one round that is repeated for ever."""
        return self.period == 1

    @property
    def period(self) -> int | None:
        """Rounds of the trace if it repeats, else None."""
        return self.num_rounds if self.repeat else None

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round, with edge attribute `weight`."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.num_devices))
        for device, name in enumerate(self.names):
            graph.nodes[device]["name"] = name
        for device in range(self.num_devices):
            for receiver, weight in self.out_edges(device, round_index):
                graph.add_edge(device, receiver, multiplicity=1, weight=weight)
        return graph

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""
        receivers = self._receivers(device, round_index)
        if self.weights == "column_stochastic":
            return tuple((receiver, 1 / (len(receivers) + 1)) for receiver in receivers)
        return tuple(
            (receiver, 1 / (1 + max(len(receivers), len(self._receivers(receiver, round_index)))))
            for receiver in receivers
        )

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""
        return self._history(device, of_senders=True).at(self._round_of_trace(round_index))

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one is ever in contact with as a sender, increasing."""
        return self._peers_ever[device][0]

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that this one is ever in contact with as a receiver, increasing."""
        return self._peers_ever[device][1]

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether the edge has a contact in one of these rounds."""
        changes = self.contacts.get((sender, receiver), ())
        if not self.repeat:
            return is_ever_on(changes, first_round, end_round)
        length = min(end_round - first_round, self.num_rounds)
        start = first_round % self.num_rounds
        # The rest of the trace, then the rounds after its repetition.
        return is_ever_on(changes, start, start + length) or is_ever_on(
            changes, 0, start + length - self.num_rounds
        )

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Figures of a link that the trace has, the same in all of its contacts."""
        return self.link_figures.get((sender, receiver), {})

    def _receivers(self, device: int, round_index: int) -> tuple[int, ...]:
        return self._history(device, of_senders=False).at(self._round_of_trace(round_index))

    def _round_of_trace(self, round_index: int) -> int:
        return round_index % self.num_rounds if self.repeat else round_index

    def _history(self, device: int, *, of_senders: bool) -> _PeerHistory:
        """History of a device, created at the first use: a process may have few devices."""
        history = self._histories.get((device, of_senders))
        if history is None:
            edges = (
                {peer: (peer, device) for peer in self.possible_senders(device)}
                if of_senders
                else {peer: (device, peer) for peer in self.possible_receivers(device)}
            )
            history = _PeerHistory({peer: self.contacts[edge] for peer, edge in edges.items()})
            self._histories[device, of_senders] = history
        return history

    @cached_property
    def _peers_ever(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Receivers and senders of each device, of all rounds."""
        receivers: list[list[int]] = [[] for _ in range(self.num_devices)]
        senders: list[list[int]] = [[] for _ in range(self.num_devices)]
        for sender, receiver in sorted(self.contacts):
            receivers[sender].append(receiver)
            senders[receiver].append(sender)
        return tuple((tuple(to), tuple(of)) for to, of in zip(receivers, senders, strict=True))

    def _name(self, device: int) -> str:
        return self.names[device] if self.names else str(device)


class _PeerHistory:
    """Peers of one device in every round.

    It stores all changes and, at intervals, snapshots of the peers. A query starts from the
    snapshot before its round and replays the changes since. A snapshot of k peers is at least k
    changes after the one before it, so all snapshots together are no larger than the changes.

    Args:
        changes_by_peer: rounds in which each peer comes and goes, in turn.
    """

    def __init__(self, changes_by_peer: Mapping[int, Sequence[int]]) -> None:
        changes = sorted(
            (round_index, peer)
            for peer, rounds in changes_by_peer.items()
            for round_index in rounds
        )
        self._rounds = array("q", (round_index for round_index, _ in changes))
        self._changing_peers = array("q", (peer for _, peer in changes))
        self._snapshot_places = array("q", [0])
        self._snapshots: list[tuple[int, ...]] = [()]
        peers: set[int] = set()
        for place, peer in enumerate(self._changing_peers, 1):
            peers ^= {peer}
            if place - self._snapshot_places[-1] >= max(len(peers), _SHORTEST_REPLAY):
                self._snapshot_places.append(place)
                self._snapshots.append(tuple(peers))

    def at(self, round_index: int) -> tuple[int, ...]:
        """Peers in a round, increasing."""
        place = bisect_right(self._rounds, round_index)
        latest = bisect_right(self._snapshot_places, place) - 1
        peers = set(self._snapshots[latest])
        for peer in self._changing_peers[self._snapshot_places[latest] : place]:
            peers ^= {peer}
        return tuple(sorted(peers))


def _check_contacts(edge: tuple[int, int], changes: Sequence[int], num_devices: int) -> None:
    sender, receiver = edge
    are_devices = all(0 <= device < num_devices for device in edge)
    if not are_devices or sender == receiver:
        raise TopologyError(
            f"contact {sender} -> {receiver}: is none between two devices; there are 0 to "
            f"{num_devices - 1}"
        )
    increases = all(one < other for one, other in pairwise(changes))
    if not (changes and len(changes) % 2 == 0 and changes[0] >= 0 and increases):
        raise TopologyError(
            f"contact {sender} -> {receiver}: its rounds must be begins and ends in turn, at least "
            "0 and increasing"
        )
