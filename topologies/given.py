"""Schedules of graphs that somebody's own code made with networkx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import networkx as nx

from topologies.errors import TopologyError
from topologies.files import LINK_FIGURES, check_link_names
from topologies.graphs import check_number_of_links
from topologies.mixing import column_stochastic, link_in_words, metropolis
from topologies.schedules import Cycle, Schedule, Static, check_schedule

GivenWeights: TypeAlias = Literal["column_stochastic", "metropolis", "edges"]
"""Mixing weights of given graphs; `edges`: the attribute `weight` of each edge."""

_LISTED = 5  # nodes in a message


def given_schedule(
    given: object,
    num_devices: int,
    names: Sequence[str] = (),
    *,
    weights: GivenWeights = "column_stochastic",
    hold: int = 1,
) -> Schedule:
    """The schedule of a graph, or of graphs in turn.

    Args:
        given: a graph of networkx, or a list of graphs. An edge j -> i means that j sends to i; an
            undirected edge goes both ways. Edges may have the attributes `multiplicity`, those of
            `LINK_FIGURES`, and where weights are `edges` they have `weight`, the share of its mass
            that the sender gives away.
        num_devices: n. Nodes are the numbers 0 to n - 1, or the devices' names.
        names: of the devices, by number; empty if they have none.
        weights: how each graph is weighted.
        hold: rounds for which each of several graphs stays.

    Raises:
        TopologyError: it is no graph, has other nodes or no sound weights, or is not strongly
            connected over all graphs.
    """
    numbers: dict[object, int] = {device: device for device in range(num_devices)}
    numbers |= {name: device for device, name in enumerate(names)}
    if isinstance(given, nx.Graph):
        schedule: Schedule = Static(_weighted(given, numbers, names, weights, "the graph"))
    else:
        graphs = tuple(_all_weighted(given, numbers, names, weights))
        _check_figures(graphs)
        schedule = Cycle(graphs, hold)
    check_schedule(schedule)
    return schedule


def have_same_graphs(one: Schedule, other: Schedule) -> bool:
    """Whether two given schedules have the same graphs, with all attributes, in the same order."""
    return graphs_in_words(one) == graphs_in_words(other)


def graphs_in_words(given: Schedule) -> str:
    """All edges of a given schedule with their attributes, in an order of their own."""
    graphs = given.graphs if isinstance(given, Cycle) else (given.graph(0),)
    edges = [
        sorted((j, i, sorted(attributes.items())) for j, i, attributes in g.edges(data=True))
        for g in graphs
    ]
    return repr((given.hold, edges))


def _all_weighted(
    given: object, numbers: Mapping[object, int], names: Sequence[str], weights: GivenWeights
) -> Iterator[nx.DiGraph[int]]:
    if not isinstance(given, list | tuple):
        raise TopologyError(f"it is {type(given).__name__}; must be a graph of networkx, or a list")
    for place, graph in enumerate(given):
        if not isinstance(graph, nx.Graph):
            found = type(graph).__name__
            raise TopologyError(f"graph {place} is {found}; must be a graph of networkx")
    check_number_of_links(sum(graph.number_of_edges() for graph in given))
    for place, graph in enumerate(given):
        yield _weighted(graph, numbers, names, weights, f"graph {place}")


def _check_figures(graphs: Sequence[nx.DiGraph[int]]) -> None:
    """Refuse figures of a link that change from graph to graph: it has one radio for all rounds."""
    known: dict[tuple[int, int], tuple[object, ...]] = {}
    for place, graph in enumerate(graphs):
        for sender, receiver, attributes in graph.edges(data=True):
            figures = tuple(attributes.get(name) for name in LINK_FIGURES)
            if known.setdefault((sender, receiver), figures) != figures:
                raise TopologyError(
                    f"graph {place}, edge {link_in_words(graph, sender, receiver)}: its "
                    f"{', '.join(LINK_FIGURES)} "
                    "differ from those in a graph before; they must be the same in all graphs"
                )


def _weighted(
    given: nx.Graph[Any],
    numbers: Mapping[object, int],
    names: Sequence[str],
    weights: GivenWeights,
    said: str,
) -> nx.DiGraph[int]:
    """The graph with its weights, frozen, of devices by number."""
    graph = _numbered(given, numbers, names, said)
    check_number_of_links(graph.number_of_edges())
    has_weights = any("weight" in attributes for _, _, attributes in graph.edges(data=True))
    if has_weights and weights != "edges":
        raise TopologyError(
            f"{said} has edges with a weight, which weights: {weights} would replace; set weights: "
            "edges, or leave them out"
        )
    try:
        if weights == "edges":
            return _with_own_weights(graph)
        return metropolis(graph) if weights == "metropolis" else column_stochastic(graph)
    except TopologyError as error:
        raise TopologyError(f"{said}: {error}") from error


def _numbered(
    given: nx.Graph[Any], numbers: Mapping[object, int], names: Sequence[str], said: str
) -> nx.DiGraph[int]:
    """Copy whose nodes are 0 to n - 1, with the devices' names, if any, as their attribute."""
    if given.is_multigraph():
        raise TopologyError(
            f"{said} is a {type(given).__name__}; make it a Graph or DiGraph, whose edges may have "
            "an attribute multiplicity"
        )
    num_devices = max(numbers.values()) + 1
    odd = [node for node in given if node not in numbers]
    there = {numbers[node] for node in given if node in numbers}
    lacking = [(names or range(num_devices))[i] for i in range(num_devices) if i not in there]
    if odd or lacking or len(there) < len(given):
        which = f"nodes {_listed(odd)}" if odd else f"no nodes {_listed(lacking)}"
        if not odd and not lacking:
            which = "devices both by number and by name"
        raise TopologyError(
            f"{said} has {which}; its nodes must be 0 to {num_devices - 1}, or the devices' names"
        )
    if described := [node for node, of in given.nodes(data=True) if "profile" in of]:
        raise TopologyError(
            f"{said} gives a profile to the nodes {_listed(described)}, which would be ignored; "
            "name profiles in fleet"
        )
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(num_devices))
    for device, name in enumerate(names):
        graph.nodes[device]["name"] = name
    directed = given if given.is_directed() else given.to_directed(as_view=True)
    for source, target, attributes in directed.edges(data=True):
        where = f"{said}, edge {source} -> {target}"
        graph.add_edge(numbers[source], numbers[target], **_checked(attributes, where))
    return graph


def _checked(attributes: Mapping[str, Any], where: str) -> dict[str, object]:
    """Attributes of an edge, numbers as Python's own."""
    check_link_names(attributes.keys() - {"weight"}, where)
    checked = dict(attributes)
    for name in (*LINK_FIGURES, "weight"):
        if name in attributes:
            value = attributes[name]
            if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
                raise TopologyError(f"{where}: {name} is {value!r}; must be a number")
            checked[name] = float(value)
    if isinstance(count := attributes.get("multiplicity"), Integral):
        checked["multiplicity"] = int(count)
    return checked


def _with_own_weights(graph: nx.DiGraph[int]) -> nx.DiGraph[int]:
    """Frozen; `Static` and `Cycle` check how much a device gives away in all."""
    for sender, receiver, attributes in graph.edges(data=True):
        link = link_in_words(graph, sender, receiver)
        if attributes.get("multiplicity", 1) != 1:
            raise TopologyError(
                f"the edge {link} has a multiplicity, which weights: edges would "
                "ignore; give it in the weight"
            )
        if not 0 < attributes.get("weight", 0) <= 1:
            raise TopologyError(
                f"the weight of {link} is {attributes.get('weight')}; must be above 0 and at most 1"
            )
    nx.freeze(graph)
    return graph


def _listed(nodes: Sequence[object]) -> str:
    more = ", ..." if len(nodes) > _LISTED else ""
    return f"{', '.join(repr(node) for node in nodes[:_LISTED])}{more}"
