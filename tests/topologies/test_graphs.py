import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import (
    TopologyError,
    chordal_grid,
    column_stochastic,
    complete,
    directed_ring,
    erdos_renyi,
    exponential,
    mixing_matrix,
    random_regular,
    ring,
    spectral_gap,
    star,
    torus,
)


def links(graph):
    """Edges with their multiplicity: {(sender, receiver): count}."""
    return {(j, i): count for j, i, count in graph.edges(data="multiplicity")}


def gap(graph):
    return spectral_gap(mixing_matrix(column_stochastic(graph)))


GRAPHS_OF_ANY_SIZE = [directed_ring, ring, exponential, complete, star]


@pytest.mark.parametrize("make", GRAPHS_OF_ANY_SIZE)
@given(n=st.integers(1, 20))
def test_every_size_is_numbered_from_0_strongly_connected_and_free_of_self_loops(make, n):
    graph = make(n)
    assert sorted(graph) == list(range(n))
    assert nx.is_strongly_connected(graph)
    assert nx.number_of_selfloops(graph) == 0


@pytest.mark.parametrize("make", GRAPHS_OF_ANY_SIZE)
def test_a_lone_device_has_no_links(make):
    assert links(make(1)) == {}


@pytest.mark.parametrize("make", GRAPHS_OF_ANY_SIZE)
def test_no_devices_are_refused(make):
    with pytest.raises(TopologyError, match="of 0 devices: needs at least 1"):
        make(0)


def test_directed_ring_sends_to_the_next():
    assert links(directed_ring(3)) == {(0, 1): 1, (1, 2): 1, (2, 0): 1}


def test_ring_of_two_is_one_pair():
    """Not two links, which would give 2/3 to the other and none of the exact averaging of 1/2."""
    assert links(ring(2)) == {(0, 1): 1, (1, 0): 1}
    assert gap(ring(2)) == pytest.approx(1)


def test_ring_exchanges_with_both_neighbours():
    assert set(ring(4).out_edges(0)) == {(0, 1), (0, 3)}


def test_star_links_the_hub_with_all_others():
    assert links(star(3)) == {(0, 1): 1, (0, 2): 1, (1, 0): 1, (2, 0): 1}


def test_exponential_links_powers_of_two():
    assert sorted(exponential(9).successors(5)) == [0, 4, 6, 7]  # 5 + 4, 8, 1, 2 modulo 9


class TestTorus:
    def test_wraps_within_rows_and_columns(self):
        """0 1 2 / 3 4 5 / 6 7 8: the right neighbour of 2 is 0, not 3."""
        assert sorted(torus(9).successors(2)) == [0, 1, 5, 8]

    def test_true_torus_differs_from_the_chordal_grid(self):
        """reference.md, section 3.8: node 3's right neighbour is 0 on the torus, 4 on the chordal
        grid."""
        assert torus(16).has_edge(3, 0)
        assert not torus(16).has_edge(3, 4)
        assert chordal_grid(16).has_edge(3, 4)

    def test_side_of_two_doubles_the_link_across(self):
        assert links(torus(8))[0, 4] == 2
        assert links(torus(8))[0, 1] == 1

    @pytest.mark.parametrize(("n", "rows"), [(4, 2), (6, 2), (8, 2), (12, 3), (16, 4), (36, 6)])
    def test_is_most_square_by_default(self, n, rows):
        assert links(torus(n)) == links(torus(n, rows))

    @given(rows=st.integers(2, 6), columns=st.integers(2, 6))
    def test_every_device_has_four_links_either_way(self, rows, columns):
        graph = torus(rows * columns, rows)
        assert {d for _, d in graph.out_degree(weight="multiplicity")} == {4}
        assert {d for _, d in graph.in_degree(weight="multiplicity")} == {4}
        assert nx.is_strongly_connected(graph)

    def test_a_prime_is_refused_with_the_numbers_that_work(self):
        with pytest.raises(TopologyError) as refusal:
            torus(7)
        assert str(refusal.value) == (
            "a torus of 7 devices: 7 is prime; use 6, 8 or 9 devices, or kind: ring"
        )

    @pytest.mark.parametrize("n", [-3, 0, 1, 2, 3])
    def test_fewer_than_four_devices_are_refused(self, n):
        with pytest.raises(TopologyError, match="use 4 or 6 devices, or kind: ring"):
            torus(n)

    @pytest.mark.parametrize("rows", [-2, 0, 1, 5, 12])
    def test_rows_that_make_no_torus_are_refused_with_those_that_do(self, rows):
        with pytest.raises(TopologyError, match="use rows: 2, 3, 4 or 6, or kind: ring"):
            torus(12, rows)


class TestChordalGrid:
    def test_of_8_devices_doubles_the_link_to_the_opposite_one(self):
        """reference.md, section 3.8: offsets +4 and -4 coincide, and the reference sends both."""
        graph = chordal_grid(8)
        assert {i: links(graph)[0, i] for i in graph.successors(0)} == {1: 1, 4: 2, 7: 1}

    @pytest.mark.parametrize(("n", "stride"), [(4, 4), (8, 0), (8, 9), (8, -1)])
    def test_a_stride_beyond_the_circle_is_refused(self, n, stride):
        with pytest.raises(TopologyError, match=f"must be between 1 and {n - 1}"):
            chordal_grid(n, stride)

    def test_the_stride_it_proposes_works(self):
        with pytest.raises(TopologyError, match="set stride: 2"):
            chordal_grid(4)
        assert nx.is_strongly_connected(chordal_grid(4, 2))


class TestRandomRegular:
    @given(n=st.integers(2, 12), degree=st.integers(1, 11), seed=st.integers(0, 2**63 - 1))
    def test_is_regular_symmetric_and_connected_or_refused(self, n, degree, seed):
        exists = degree < n and n * degree % 2 == 0 and (degree > 1 or n == 2)
        if not exists:
            with pytest.raises(TopologyError, match="a random regular graph of"):
                random_regular(n, degree, seed)
            return
        graph = random_regular(n, degree, seed)
        assert {d for _, d in graph.out_degree()} == {degree}
        assert nx.is_strongly_connected(graph)
        assert set(graph.edges) == {(i, j) for j, i in graph.edges}

    def test_depends_on_the_seed_alone(self):
        assert links(random_regular(20, 3, seed=1)) == links(random_regular(20, 3, seed=1))
        assert links(random_regular(20, 3, seed=1)) != links(random_regular(20, 3, seed=2))

    def test_two_neighbours_each_make_one_ring_however_often_it_must_be_drawn(self):
        """Of the 70 two-regular graphs of six devices, 10 are pairs of triangles."""
        for seed in range(20):
            assert nx.is_strongly_connected(random_regular(6, 2, seed))


class TestErdosRenyi:
    @given(n=st.integers(1, 10), seed=st.integers(0, 2**63 - 1))
    def test_is_strongly_connected(self, n, seed):
        graph = erdos_renyi(n, 0.7, seed)
        assert nx.is_strongly_connected(graph)
        assert sorted(graph) == list(range(n))

    def test_depends_on_the_seed_alone(self):
        assert links(erdos_renyi(20, 0.3, seed=1)) == links(erdos_renyi(20, 0.3, seed=1))
        assert links(erdos_renyi(20, 0.3, seed=1)) != links(erdos_renyi(20, 0.3, seed=2))

    def test_probability_one_is_complete(self):
        assert links(erdos_renyi(6, 1.0, seed=0)) == links(complete(6))

    def test_each_link_is_as_frequent_as_its_probability(self):
        """400 draws of 6 x 5 links at 0.8, where refused draws are rare (below 2 in 1,000)."""
        counts = np.zeros((6, 6))
        for seed in range(400):
            for j, i in erdos_renyi(6, 0.8, seed).edges:
                counts[j, i] += 1
        frequencies = counts[~np.eye(6, dtype=bool)] / 400
        assert np.abs(frequencies - 0.8).max() < 5 * math.sqrt(0.8 * 0.2 / 400)

    def test_too_low_a_probability_is_refused_with_one_that_works(self):
        """Remedy: twice the threshold ln(n)/n of connectivity, 2 ln(50)/49 = 0.16."""
        with pytest.raises(TopologyError, match=r"use a probability of 0\.16 or more"):
            erdos_renyi(50, 0.01, seed=1)
        assert nx.is_strongly_connected(erdos_renyi(50, 0.16, seed=1))

    @pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan])
    def test_no_probability_is_refused(self, probability):
        with pytest.raises(TopologyError, match="between 0 and 1"):
            erdos_renyi(5, probability, seed=1)
