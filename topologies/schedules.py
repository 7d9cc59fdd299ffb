"""Schedules: which weighted graph holds in which round.

A schedule is a pure function of the round, the same on every device, so every device knows all
edges. Devices ask for their own edges only, for which no graph is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, TypeAlias

import networkx as nx

from topologies.errors import TopologyError
from topologies.mixing import check_weighted
from topologies.presence import EVERYONE, Presence
from topologies.spans import FOREVER

OutEdges: TypeAlias = tuple[tuple[int, float], ...]
"""Edges on which a device sends: (receiver, weight), sorted by receiver."""

_NOT_OF_LINKS = frozenset({"weight", "multiplicity"})  # attributes used for mixing
_NAMED_DEVICES = 5  # in a message


class Schedule(Protocol):
    """Which weighted graph holds in which round: a pure function of the round.

    Edge j -> i means that j sends to i. Weights are those of the mixing matrix, so a device
    keeps one minus the sum of its out-edges' weights. Rounds count from 0.
    """

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0."""

    @property
    def hold(self) -> int:
        """Rounds for which each graph stays, those without an exchange included."""

    @property
    def exchange_every(self) -> int:
        """Rounds from one exchange to the next; only the last of them has a graph with edges."""

    @property
    def is_static(self) -> bool:
        """Whether all exchanges have the same graph."""

    @property
    def period(self) -> int | None:
        """Rounds after which the graphs repeat; None if they never do."""

    @property
    def seconds_per_round(self) -> float | None:
        """Virtual seconds that a round stands for; None where graphs follow rounds, not time."""

    @property
    def presence(self) -> Presence:
        """Presence of devices by rounds; graphs leave out edges of absent devices."""

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round, with edge attribute `weight`; not to be changed."""

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one may send to in any round, increasing."""

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that may send to this one in any round, increasing."""

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether an edge may be active in a round from the first to the one before the end.

        An edge that depends on random absences counts as possible.
        """

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Attributes of a link in the graph file, in every round; empty without any."""


@dataclass(frozen=True)
class Static:
    """The same graph in every round.

    Args:
        weighted: graph with weights, as `column_stochastic` and `metropolis` return it.

    Raises:
        TopologyError: the graph has no sound weights.
    """

    weighted: nx.DiGraph[int]

    exchange_every: ClassVar[int] = 1
    seconds_per_round: ClassVar[None] = None
    presence: ClassVar[Presence] = EVERYONE

    def __post_init__(self) -> None:
        check_weighted(self.weighted)

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0."""
        return len(self.weighted)

    @property
    def hold(self) -> int:
        """One round."""
        return 1

    @property
    def is_static(self) -> bool:
        """Always."""
        return True

    @property
    def period(self) -> int:
        """One round."""
        return 1

    def graph(self, round_index: int) -> nx.DiGraph[int]:  # noqa: ARG002
        """The graph, whatever the round."""
        return self.weighted

    def out_edges(self, device: int, round_index: int) -> OutEdges:  # noqa: ARG002
        """Receivers of a device with their weights, sorted by receiver."""
        return self._out_edges[device]

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:  # noqa: ARG002
        """Senders to a device, sorted."""
        return self._in_neighbors[device]

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one sends to, increasing."""
        return tuple(receiver for receiver, _ in self._out_edges[device])

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that send to this one, increasing."""
        return self._in_neighbors[device]

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether there is such an edge, and there are such rounds."""
        return first_round < end_round and self.weighted.has_edge(sender, receiver)

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Attributes of a link in the graph, except those for mixing."""
        if not self.weighted.has_edge(sender, receiver):
            return {}
        attributes: Mapping[str, object] = self.weighted.edges[sender, receiver]
        return {name: attributes[name] for name in attributes.keys() - _NOT_OF_LINKS}

    @cached_property
    def _out_edges(self) -> tuple[OutEdges, ...]:
        links = self.weighted.adj
        return tuple(
            tuple(
                (receiver, links[sender][receiver]["weight"]) for receiver in sorted(links[sender])
            )
            for sender in range(self.num_devices)
        )

    @cached_property
    def _in_neighbors(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(sorted(self.weighted.predecessors(receiver)))
            for receiver in range(self.num_devices)
        )


@dataclass(frozen=True)
class Cycle:
    """Graphs in turn, each for `hold` rounds; only all of them together need be connected.

    Args:
        graphs: graphs with weights, of the same devices.
        hold: rounds for which each stays.

    Raises:
        TopologyError: no graph, graphs of different size, no sound weights, or hold below 1.
    """

    graphs: tuple[nx.DiGraph[int], ...]
    hold: int

    exchange_every: ClassVar[int] = 1
    seconds_per_round: ClassVar[None] = None
    presence: ClassVar[Presence] = EVERYONE

    def __post_init__(self) -> None:
        check_hold(self.hold)
        if not self.graphs:
            raise TopologyError("a cycle of no graphs: needs at least one")
        sizes = sorted({len(graph) for graph in self.graphs})
        if len(sizes) > 1:
            raise TopologyError(f"a cycle of graphs of {sizes} devices: they must be the same")
        for graph in self.graphs:
            check_weighted(graph)

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0."""
        return len(self.graphs[0])

    @property
    def is_static(self) -> bool:
        """Whether there is a single graph."""
        return len(self.graphs) == 1

    @property
    def period(self) -> int:
        """Rounds until the first graph is back."""
        return 1 if self.is_static else len(self.graphs) * self.hold

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round."""
        return self._stage(round_index).weighted

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""
        return self._stage(round_index).out_edges(device, round_index)

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""
        return self._stage(round_index).in_neighbors(device, round_index)

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one sends to in any of the graphs, increasing."""
        return tuple(sorted({i for s in self._stages for i in s.possible_receivers(device)}))

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Devices that send to this one in any of the graphs, increasing."""
        return tuple(sorted({j for s in self._stages for j in s.possible_senders(device)}))

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether one of the graphs of these rounds has such an edge."""
        return any(
            self.graphs[stage].has_edge(sender, receiver)
            for stage in stages_of_rounds(first_round, end_round, self.hold, len(self.graphs))
        )

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:
        """Attributes of a link in the graphs; if two graphs disagree, those of the later one."""
        attributes: dict[str, object] = {}
        for stage in self._stages:
            attributes |= stage.link_attributes(sender, receiver)
        return attributes

    def _stage(self, round_index: int) -> Static:
        return self._stages[round_index // self.hold % len(self._stages)]

    @cached_property
    def _stages(self) -> tuple[Static, ...]:
        return tuple(Static(graph) for graph in self.graphs)


def first_exchange(schedule: Schedule) -> int:
    """The first round in which devices exchange.

    The attribute `first_exchange` of the schedule; by default the last round of the first cycle.
    """
    first: int = getattr(schedule, "first_exchange", schedule.exchange_every - 1)
    return first


def weight_by_sender(schedule: Schedule, device: int, round_index: int) -> dict[int, float]:
    """Weights of the edges on which a device receives in a round, by sender."""
    return {
        sender: dict(schedule.out_edges(sender, round_index))[device]
        for sender in schedule.in_neighbors(device, round_index)
    }


def exchange_of(every: int, round_index: int) -> tuple[int, bool]:
    """The exchange that a round leads up to, and whether it is in this very round.

    Args:
        every: rounds from one exchange to the next.
        round_index: the round.
    """
    exchange, place = divmod(round_index, every)
    return exchange, place == every - 1


def check_schedule(schedule: Schedule, num_rounds: int | None = None) -> None:
    """Check that there is a path from every device to every other.

    The graphs of all rounds taken together must be strongly connected. Edges that depend on random
    absences count as present.

    Args:
        schedule: of a fleet.
        num_rounds: of a run; later rounds do not count.

    Raises:
        TopologyError: they are not; says which devices cannot be reached from which.
    """

    def receivers(device: int) -> list[int]:
        peers = schedule.possible_receivers(device)
        return [i for i in peers if num_rounds is None or is_active(device, i, 0, num_rounds)]

    def senders(device: int) -> list[int]:
        peers = schedule.possible_senders(device)
        return [j for j in peers if num_rounds is None or is_active(j, device, 0, num_rounds)]

    is_active = schedule.is_ever_active
    unreached = _not_reached(schedule.num_devices, receivers)
    unheard = _not_reached(schedule.num_devices, senders)
    if unreached or unheard:
        sources, targets = ({0}, unreached) if unreached else (unheard, {0})
        names = schedule.graph(0)
        raise TopologyError(
            f"not strongly connected: nothing that {_name(names, sources)} sends can reach "
            f"{_name(names, targets)}{_within(schedule, num_rounds)}"
        )


def stages_of_rounds(
    first_round: int, end_round: int, hold: int, num_stages: int
) -> tuple[int, ...]:
    """Stages that hold in any of the rounds; stages take turns for `hold` rounds each.

    Args:
        first_round: first of the rounds.
        end_round: first round after them.
        hold: rounds of a stage, at least 1.
        num_stages: number of stages of a period, at least 1.
    """
    if first_round >= end_round:
        return ()
    first = first_round // hold
    end = min((end_round - 1) // hold + 1, first + num_stages)
    return tuple(stage % num_stages for stage in range(first, end))


def check_hold(hold: int) -> None:
    """Make sure that each graph stays for at least one round.

    Raises:
        TopologyError: it does not.
    """
    if hold < 1:
        raise TopologyError(f"hold is {hold}; must be at least 1 round")


def _not_reached(num_devices: int, peers: Callable[[int], Iterable[int]]) -> set[int]:
    """Devices that no path from device 0 leads to."""
    missing, ahead = set(range(1, num_devices)), [0]
    while ahead and missing:
        found = missing.intersection(peers(ahead.pop()))
        missing -= found
        ahead.extend(found)
    return missing


def _within(schedule: Schedule, num_rounds: int | None) -> str:
    """Part of a message: the checked rounds, and the remedy."""
    if num_rounds is not None and schedule.exchange_every > 1:
        exchanges = num_rounds // schedule.exchange_every
        return (
            f" within {num_rounds} rounds, one in {schedule.exchange_every} of which exchanges: "
            f"{exchanges}; exchange more often, add links that way, or train for more rounds"
        )
    if num_rounds is not None and not schedule.is_static:
        return f" within {num_rounds} rounds; add links that way, or train for more rounds"
    if schedule.is_static:
        return "; add links that way"
    rounds = "any round" if schedule.period is None else f"{schedule.period} rounds"
    return f" within {rounds}; add links that way"


def _name(graph: nx.DiGraph[int], devices: set[int]) -> str:
    """Devices in a message: numbers, and names if a file gives them."""
    words = []
    for device in sorted(devices)[:_NAMED_DEVICES]:
        name = graph.nodes[device].get("name")
        words.append(str(device) if name is None else f"{device} ({name})")
    more = len(devices) - len(words)
    plural = "s" if len(devices) > 1 else ""
    return f"device{plural} {', '.join(words)}" + (f" and {more} more" if more else "")
