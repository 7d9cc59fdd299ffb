"""Mixing weights: which share of its mass a device gives to each neighbour.

Source: reference.md, sections 3.1 and 3.8.

# W[i, j]: share of j's mass that goes to i   j -> i: j sends to i   d: links that leave a device
"""

from __future__ import annotations

from math import isfinite
from typing import Literal, TypeAlias, get_args

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topologies.errors import TopologyError

Weights: TypeAlias = Literal["column_stochastic", "metropolis"]
"""The two kinds of mixing weights, by the names of scenarios."""

_ROUNDING = 1e-12  # sums of up to thousands of weights in float64


def column_stochastic(graph: nx.DiGraph[int]) -> nx.DiGraph[int]:
    """Give each edge `weight` = multiplicity / (d + 1), which the sender alone can know.

    The mass that a device sends and keeps adds up to what it had, on every graph; on regular
    graphs W is doubly stochastic as well. Source: reference.md, section 3.1, uniform mixing.

    Returns:
        A frozen copy. Other attributes stay; a `weight` that an edge had before is replaced.

    Raises:
        TopologyError: the graph is no communication graph (nodes, self loops, multiplicity).
    """
    links = _links_by_sender(graph)
    weighted: nx.DiGraph[int] = graph.copy()
    for sender, _, attributes in weighted.edges(data=True):
        attributes["weight"] = attributes.get("multiplicity", 1) / (links[sender] + 1)
    nx.freeze(weighted)
    return weighted


def metropolis(graph: nx.DiGraph[int]) -> nx.DiGraph[int]:
    """Give each edge `weight` = multiplicity / (1 + the larger d of both ends).

    W is symmetric, hence doubly stochastic, on every symmetric graph, regular or not. Source:
    Metropolis weights as in Xiao, Boyd, Kim (2007).

    Returns:
        A frozen copy. Other attributes stay; a `weight` that an edge had before is replaced.

    Raises:
        TopologyError: a link has no equal way back.
    """
    links = _links_by_sender(graph)
    weighted: nx.DiGraph[int] = graph.copy()
    for sender, receiver, attributes in weighted.edges(data=True):
        multiplicity = attributes.get("multiplicity", 1)
        way_back = graph.get_edge_data(receiver, sender)
        if way_back is None or way_back.get("multiplicity", 1) != multiplicity:
            link = link_in_words(graph, sender, receiver)
            raise TopologyError(
                f"metropolis weights need every link in both directions alike, and {link} has no "
                "such way back; add it (a line of a list is one direction), or use weights: "
                "column_stochastic"
            )
        attributes["weight"] = multiplicity / (1 + max(links[sender], links[receiver]))
    nx.freeze(weighted)
    return weighted


def device_in_words(graph: nx.DiGraph[int], device: int) -> str:
    """A device in a message: its number, and its name if the graph has names."""
    name = graph.nodes[device].get("name")
    return f"device {device}" if name is None else f"device {device} ({name})"


def link_in_words(graph: nx.DiGraph[int], sender: int, receiver: int) -> str:
    """A link in a message, by the names of its ends if the graph has names."""
    return " -> ".join(str(graph.nodes[end].get("name", end)) for end in (sender, receiver))


def check_weights(weights: str) -> None:
    """Check that a kind of weights exists.

    Raises:
        TopologyError: there is none of that name.
    """
    if weights not in get_args(Weights):
        raise TopologyError(f"no weights {weights!r}; there are {', '.join(get_args(Weights))}")


def check_weighted(weighted: nx.DiGraph[int]) -> None:
    """Check the weights of a graph: no device sends more than its whole mass.

    Raises:
        TopologyError: wrong nodes, self loops, or a weight that is missing or out of range.
    """
    _links_by_sender(weighted)
    for sender in weighted:
        weights = [weighted.edges[edge].get("weight", 0.0) for edge in weighted.out_edges(sender)]
        if not all(isfinite(weight) and weight > 0 for weight in weights):
            raise TopologyError(
                f"{device_in_words(weighted, sender)} has a link without a positive weight; "
                f"apply column_stochastic or metropolis to the graph"
            )
        if sum(weights) > 1 + _ROUNDING:
            raise TopologyError(
                f"{device_in_words(weighted, sender)} gives away {sum(weights):g} of its mass; "
                "must be at most 1"
            )


def mixing_matrix(weighted: nx.DiGraph[int]) -> NDArray[np.float64]:
    """Matrix W of a weighted graph: W @ x is one exact averaging round.

    Returns:
        W, shape (n, n): W[i, j] is the weight of the edge j -> i, W[j, j] what j keeps. Columns
        sum to one.

    Raises:
        TopologyError: see `check_weighted`.
    """
    check_weighted(weighted)
    W = np.zeros((len(weighted), len(weighted)))
    for sender, receiver in weighted.edges:
        W[receiver, sender] = weighted.edges[sender, receiver]["weight"]
    np.fill_diagonal(W, 1.0 - W.sum(axis=0))
    return W


def is_column_stochastic(W: NDArray[np.float64]) -> bool:
    """Whether no entry is negative and every column sums to one: the total mass is conserved."""
    return bool(np.all(W >= -_ROUNDING)) and np.allclose(W.sum(axis=0), 1, rtol=0, atol=_ROUNDING)


def is_balanced(weighted: nx.DiGraph[int]) -> bool:
    """Whether every device gets as much weight as it gives: W is then doubly stochastic.

    It takes time proportional to the number of links.
    """
    surplus = dict.fromkeys(weighted, 0.0)
    for sender, links in weighted.adjacency():
        for receiver, attributes in links.items():
            surplus[sender] -= attributes["weight"]
            surplus[receiver] += attributes["weight"]
    return all(abs(weight) <= _ROUNDING for weight in surplus.values())


def has_symmetric_weights(weighted: nx.DiGraph[int]) -> bool:
    """Whether every edge has a way back of the same weight."""
    return all(
        weighted.has_edge(i, j)
        and abs(weighted.edges[i, j]["weight"] - attributes["weight"]) <= _ROUNDING
        for j, i, attributes in weighted.edges(data=True)
    )


def spectral_gap(W: NDArray[np.float64]) -> float:
    """1 - |lambda_2|: the share of disagreement that a round removes in the long run.

    It is 1 for a lone device and 0 where devices cannot agree.

    Args:
        W: shape (n, n), column-stochastic.
    """
    moduli = np.sort(np.abs(np.linalg.eigvals(W)))
    return float(1.0 - moduli[-2]) if len(moduli) > 1 else 1.0


def only_passes_on(weighted: nx.DiGraph[int]) -> bool:
    """Whether models go round and are never averaged: then the spectral gap is 0.

    So it is where no device keeps a share of its mass, and the lengths of all cycles have a common
    divisor above 1. It takes time proportional to the number of links.

    Args:
        weighted: strongly connected, as all static schedules are.
    """
    keeps = any(
        sum(attributes["weight"] for attributes in links.values()) < 1 - _ROUNDING
        for _, links in weighted.adjacency()
    )
    return not keeps and not nx.is_aperiodic(weighted)


def _links_by_sender(graph: nx.DiGraph[int]) -> dict[int, int]:
    """Number of links that leave each device, with multiplicity; checks the graph."""
    if len(graph) == 0 or set(graph) != set(range(len(graph))):
        raise TopologyError(f"a graph of {len(graph)} devices must number its nodes 0, 1, 2, ...")
    links = dict.fromkeys(graph, 0)
    for sender, receiver, multiplicity in graph.edges(data="multiplicity", default=1):
        if sender == receiver:
            device = device_in_words(graph, sender)
            raise TopologyError(f"{device} sends to itself; remove that link")
        if not isinstance(multiplicity, int) or multiplicity < 1:
            raise TopologyError(
                f"link {link_in_words(graph, sender, receiver)}: multiplicity is "
                f"{multiplicity!r}; must be a count"
            )
        links[sender] += multiplicity
    return links
