"""Places of devices in the drawing of a graph."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from edgesim.report.figures.layout import even_layout, spring_layout


def distances(places):
    return np.linalg.norm(places[:, None] - places[None], axis=2)


@pytest.mark.parametrize(
    "graph",
    [nx.path_graph(6), nx.grid_2d_graph(3, 3), nx.star_graph(4)],
    ids=["path", "grid", "star"],
)
def test_distances_are_about_those_of_the_graph(graph):
    """A path fits a line; a grid and a star keep nodes at about their distances."""
    graph = nx.convert_node_labels_to_integers(graph)
    wanted = np.array(nx.floyd_warshall_numpy(graph))
    found = distances(even_layout(graph))
    above = np.triu_indices(len(graph), 1)
    bound = 0.02 if graph.number_of_nodes() == 6 else 0.35
    assert np.abs(found[above] - wanted[above]).max() < bound * wanted.max()


def test_a_ring_is_a_circle():
    places = even_layout(nx.cycle_graph(12))
    radii = np.linalg.norm(places - places.mean(axis=0), axis=1)
    assert np.ptp(radii) < 1e-6 * radii.mean()


def test_one_node():
    assert even_layout(nx.empty_graph(1)).shape == (1, 2)


def test_springs_bring_neighbours_together_and_keep_nodes_apart():
    graph = nx.random_regular_graph(4, 200, seed=1)
    found = distances(spring_layout(graph))
    first, second = np.array(graph.edges).T
    others = found[np.triu_indices(200, 1)]
    assert found[first, second].mean() < 0.6 * others.mean()
    assert others.min() > 1e-3 * others.max()


def test_springs_take_a_graph_without_edges_and_one_in_pieces():
    for graph in (nx.empty_graph(70), nx.disjoint_union(nx.cycle_graph(40), nx.cycle_graph(40))):
        places = spring_layout(graph)
        assert np.isfinite(places).all()
        assert np.ptp(places, axis=0).min() > 0
