"""The fleet of a search for an averaging rate: the scenario's fleet, or a smaller one like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import device_hardware
from edgesim.errors import ScenarioError
from edgesim.hardware.timeline import Hardware
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import ErdosRenyi
from topologies import (
    Intermittent,
    Schedule,
    Static,
    column_stochastic,
    first_exchange,
    metropolis,
)

MOST_DEVICES = 64


@dataclass(frozen=True, slots=True)
class SearchFleet:
    """Fleet that gossips in a search.

    Attributes:
        schedule: graphs of the fleet.
        hardware: hardware of each device; empty without profiles.
        messages: number of messages in a round with an exchange.
    """

    schedule: Schedule
    hardware: tuple[Hardware, ...]
    messages: int


def search_fleet(scenario: Scenario, most_messages: int) -> SearchFleet:
    """The scenario's fleet without churn, or a smaller one.

    A graph that can be made for any number of devices is made for fewer. Of a graph file the search
    takes a connected part.

    Args:
        scenario: scenario of the fleet.
        most_messages: largest number of messages in a round; the smallest graph may have more.

    Raises:
        ScenarioError: no smaller fleet can represent a large one.
    """
    fleet = scenario.fleet.model_copy(update={"churn": None})
    whole = scenario.model_copy(update={"fleet": fleet})
    n = fleet.num_devices
    if n <= MOST_DEVICES or whole.topology.kind == "file":
        schedule = make_schedule(whole)
        if n <= MOST_DEVICES and _messages(schedule) <= most_messages:
            return _fleet(whole, schedule)
        if whole.topology.kind == "file":
            return _part_of_file(whole, schedule, most_messages)
    smallest = None
    for size in range(min(n, MOST_DEVICES), 1, -1):
        smaller = _resized(whole, size)
        try:
            schedule = make_schedule(smaller)
        except ScenarioError:  # there is no such torus, or no such regular graph
            continue
        smallest = smaller, schedule
        if _messages(schedule) <= most_messages:
            break
    if smallest is None:
        raise ScenarioError(
            f"gossip.averaging_rate: auto searches with {MOST_DEVICES} devices at most, and "
            f"topology.kind: {whole.topology.kind} of {n} has no smaller form; give a number"
        )
    return _fleet(*smallest)


def _fleet(scenario: Scenario, schedule: Schedule) -> SearchFleet:
    return SearchFleet(schedule, device_hardware(scenario, schedule), _messages(schedule))


def _messages(schedule: Schedule) -> int:
    """Number of messages in the first exchange."""
    first = first_exchange(schedule)
    return sum(len(schedule.out_edges(d, first)) for d in range(schedule.num_devices))


def _resized(scenario: Scenario, size: int) -> Scenario:
    """The scenario with fewer devices, of all its kinds, in their order."""
    fleet, topology = scenario.fleet, scenario.topology
    n = fleet.num_devices
    devices: int | tuple[object, ...] = size
    if not isinstance(fleet.devices, int):
        kinds = [group for group in fleet.groups for _ in range(group.count)]
        chosen = (kinds[place * n // size] for place in range(size))
        devices = tuple(kind.model_copy(update={"count": 1}) for kind in chosen)
    if isinstance(topology, ErdosRenyi):  # with as many neighbours
        probability = min(topology.probability * (n - 1) / (size - 1), 1.0)
        topology = topology.model_copy(update={"probability": probability})
    fleet = fleet.model_copy(update={"devices": devices, "names": ()})
    return scenario.model_copy(update={"fleet": fleet, "topology": topology})


def _part_of_file(scenario: Scenario, schedule: Schedule, most_messages: int) -> SearchFleet:
    """Given number of devices around device 0, with the links between them."""
    graph = schedule.graph(first_exchange(schedule))
    near = [0, *(node for _, node in nx.bfs_edges(graph.to_undirected(as_view=True), 0))]
    members = near[:MOST_DEVICES]
    while len(members) > 2 and graph.subgraph(members).number_of_edges() > most_messages:
        members.pop()
    part = graph.subgraph(members)
    if not nx.is_strongly_connected(part):
        raise ScenarioError(
            f"gossip.averaging_rate: auto searches with {MOST_DEVICES} devices and {most_messages} "
            f"messages a round at most, and no part of that size of the graph with its "
            f"{len(graph)} devices, its links going one way, is connected; give a number"
        )
    numbers = {member: place for place, member in enumerate(members)}
    weigh = metropolis if scenario.topology.model_dump().get("weights") == "metropolis" else None
    small = (weigh or column_stochastic)(nx.relabel_nodes(part, numbers))
    smaller: Schedule = Static(small)
    if scenario.gossip.local_steps > 1:
        smaller = Intermittent(smaller, scenario.gossip.local_steps)
    return SearchFleet(
        smaller, _hardware_of_part(scenario, schedule, members, small), small.number_of_edges()
    )


def _hardware_of_part(
    scenario: Scenario, schedule: Schedule, members: Sequence[int], part: nx.DiGraph[int]
) -> tuple[Hardware, ...]:
    """Hardware of some devices, with links by their new numbers."""
    everybody = device_hardware(scenario, schedule)
    if not everybody:
        return ()
    return tuple(
        replace(
            everybody[member],
            links={new: everybody[member].links[members[new]] for new in part.successors(place)},
        )
        for place, member in enumerate(members)
    )
