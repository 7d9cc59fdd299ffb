"""Attributes of devices in the file of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from topologies.errors import TopologyError
from topologies.schedules import Cycle, Schedule, Static
from topologies.traces import ContactTrace


def device_attributes(schedule: Schedule) -> tuple[Mapping[str, object], ...]:
    """Attributes of each device, by number; none where no file names devices.

    Each has `name`, text; graph files may have others.

    Args:
        schedule: as a builder made it, without presence.

    Raises:
        TopologyError: graphs of a cycle have different attributes for a device.
    """
    match schedule:
        case ContactTrace():
            return tuple({"name": name} for name in schedule.names)
        case Static():
            return _of_graph(schedule.weighted)
        case Cycle():
            return _of_all(schedule.graphs)
        case _:
            return ()


def _of_graph(graph: nx.DiGraph[int]) -> tuple[Mapping[str, object], ...]:
    """Attributes in the graph of a file; generated graphs have no names."""
    if any("name" not in graph.nodes[device] for device in range(len(graph))):
        return ()
    return tuple(graph.nodes[device] for device in range(len(graph)))


def _of_all(graphs: Sequence[nx.DiGraph[int]]) -> tuple[Mapping[str, object], ...]:
    """Attributes in several graphs, which must agree on each device."""
    named = [attributes for graph in graphs if (attributes := _of_graph(graph))]
    merged = [dict(attributes) for attributes in named[0]] if named else []
    for attributes in named[1:]:
        for device, (known, more) in enumerate(zip(merged, attributes, strict=True)):
            for key in ("name", "profile"):
                if key in known and key in more and known[key] != more[key]:
                    raise TopologyError(
                        f"graphs of the cycle differ in the {key} of device {device}, "
                        f"{known[key]} and {more[key]}: their files must have the same nodes"
                    )
            known.update(more)
    return tuple(merged)
