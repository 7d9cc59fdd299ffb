"""Schedules of graphs that somebody's own code made."""

from __future__ import annotations

import re

import networkx as nx
import numpy as np
import pytest

from topologies import (
    TopologyError,
    given_schedule,
    has_symmetric_weights,
    have_same_graphs,
    mixing_matrix,
)


def triangle(**attributes):
    return nx.DiGraph([(0, 1), (1, 2), (2, 0)], **attributes)


def test_one_graph_stays_and_an_undirected_edge_goes_both_ways():
    schedule = given_schedule(nx.path_graph(3), 3)
    assert schedule.is_static
    assert schedule.out_edges(1, 7) == ((0, 1 / 3), (2, 1 / 3))
    assert schedule.in_neighbors(0, 0) == (1,)
    assert given_schedule(triangle(), 3).out_edges(0, 0) == ((1, 0.5),)


def test_graphs_of_a_list_take_turns_and_are_connected_together():
    pairs = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(0, 2), (1, 3)])]
    schedule = given_schedule(pairs, 4, hold=2)
    assert schedule.period == 4
    assert [schedule.out_edges(0, r) for r in range(5)] == [
        *[((1, 0.5),)] * 2,
        *[((2, 0.5),)] * 2,
        ((1, 0.5),),
    ]
    whole = mixing_matrix(schedule.graph(2)) @ mixing_matrix(schedule.graph(0))
    np.testing.assert_allclose(whole, np.full((4, 4), 0.25), atol=1e-15)


def test_weights_of_edges_are_the_mixing_matrix():
    graph = triangle()
    nx.set_edge_attributes(graph, {(0, 1): np.float32(0.25), (1, 2): 0.75, (2, 0): 1}, "weight")
    W = mixing_matrix(given_schedule(graph, 3, weights="edges").graph(0))
    np.testing.assert_array_equal(W, [[0.75, 0, 1], [0.25, 0.25, 0], [0, 0.75, 0]])


def test_metropolis_weights_are_symmetric():
    star = given_schedule(nx.star_graph(3), 4, weights="metropolis").graph(0)
    assert has_symmetric_weights(star)
    assert not has_symmetric_weights(given_schedule(nx.star_graph(3), 4).graph(0))
    assert not has_symmetric_weights(given_schedule(triangle(), 3).graph(0))


def test_nodes_may_be_names_and_edges_have_figures_of_links():
    graph = nx.Graph()
    graph.add_edge("hub", "a", latency_ms=np.float64(5), multiplicity=np.int64(2))
    graph.add_edge("hub", "b", loss=0.1, bandwidth_mbps=2)
    schedule = given_schedule(graph, 3, ("a", "hub", "b"))
    assert schedule.out_edges(1, 0) == ((0, 0.5), (2, 0.25))
    assert schedule.link_attributes(0, 1) == {"latency_ms": 5.0}
    assert schedule.link_attributes(2, 1) == {"loss": 0.1, "bandwidth_mbps": 2.0}


def test_two_schedules_are_the_same_if_their_graphs_are():
    graphs = [triangle(), nx.DiGraph([(2, 1), (1, 0), (0, 2)])]
    one = given_schedule(graphs, 3)
    assert have_same_graphs(one, given_schedule([g.copy() for g in graphs], 3))
    assert not have_same_graphs(one, given_schedule(graphs[::-1], 3))
    assert not have_same_graphs(one, given_schedule([*graphs, triangle()], 3))
    assert not have_same_graphs(one, given_schedule(graphs[0], 3))
    slow = triangle()
    slow.edges[0, 1]["latency_ms"] = 1.0
    assert not have_same_graphs(one, given_schedule([slow, graphs[1]], 3))


def weighted(weight):
    graph = triangle()
    nx.set_edge_attributes(graph, weight, "weight")
    return graph


def given_away(weight):
    return nx.from_numpy_array(weight * (1 - np.eye(3)))


def of_edge(**attributes):
    graph = triangle()
    graph.edges[0, 1].update(attributes)
    return graph


def of_node(**attributes):
    graph = triangle()
    graph.nodes[0].update(attributes)
    return graph


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (3, {}, "it is int; must be a graph of networkx, or a list"),
        ([], {}, "a cycle of no graphs"),
        ([triangle(), "x"], {}, "graph 1 is str; must be a graph of networkx"),
        (nx.path_graph(4), {}, r"the graph has nodes 3; its nodes must be 0 to 2, or the"),
        (nx.path_graph(2), {}, "the graph has no nodes 'z'; its nodes must be 0 to 2"),
        (nx.Graph([("a", 1), (1, 2), (2, 0)]), {}, "the graph has nodes 'a'"),
        (nx.Graph([("x", 1), (1, 2), (2, 0)]), {}, "devices both by number and by name"),
        ([nx.Graph([(0, 1)])], {}, "graph 0 has no nodes 'z'"),
        (nx.MultiGraph([(0, 1), (1, 2)]), {}, "the graph is a MultiGraph; make it a Graph or DiG"),
        (nx.DiGraph([(0, 1), (1, 2)]), {}, "not strongly connected"),
        (nx.DiGraph([(0, 1), (1, 2), (2, 0), (1, 1)]), {}, "sends to itself"),
        (triangle(), {"weights": "metropolis"}, "metropolis weights need every link in both"),
        (triangle(), {"weights": "edges"}, "the weight of x -> y is None; must be above 0"),
        (weighted(1.5), {"weights": "edges"}, "the weight of x -> y is 1.5; must be above 0"),
        (weighted(0.5), {}, "edges with a weight, which weights: column_stochastic would replace"),
        (weighted("x"), {}, "edge 0 -> 1: weight is 'x'; must be a number"),
        ([of_edge(latency_ms=3), triangle()], {}, "graph 1, edge x -> y: its bandwidth_mbps, lat"),
        (of_node(profile="gap9"), {}, "the graph gives a profile to the nodes 0, which would be"),
        (of_edge(latency=3), {}, "edge 0 -> 1: links have no attribute 'latency'; did you mean"),
        (of_edge(loss=True), {}, "edge 0 -> 1: loss is True; must be a number"),
        (of_edge(multiplicity=0.5), {}, "multiplicity is 0.5; must be a count"),
        ([nx.path_graph(3)], {"hold": 0}, "hold is 0; must be at least 1 round"),
    ],
)
def test_what_is_no_graph_of_the_fleet_is_refused(given, options, said):
    with pytest.raises(TopologyError, match=said):
        given_schedule(given, 3, ("x", "y", "z"), **options)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (nx.path_graph(2), {}, "the graph has no nodes 'z'"),
        (nx.DiGraph([(0, 1), (1, 2)]), {}, "nothing that devices 1 (y), 2 (z) sends can reach "),
        (nx.DiGraph([(0, 1), (1, 2), (2, 0), (1, 1)]), {}, "device 1 (y) sends to itself"),
        (
            nx.DiGraph([(0, 1), (1, 2), (2, 0)]),
            {"weights": "metropolis"},
            "and x -> y has no such way back",
        ),
        (triangle(), {"weights": "edges"}, "the weight of x -> y is None"),
        (given_away(0.6), {"weights": "edges"}, "device 0 (x) gives away 1.2 of its mass"),
        ([of_edge(latency_ms=3), triangle()], {}, "graph 1, edge x -> y: its bandwidth_mbps"),
    ],
)
def test_devices_that_have_names_are_told_by_them(given, options, said):
    with pytest.raises(TopologyError, match=re.escape(said)):
        given_schedule(given, 3, ("x", "y", "z"), **options)


def test_a_device_gives_away_no_more_than_it_has():
    graph = given_away(0.6)
    with pytest.raises(TopologyError, match=r"device 0 gives away 1\.2 of its mass"):
        given_schedule(graph, 3, weights="edges")


def test_a_multiplicity_beside_given_weights_is_refused():
    graph = nx.cycle_graph(3, create_using=nx.DiGraph)
    nx.set_edge_attributes(graph, 0.5, "weight")
    graph.edges[0, 1]["multiplicity"] = 2
    with pytest.raises(TopologyError, match="edge 0 -> 1 has a multiplicity, which weights: edges"):
        given_schedule(graph, 3, weights="edges")
