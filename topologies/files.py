"""Graphs from files: GraphML networks and edge lists."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx

from topologies.errors import TopologyError
from topologies.file_size import check_file
from topologies.graphs import check_number_of_links

LINK_FIGURES = ("bandwidth_mbps", "latency_ms", "jitter_ms", "loss")
"""Attributes of links that are numbers, with their units; `loss` is a share of packets."""

_OTHER_HEADS = {("from", "to"), ("src", "dst"), ("sender", "receiver"), ("source", "destination")}
_FOR_PEOPLE = ("name", "label", "description", "id", "key")  # of a link; kept, never used
_LINK_ATTRIBUTES = ("multiplicity", *LINK_FIGURES, *_FOR_PEOPLE)


def load_graph(path: Path) -> nx.DiGraph[int]:
    """Read a graph; the file's ending says which format it has.

    - `.graphml`: directed or not. Links of an undirected file go both ways. Parallel links become
      one edge of that multiplicity.
    - `.csv`: a link `source,target` per line. A first line that starts with these two words may
      name further columns, such as `source,target,latency_ms`: they become link attributes, where
      a cell is not empty.
    - `.edgelist`, `.txt`: `source target` per line, `#` starts a comment.

    Edge lists are directed: a link that goes both ways takes two lines. A link may have the
    attributes `multiplicity`, those of `LINK_FIGURES`, which are numbers, and for people `name`,
    `label`, `description`, `id` and `key`.

    Returns:
        Nodes 0 to n-1 in the order of the file's names (by value if all are integers), with the
        name as attribute `name`; further node attributes and those of links are kept.

    Raises:
        TopologyError: the file is missing or broken; says which line.
    """
    readers = {
        ".graphml": _read_graphml,
        ".csv": _read_csv,
        ".edgelist": _read_edge_list,
        ".txt": _read_edge_list,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TopologyError(f"{path}: unknown ending; use one of {', '.join(readers)}")
    check_file(path)
    try:
        graph = reader(path)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path}: is no text in UTF-8 (byte {error.start})") from error
    if graph.number_of_edges() == 0:
        raise TopologyError(f"{path}: has no links")
    check_number_of_links(graph.number_of_edges())
    return _number_nodes(graph)


def _read_graphml(path: Path) -> nx.DiGraph[str]:
    """Named graph of a GraphML file."""
    try:
        read = nx.read_graphml(path)
    except ParseError as error:
        line, _ = error.position
        raise TopologyError(f"{path}, line {line}: is no XML: {error}") from error
    except (nx.NetworkXError, ValueError, LookupError, TypeError, AttributeError) as error:
        # networkx raises errors of many types for bad types, keys, values and encodings
        raise TopologyError(f"{path}: is no valid GraphML: {error}") from error
    directed = read if read.is_directed() else read.to_directed()
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(directed.nodes(data=True))
    for source, target, attributes in directed.edges(data=True):
        _add_link(graph, source, target, attributes, str(path))
    return graph


def _read_csv(path: Path) -> nx.DiGraph[str]:
    """Named graph of comma-separated links; a line that starts with # is a comment."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
        except csv.Error as error:
            raise TopologyError(f"{path}: is no comma-separated text: {error}") from error
    rows = [(line, cells) for line, cells in lines if any(cells) and cells[0][:1] != "#"]
    columns = ["source", "target"]
    if rows and [cell.lower() for cell in rows[0][1][:2]] == columns:
        line, cells = rows.pop(0)
        columns += cells[2:]
        check_link_names(columns[2:], f"{path}, line {line}")
        if len(set(columns)) < len(columns):
            raise TopologyError(f"{path}, line {line}: names a column twice; remove one of them")
    elif rows and tuple(cell.lower() for cell in rows[0][1][:2]) in _OTHER_HEADS:
        line, cells = rows[0]
        raise TopologyError(
            f"{path}, line {line}: is {','.join(cells)}; a line of names begins with source,target"
        )
    return _graph_of_rows(path, rows, columns)


def _read_edge_list(path: Path) -> nx.DiGraph[str]:
    """Named graph of links separated by blanks."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows = [(number, line.partition("#")[0].split()) for number, line in enumerate(lines, 1)]
    return _graph_of_rows(path, [row for row in rows if row[1]], ["source", "target"])


def _graph_of_rows(
    path: Path, rows: list[tuple[int, list[str]]], columns: list[str]
) -> nx.DiGraph[str]:
    """Named graph of rows (line number, cells), each a link that occurs once."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for line, cells in rows:
        where = f"{path}, line {line}"
        if len(cells) != len(columns) or not (cells[0] and cells[1]):
            remedy = "; separate cells by commas" if ";" in cells[0] else ""
            raise TopologyError(f"{where}: {cells} is not of the form {', '.join(columns)}{remedy}")
        source, target = cells[:2]
        if graph.has_edge(source, target):
            raise TopologyError(f"{where}: the link {source} -> {target} occurs twice; remove one")
        named = zip(columns[2:], cells[2:], strict=True)
        attributes = {name: _number_or_text(cell) for name, cell in named if cell}
        _add_link(graph, source, target, attributes, where)
    return graph


def _add_link(
    graph: nx.DiGraph[str], source: str, target: str, attributes: Mapping[str, Any], where: str
) -> None:
    """Add a link; a repeated link raises the multiplicity."""
    if source == target:
        raise TopologyError(f"{where}: {source} sends to itself; remove that link")
    check_link_names(attributes, where)
    for name in LINK_FIGURES:
        figure = attributes.get(name, 0)
        # In Python, bool is a subclass of int.
        if not (type(figure) in (int, float) and isfinite(figure)):
            raise TopologyError(
                f"{where}: {name} of {source} -> {target} is {figure!r}; must be a number"
            )
    multiplicity = attributes.get("multiplicity", 1)
    if type(multiplicity) is not int or multiplicity < 1:
        raise TopologyError(
            f"{where}: multiplicity of {source} -> {target} is {multiplicity!r}; must be a count"
        )
    if graph.has_edge(source, target):
        known = graph.edges[source, target]
        for name in LINK_FIGURES:
            if known.get(name) != attributes.get(name):
                raise TopologyError(
                    f"{where}: parallel links {source} -> {target} differ in {name}; "
                    "make one link of them"
                )
        known["multiplicity"] += multiplicity
    else:
        graph.add_edge(source, target, **{**attributes, "multiplicity": multiplicity})


def check_link_names(names: Iterable[str], where: str) -> None:
    """Refuse attributes of links that would be ignored.

    Raises:
        TopologyError: a name is none of `load_graph`'s.
    """
    for name in names:
        if name == "weight":
            raise TopologyError(
                f"{where}: the weight of links is decided by topology.weights, not by the file; "
                "remove it"
            )
        if name not in _LINK_ATTRIBUTES:
            meant = get_close_matches(name.lower(), _LINK_ATTRIBUTES, n=1)
            known = ", ".join(_LINK_ATTRIBUTES)
            remedy = f"did you mean {meant[0]}?" if meant else f"remove it; links have {known}"
            raise TopologyError(f"{where}: links have no attribute {name!r}; {remedy}")


def _number_nodes(named: nx.DiGraph[str]) -> nx.DiGraph[int]:
    """Copy with nodes 0 to n-1 in the order of their names."""
    are_integers = all(name.isascii() and name.isdigit() for name in named)
    width = max(map(len, named)) if are_integers else 0
    names = sorted(named, key=lambda name: (name.zfill(width), name))  # "2" before "10"
    number = {name: device for device, name in enumerate(names)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    for name in names:
        if (other := named.nodes[name].get("name", name)) != name:
            raise TopologyError(
                f"node {name} has the name {other!r}; a node's id is the device's name: remove the "
                "attribute, or make it the id"
            )
        graph.add_node(number[name], **{**named.nodes[name], "name": name})
    for source, target, attributes in named.edges(data=True):
        graph.add_edge(number[source], number[target], **attributes)
    return graph


def _number_or_text(cell: str) -> int | float | str:
    """A cell's number, if it is one."""
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            continue
    return cell
