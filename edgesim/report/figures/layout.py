"""Places of a graph's nodes in a drawing.

Own code because the layouts of networkx load scipy.optimize, and take seconds for 1,000 nodes.
"""

from __future__ import annotations

from typing import TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Places: TypeAlias = NDArray[np.float64]
"""Places in the plane, shape (nodes, 2)."""

_STEPS = 200  # of the even layout
_SPRING_STEPS = 100
_LEAST_DISTANCE = 0.01  # of two nodes, in the longest way that springs may move a node at first


def even_layout(graph: nx.Graph[int]) -> Places:
    """Places whose distances are those in the graph, as far as a plane allows.

    Stress majorization (E. Gansner, Y. Koren, S. North, Graph drawing by stress majorization,
    2004), from a circle on.

    Args:
        graph: connected; its nodes are 0, 1, ...
    """
    # d: distances in the graph   w: weights   x: places
    n = len(graph)
    if n == 1:
        return np.zeros((1, 2))
    d = np.zeros((n, n))
    for source, lengths in nx.all_pairs_shortest_path_length(graph):
        d[source, list(lengths)] = list(lengths.values())
    w = np.divide(1.0, d**2, out=np.zeros_like(d), where=d > 0)
    laplacian = np.diag(w.sum(axis=1)) - w
    inverse = np.linalg.pinv(laplacian)
    angles = 2 * np.pi * np.arange(n) / n
    x: Places = n / 4 * np.column_stack([np.cos(angles), np.sin(angles)])
    for _ in range(_STEPS):
        apart = np.linalg.norm(x[:, None] - x[None], axis=2)
        pull = np.divide(w * d, apart, out=np.zeros_like(d), where=apart > 0)
        x = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ x  # equations 6 and 7
    return x


def spring_layout(graph: nx.Graph[int]) -> Places:
    """Places where edges pull like springs and all nodes push each other away.

    T. Fruchterman, E. Reingold, Graph drawing by force-directed placement, 1991.

    Args:
        graph: its nodes are 0, 1, ...
    """
    # k: distance at which the forces of an edge are equal
    n = len(graph)
    x: Places = np.random.default_rng(1).random((n, 2))
    k = np.sqrt(1.0 / n)
    edges = np.array(graph.edges, dtype=np.int64).reshape(-1, 2)
    for step in range(_SPRING_STEPS):
        squares = (x**2).sum(axis=1)
        apart_squared = np.maximum(squares[:, None] + squares[None] - 2 * x @ x.T, 1e-9)
        push = k**2 / apart_squared
        force = x * push.sum(axis=1)[:, None] - push @ x
        along = x[edges[:, 1]] - x[edges[:, 0]]
        pull = along * (np.linalg.norm(along, axis=1) / k)[:, None]
        np.add.at(force, edges[:, 0], pull)
        np.add.at(force, edges[:, 1], -pull)
        longest = 0.1 * (1 - step / _SPRING_STEPS)
        length = np.maximum(np.linalg.norm(force, axis=1), _LEAST_DISTANCE * longest)
        x = x + force * (np.minimum(length, longest) / length)[:, None]
    return x
