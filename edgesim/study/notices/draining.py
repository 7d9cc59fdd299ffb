"""Devices that nothing reaches while others are absent, so that their push weights drain away."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx

from edgesim.assembly.gossip import moves_mass
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.errors import device_label
from edgesim.study.notices.batteries import NAMED_NOTICES
from topologies import Schedule

_MOST_EDGES = 200_000  # over all moments looked at
_FEW_EXCHANGES = 5  # after which a push weight may be a thirtieth


def draining_notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """Planned absences in lockstep that cut off devices of a directed graph.

    A device that receives nothing gives its mass away: x and u shrink alike, its model
    z = x/u stays. Its steps move x as before, so they move z by the inverse of u.

    Args:
        studied: the scenario, as objects.
        num_rounds: of each device.
    """
    scenario, schedule = studied.scenario, studied.schedule
    is_meant = scenario.fleet.rules.waits_for_all and moves_mass(scenario)
    if scenario.fleet.churn is None or not is_meant or scenario.steps_on_model:
        return []
    graph = _fixed_graph(schedule)
    if graph is None:
        return []
    found: dict[tuple[int, ...], str] = {}
    for start, end in _moments(schedule, graph, num_rounds):
        if (end - start) // schedule.exchange_every < _FEW_EXCHANGES:
            continue
        cut_off = _sources(graph.subgraph(_there(schedule, start)))
        if cut_off and cut_off not in found:
            names = ", ".join(device_label(n, scenario.fleet.listed_names) for n in cut_off)
            found[cut_off] = (
                f"fleet.churn: from round {start:,} to {end - 1:,} devices are absent so that "
                f"nothing reaches {names}: push weights shrink there with each exchange, and steps "
                "grow as their inverse; set training.optimizer.step_on: model, or take a graph "
                "with links in both directions"
            )
    return list(found.values())[:NAMED_NOTICES]


def _fixed_graph(schedule: Schedule) -> nx.DiGraph[int] | None:
    """The graph of all devices in rounds with an exchange; None if it changes."""
    while (inner := getattr(schedule, "schedule", None)) is not None:  # presence, local steps
        schedule = inner
    return schedule.graph(0) if schedule.is_static else None


def _moments(schedule: Schedule, graph: nx.DiGraph[int], num_rounds: int) -> list[tuple[int, int]]:
    """Spans of rounds in which the same devices are there, by plan; none if there are too many."""
    ends = {0, num_rounds}
    for device in graph:
        for span in schedule.presence.spans(device):
            ends.update(r for r in span if 0 < r < num_rounds)
    if len(ends) * graph.number_of_edges() > _MOST_EDGES:
        return []
    return list(pairwise(sorted(ends)))


def _there(schedule: Schedule, round_index: int) -> list[int]:
    """Devices that are there in a round by plan; some may be absent at random."""
    spans = ((n, span) for n in range(schedule.num_devices) for span in schedule.presence.spans(n))
    return [n for n, (start, end) in spans if start <= round_index < end]


def _sources(graph: nx.DiGraph[int]) -> tuple[int, ...]:
    """Devices that send to others, none of which reaches them."""
    if graph.number_of_nodes() < 2 or nx.is_strongly_connected(graph):
        return ()
    parts = nx.condensation(graph)
    sources = (part for part in parts if not parts.in_degree(part) and parts.out_degree(part))
    return tuple(sorted(n for part in sources for n in parts.nodes[part]["members"]))
