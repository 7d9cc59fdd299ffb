"""Schedules: which weighted graph holds in which round.

A schedule is a pure function of the round, the same on every device, so nobody has to be told
who sends to whom. Devices ask for their own edges only, which costs no graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import networkx as nx

from topologies.errors import TopologyError
from topologies.mixing import check_weighted

OutEdges: TypeAlias = tuple[tuple[int, float], ...]
"""Edges on which a device sends: (receiver, weight), sorted by receiver."""

_APERIODIC_GRAPHS = 32  # of an aperiodic schedule, looked at by check_schedule
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
        """Rounds for which each graph stays."""

    @property
    def is_static(self) -> bool:
        """Whether all rounds have the same graph."""

    @property
    def period(self) -> int | None:
        """Rounds after which the graphs repeat; None if they never do."""

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round, with edge attribute `weight`; not to be changed."""

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """Receivers of a device in a round with their weights, sorted by receiver."""

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """Senders to a device in a round, sorted."""


@dataclass(frozen=True)
class Static:
    """The same graph in every round.

    Args:
        weighted: graph with weights, as `column_stochastic` and `metropolis` return it.

    Raises:
        TopologyError: the graph has no sound weights.
    """

    weighted: nx.DiGraph[int]

    def __post_init__(self) -> None:
        check_weighted(self.weighted)

    @property
    def num_devices(self) -> int:
        """Devices, numbered from 0."""
        return len(self.weighted)

    @property
    def hold(self) -> int:
        """One round, then the same again."""
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

    def _stage(self, round_index: int) -> Static:
        return self._stages[round_index // self.hold % len(self._stages)]

    @cached_property
    def _stages(self) -> tuple[Static, ...]:
        return tuple(Static(graph) for graph in self.graphs)


def possible_receivers(schedule: Schedule, device: int) -> tuple[int, ...]:
    """Devices that this one may send to in any round, increasing."""
    if schedule.period is None:
        return tuple(other for other in range(schedule.num_devices) if other != device)
    rounds = range(0, schedule.period, schedule.hold)
    return tuple(sorted({peer for r in rounds for peer, _ in schedule.out_edges(device, r)}))


def check_schedule(schedule: Schedule) -> None:
    """Make sure that what any device learns can reach every other, again in every period.

    Of an aperiodic schedule the first 32 graphs are taken for a period.

    Raises:
        TopologyError: the graphs of a period are not strongly connected, all taken together;
            says which devices cannot be reached from which.
    """
    period = schedule.period or _APERIODIC_GRAPHS * schedule.hold
    union: nx.DiGraph[Any] = nx.DiGraph()
    for round_index in range(0, period, schedule.hold):
        graph = schedule.graph(round_index)
        union.add_nodes_from(graph.nodes(data=True))
        union.add_edges_from(graph.edges)
        if nx.is_strongly_connected(union):
            return
    everyone = set(union)
    unreached = everyone - nx.descendants(union, 0) - {0}
    unheard = everyone - nx.ancestors(union, 0) - {0}
    senders, receivers = ({0}, unreached) if unreached else (unheard, {0})
    within = "" if schedule.is_static else f" within {period} rounds"
    raise TopologyError(
        f"not strongly connected: nothing that {_name(union, senders)} sends can reach "
        f"{_name(union, receivers)}{within}; add links that way"
    )


def check_hold(hold: int) -> None:
    """Make sure that each graph stays for at least one round.

    Raises:
        TopologyError: it does not.
    """
    if hold < 1:
        raise TopologyError(f"hold is {hold}; must be at least 1 round")


def _name(graph: nx.DiGraph[int], devices: set[int]) -> str:
    """Devices in words: by number, and by name where they came from a file."""
    words = []
    for device in sorted(devices)[:_NAMED_DEVICES]:
        name = graph.nodes[device].get("name")
        words.append(str(device) if name is None else f"{device} ({name})")
    more = len(devices) - len(words)
    plural = "s" if len(devices) > 1 else ""
    return f"device{plural} {', '.join(words)}" + (f" and {more} more" if more else "")
