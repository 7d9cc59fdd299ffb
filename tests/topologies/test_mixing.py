import math

import networkx as nx
import numpy as np
import pytest
from graph_strategies import (
    circulant_matrix,
    digraphs,
    is_doubly_stochastic,
    period_gap,
    symmetric_graphs,
)
from hypothesis import assume, given
from hypothesis import strategies as st

from topologies import (
    TopologyError,
    chordal_grid,
    column_stochastic,
    complete,
    directed_ring,
    exponential,
    is_balanced,
    is_column_stochastic,
    metropolis,
    mixing_matrix,
    only_passes_on,
    ring,
    spectral_gap,
    star,
    torus,
)


def matrix(graph):
    return mixing_matrix(column_stochastic(graph))


def irregular_digraph():
    """The fixture of reference.md, section 10: j -> j + 1 on 8 devices, and 0 -> 3, 0 -> 5, 1 ->
    6."""
    graph = directed_ring(8)
    graph.add_edges_from([(0, 3), (0, 5), (1, 6)])
    return graph


class TestSpectralGapsOfTheReference:
    """reference.md, section 3.8, acceptance check 13."""

    @pytest.mark.parametrize(("n", "expected"), [(4, 0.293), (8, 0.0761), (16, 0.0192)])
    def test_directed_ring(self, n, expected):
        assert spectral_gap(matrix(directed_ring(n))) == pytest.approx(expected, rel=3e-3)

    @pytest.mark.parametrize(
        "graph", [chordal_grid(16), torus(16), chordal_grid(8), torus(8), torus(8, 2)]
    )
    def test_torus_and_chordal_grid(self, graph):
        assert spectral_gap(matrix(graph)) == pytest.approx(0.4, abs=1e-12)

    def test_undirected_ring_of_32(self):
        assert spectral_gap(matrix(ring(32))) == pytest.approx(0.0128, rel=3e-3)


class TestSpectralGapsByFormula:
    """Eigenvalues of a circle are the Fourier transform of its shares."""

    @given(n=st.integers(2, 40))
    def test_directed_ring(self, n):
        """|1 + exp(2 pi i / n)| / 2 = cos(pi / n)."""
        assert spectral_gap(matrix(directed_ring(n))) == pytest.approx(1 - math.cos(math.pi / n))

    @given(n=st.integers(4, 40))
    def test_ring(self, n):
        expected = (2 - 2 * math.cos(2 * math.pi / n)) / 3
        assert spectral_gap(matrix(ring(n))) == pytest.approx(expected)

    @given(half=st.integers(1, 20))
    def test_exponential_graph_of_even_size(self, half):
        expected = 2 / (1 + math.ceil(math.log2(2 * half)))
        assert spectral_gap(matrix(exponential(2 * half))) == pytest.approx(expected)

    @given(n=st.integers(1, 20))
    def test_complete_graph_averages_in_one_round(self, n):
        assert spectral_gap(matrix(complete(n))) == pytest.approx(1)


class TestMixingMatrix:
    @given(graph=digraphs())
    def test_columns_sum_to_one_on_every_digraph(self, graph):
        W = matrix(graph)
        np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=1e-15)
        assert is_column_stochastic(W)

    @given(graph=digraphs())
    def test_entry_is_what_the_receiver_gets_of_the_sender(self, graph):
        W = matrix(graph)
        for j in graph:
            links = sum(m for _, _, m in graph.out_edges(j, data="multiplicity"))
            for i in graph:
                count = 1 if i == j else graph.get_edge_data(j, i, {}).get("multiplicity", 0)
                assert W[i, j] == pytest.approx(count / (links + 1), abs=1e-15)

    def test_chordal_grid_of_8_gives_two_fifths_to_the_opposite_device(self):
        expected = circulant_matrix(8, {0: 0.2, 1: 0.2, -1: 0.2, 4: 0.4})
        np.testing.assert_allclose(matrix(chordal_grid(8)), expected, atol=1e-15)

    def test_edge_points_from_column_to_row(self):
        graph = nx.DiGraph([(0, 1)])
        np.testing.assert_array_equal(matrix(graph), [[0.5, 0.0], [0.5, 1.0]])

    def test_irregular_fixture_has_the_row_sums_of_the_reference(self):
        W = matrix(irregular_digraph())
        expected = [0.75, 0.583, 0.833, 1.25, 1, 1.25, 1.333, 1]
        np.testing.assert_allclose(W.sum(axis=1), expected, atol=5e-4)
        assert not is_doubly_stochastic(W)

    def test_irregular_fixture_has_the_stationary_push_weights_of_the_reference(self):
        """reference.md, section 10: u in [.271, 1.627]; u is the eigenvector of W at 1, of sum
        8."""
        u = np.linalg.matrix_power(matrix(irregular_digraph()), 2000) @ np.ones(8)
        assert (u.min(), u.max()) == (
            pytest.approx(0.271, abs=1e-3),
            pytest.approx(1.627, abs=1e-3),
        )

    @pytest.mark.parametrize(
        "graph", [directed_ring(5), ring(2), torus(12), chordal_grid(8), exponential(6)]
    )
    def test_regular_graphs_are_doubly_stochastic(self, graph):
        assert is_doubly_stochastic(matrix(graph))

    def test_star_is_not_doubly_stochastic(self):
        assert not is_doubly_stochastic(matrix(star(4)))

    @given(graph=digraphs())
    def test_balanced_links_are_doubly_stochastic_weights(self, graph):
        assert is_balanced(column_stochastic(graph)) == is_doubly_stochastic(matrix(graph))

    def test_a_regular_graph_is_balanced_and_a_star_is_not(self):
        assert is_balanced(column_stochastic(chordal_grid(8)))
        assert is_balanced(metropolis(star(4)))
        assert not is_balanced(column_stochastic(star(4)))


class TestMetropolis:
    @given(graph=symmetric_graphs())
    def test_is_symmetric_and_doubly_stochastic_on_every_symmetric_graph(self, graph):
        W = mixing_matrix(metropolis(graph))
        np.testing.assert_array_equal(W, W.T)
        assert is_doubly_stochastic(W)

    def test_takes_the_larger_degree_of_both_ends(self):
        """A star of 4: hub degree 3, so 1/4 on every link, and leaves keep 3/4."""
        expected = [
            [0.25, 0.25, 0.25, 0.25],
            [0.25, 0.75, 0, 0],
            [0.25, 0, 0.75, 0],
            [0.25, 0, 0, 0.75],
        ]
        np.testing.assert_allclose(mixing_matrix(metropolis(star(4))), expected, atol=1e-15)

    @pytest.mark.parametrize("graph", [ring(6), torus(8), chordal_grid(8), complete(4)])
    def test_equals_the_uniform_weights_on_regular_graphs(self, graph):
        np.testing.assert_array_equal(mixing_matrix(metropolis(graph)), matrix(graph))

    def test_a_one_way_link_is_refused(self):
        with pytest.raises(TopologyError, match="0 -> 1 has no such way back; add it"):
            metropolis(directed_ring(3))

    def test_a_way_back_of_other_multiplicity_is_refused(self):
        graph = ring(3)
        graph.edges[1, 0]["multiplicity"] = 2
        with pytest.raises(TopologyError, match="no such way back"):
            metropolis(graph)


@pytest.mark.parametrize("weigh", [column_stochastic, metropolis])
class TestWeighing:
    def test_leaves_its_argument_and_its_attributes_alone(self, weigh):
        graph = ring(3)
        graph.edges[0, 1]["latency_ms"] = 20
        weighted = weigh(graph)
        assert "weight" not in graph.edges[0, 1]
        assert weighted.edges[0, 1]["latency_ms"] == 20

    def test_result_cannot_lose_an_edge_behind_a_schedule(self, weigh):
        with pytest.raises(nx.NetworkXError, match=r"[Ff]rozen"):
            weigh(ring(3)).remove_edge(0, 1)

    def test_gaps_in_the_numbering_are_refused(self, weigh):
        with pytest.raises(TopologyError, match="must number its nodes 0, 1, 2"):
            weigh(nx.DiGraph([(1, 2), (2, 1)]))

    def test_no_devices_are_refused(self, weigh):
        with pytest.raises(TopologyError, match="0 devices"):
            weigh(nx.DiGraph())

    def test_self_loops_are_refused(self, weigh):
        with pytest.raises(TopologyError, match="device 0 sends to itself"):
            weigh(nx.DiGraph([(0, 1), (1, 0), (0, 0)]))

    @pytest.mark.parametrize("multiplicity", [0, -1, 0.5, "2"])
    def test_multiplicity_that_is_no_count_is_refused(self, weigh, multiplicity):
        graph = ring(3)
        graph.edges[0, 1]["multiplicity"] = multiplicity
        with pytest.raises(TopologyError, match="0 -> 1: multiplicity"):
            weigh(graph)


class TestSpectralGap:
    def test_of_a_lone_device_is_one(self):
        assert spectral_gap(np.ones((1, 1))) == 1

    def test_of_separate_parts_is_zero(self):
        assert spectral_gap(np.eye(3)) == pytest.approx(0)

    def test_of_a_swap_that_never_settles_is_zero(self):
        assert spectral_gap(np.array([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx(0)

    def test_of_a_period_is_that_of_the_product_in_order(self):
        """0 gives all to 1, then 1 all to 2: all is in one place. One step alone merges less."""
        first = np.array([[0, 0, 0], [1, 1, 0], [0, 0, 1.0]])
        second = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1.0]])
        assert period_gap([first, second]) == pytest.approx(spectral_gap(second @ first))
        assert period_gap([first, second]) == pytest.approx(1)
        assert period_gap([first]) == pytest.approx(0)


@pytest.mark.parametrize("W", [np.array([[1.5, 0], [-0.5, 1]]), np.array([[0.5, 0], [0.4, 1]])])
def test_negative_or_lossy_matrices_are_not_column_stochastic(W):
    assert not is_column_stochastic(W)


class TestGraphsThatOnlyPassOn:
    def handed_on(self, graph):
        """Each device gives all of its mass away, in equal parts."""
        weighted = nx.DiGraph(graph)
        for j, i in weighted.edges:
            weighted.edges[j, i]["weight"] = 1 / weighted.out_degree(j)
        return weighted

    @given(st.one_of(digraphs(), symmetric_graphs()))
    def test_they_are_those_without_a_spectral_gap(self, graph):
        assume(nx.is_strongly_connected(graph))
        weighted = self.handed_on(graph)
        moduli = np.abs(np.linalg.eigvals(mixing_matrix(weighted)))
        assert only_passes_on(weighted) == (np.sum(moduli > 1 - 1e-6) > 1)

    @pytest.mark.parametrize("graph", [directed_ring(5), ring(6), complete(2)])
    def test_one_device_that_keeps_a_share_is_enough(self, graph):
        weighted = self.handed_on(graph)
        assert only_passes_on(weighted)
        weighted.edges[0, 1]["weight"] *= 0.9
        assert not only_passes_on(weighted)
