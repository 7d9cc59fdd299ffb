"""Edge form against the dense recursions, in float64, to 1e-12 (reference.md, section 10 checks 4,
7 and 15)."""

from __future__ import annotations

import gossip_oracle as oracle
import numpy as np
import pytest
from fleet_of_algorithms import AlgorithmFleet
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from edgesim.compression.compressors import Identity, MinMaxUInt8, TopK
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(4, 5), (7,), (3, 3)])
D = LAYOUT.numel
IDENTITY = Identity(values="fp64")
ROUNDS = 25
TOLERANCE = 1e-12  # both sides round a few hundred sums of numbers of order one


def directed_ring(n):
    """Each device gives half of its mass to the next."""
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0)) / 2


def ring(n):
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)) / 3


def irregular():
    """The digraph of reference.md, sections 9.3 and 11: ring of 8, plus 0 -> 3, 0 -> 5, 1 -> 6."""
    A = np.eye(8) + np.roll(np.eye(8), 1, axis=0)
    A[3, 0] = A[5, 0] = A[6, 1] = 1
    return A / A.sum(axis=0)


def problem(n, seed):
    """Quadratic losses with different minima: start, gradient, mean of the minima."""
    rng = np.random.default_rng(seed)
    minima = rng.normal(size=(n, D))
    start = np.repeat(rng.normal(size=(1, D)), n, axis=0)
    return start, lambda Z: Z - minima, minima.mean(axis=0)


def compressors(keep):
    if keep is None:
        return IDENTITY, oracle.identity
    return TopK(keep=keep, values="fp64"), oracle.top_k(LAYOUT.sizes, keep)


def assert_follows(fleet, Ws, gradient, expected):
    """Round by round x and u are those of a recursion; returns what else it ends with."""
    rest = None
    for W, (X_want, u_want, *others) in zip(Ws, expected, strict=True):
        fleet.step(gradient, 0.05)
        fleet.absorb(fleet.send(W))
        np.testing.assert_allclose(fleet.X, X_want, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(fleet.u, u_want, rtol=0, atol=TOLERANCE)
        rest = others[0] if others else None
    return rest


SCHEDULES = st.tuples(st.integers(2, 8), st.integers(0, 10_000), st.sampled_from([None, 0.3, 0.05]))


@settings(max_examples=examples(25, 10))
@given(SCHEDULES)
def test_published_choco_on_changing_digraphs_equals_the_dense_recursion(case):
    n, seed, keep = case
    rng = np.random.default_rng(seed)
    Ws = [oracle.random_weights(n, rng) for _ in range(ROUNDS)]
    compressor, C = compressors(keep)
    X, gradient, _ = problem(n, seed)
    eta = 0.5 if keep is None else 0.05
    algorithm = ChocoNumerator(averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    fleet = AlgorithmFleet(algorithm, X, Ws[0], LAYOUT)
    expected = oracle.choco(X, np.ones(n), Ws, gradient, 0.05, eta, C)
    H_want = assert_follows(fleet, Ws, gradient, expected)
    for j, state in enumerate(fleet.states):
        for (i, _), h in state.sent.items():
            np.testing.assert_allclose(h.numpy(), H_want[i, j], rtol=0, atol=TOLERANCE)


@settings(max_examples=examples(25, 10))
@given(SCHEDULES)
def test_deep_squeeze_on_changing_digraphs_equals_the_dense_recursion(case):
    n, seed, keep = case
    rng = np.random.default_rng(seed)
    Ws = [oracle.random_weights(n, rng) for _ in range(ROUNDS)]
    compressor, C = compressors(keep)
    X, gradient, _ = problem(n, seed)
    eta = 0.5 if keep is None else 0.05
    algorithm = DeepSqueeze(averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    fleet = AlgorithmFleet(algorithm, X, Ws[0], LAYOUT)
    expected = oracle.deep_squeeze(X, np.ones(n), Ws, gradient, 0.05, eta, C)
    delta_want = assert_follows(fleet, Ws, gradient, expected)
    deltas = np.stack([state.delta.numpy() for state in fleet.states])
    np.testing.assert_allclose(deltas, delta_want, rtol=0, atol=TOLERANCE)


@settings(max_examples=examples(25, 10))
@given(SCHEDULES)
def test_gradient_push_on_changing_digraphs_equals_the_dense_recursion(case):
    n, seed, _ = case
    rng = np.random.default_rng(seed)
    Ws = [oracle.random_weights(n, rng) for _ in range(ROUNDS)]
    X, gradient, _ = problem(n, seed)
    algorithm = GradientPush(averaging_rate=1.0, compressor=IDENTITY, layout=LAYOUT)
    fleet = AlgorithmFleet(algorithm, X, Ws[0], LAYOUT)
    expected = oracle.gradient_push(X, np.ones(n), Ws, gradient, 0.05, 1.0)
    assert_follows(fleet, Ws, gradient, expected)


@pytest.mark.parametrize("W", [directed_ring(8), ring(5), irregular()])
@pytest.mark.parametrize("keep", [None, 0.1])
@pytest.mark.parametrize("kind", [ChocoNumerator, FixedGraphChoco])
def test_published_choco_on_fixed_graphs_equals_the_form_of_the_reference(W, keep, kind):
    """Both forms against reference.md, section 3.3 with one public copy per device."""
    n = len(W)
    compressor, C = compressors(keep)
    eta = 0.7 if keep is None else 0.05
    X, gradient, _ = problem(n, 3)
    algorithm = kind(averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    fleet = AlgorithmFleet(algorithm, X, W, LAYOUT)
    expected = oracle.choco_fixed(X, np.ones(n), W, ROUNDS, gradient, 0.05, eta, C)
    assert_follows(fleet, [W] * ROUNDS, gradient, expected)


@pytest.mark.parametrize("keep", [None, 0.1])
@pytest.mark.parametrize("kind", [ChocoNumerator, FixedGraphChoco])
def test_published_choco_with_local_steps_equals_the_dense_recursion(keep, kind):
    """Between two exchanges W is I: nothing moves but by the steps."""
    W, n = irregular(), 8
    compressor, C = compressors(keep)
    eta = 0.7 if keep is None else 0.05
    Ws = [W if step == 2 else np.eye(n) for _ in range(8) for step in range(3)]
    X, gradient, _ = problem(n, 7)
    algorithm = kind(averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    fleet = AlgorithmFleet(algorithm, X, W, LAYOUT)
    expected = oracle.choco(X, np.ones(n), Ws, gradient, 0.05, eta, C)
    assert_follows(fleet, Ws, gradient, expected)


@pytest.mark.parametrize("keep", [None, 0.5])
def test_dcd_with_local_steps_equals_the_dense_recursion(keep):
    """The public copies wait; the step between two of them is the sum of the local ones."""
    compressor, C = compressors(keep)
    W, n = ring(6), 6
    X, gradient, _ = problem(n, 8)
    fleet = AlgorithmFleet(Dcd(compressor=compressor, layout=LAYOUT), X, W, LAYOUT)
    X_hat = X.copy()
    for round_index in range(24):
        X = X - 0.05 * gradient(X)
        is_exchange = round_index % 3 == 2
        if is_exchange:
            T = X - X_hat + (W - np.eye(n)) @ X_hat
            X_hat = X_hat + np.stack([C(row) for row in T])
            X = X_hat.copy()
        fleet.step(gradient, 0.05)
        fleet.absorb(fleet.send(W if is_exchange else np.eye(n)))
        np.testing.assert_allclose(fleet.X, X, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("keep", [None, 0.5])
def test_dcd_equals_the_dense_recursion(keep):
    compressor, C = compressors(keep)
    W = ring(6)
    X, gradient, _ = problem(6, 4)
    fleet = AlgorithmFleet(Dcd(compressor=compressor, layout=LAYOUT), X, W, LAYOUT)
    for X_want in oracle.dcd(X, W, ROUNDS, gradient, 0.05, C):
        fleet.step(gradient, 0.05)
        fleet.absorb(fleet.send(W))
        np.testing.assert_allclose(fleet.X, X_want, rtol=0, atol=TOLERANCE)


def test_dcd_holds_copies_bit_equal_to_their_owners():
    """Bagua's own test (reference.md, section 10 check 15), with its 8-bit compressor."""
    W = ring(8)
    X, gradient, _ = problem(8, 5)
    fleet = AlgorithmFleet(Dcd(compressor=MinMaxUInt8(), layout=LAYOUT), X, W, LAYOUT)
    for _ in range(ROUNDS):
        fleet.step(gradient, 0.05)
        fleet.absorb(fleet.send(W))
        for state in fleet.states:
            for peer, copy in state.received.items():
                assert copy.equal(fleet.states[peer].h)
                assert copy.equal(fleet.states[peer].x)


def test_without_compression_choco_deep_squeeze_and_gradient_push_are_one_algorithm():
    """reference.md, section 10 check 4: equal iterates at C = identity, eta = 1, on an irregular
    digraph."""
    W = irregular()
    X, gradient, _ = problem(8, 6)
    kinds = (Choco, ChocoNumerator, FixedGraphChoco, DeepSqueeze, GradientPush)
    fleets = [
        AlgorithmFleet(kind(averaging_rate=1.0, compressor=IDENTITY, layout=LAYOUT), X, W, LAYOUT)
        for kind in kinds
    ]
    for _ in range(40):
        for fleet in fleets:
            fleet.step(gradient, 0.05)
            fleet.absorb(fleet.send(W))
    for fleet in fleets[:-1]:
        np.testing.assert_allclose(fleet.X, fleets[-1].X, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(fleet.u, fleets[-1].u, rtol=0, atol=TOLERANCE)


def test_on_an_irregular_digraph_our_form_converges_and_the_printed_one_is_biased():
    """reference.md, sections 9.3 and 10 check 7: sum(x)/sum(u) against the mean of the minima."""
    W = irregular()
    X, gradient, optimum = problem(8, 7)
    u, rounds, gamma, eta = np.ones(8), 4000, 0.002, 1.0
    *_, (X_good, u_good, _) = oracle.choco_fixed(
        X, u, W, rounds, gradient, gamma, eta, oracle.identity
    )
    *_, (X_bad, u_bad, _) = oracle.choco_as_printed(
        X, u, W, rounds, gradient, gamma, eta, oracle.identity
    )
    algorithm = FixedGraphChoco(averaging_rate=eta, compressor=IDENTITY, layout=LAYOUT)
    fleet = AlgorithmFleet(algorithm, X, W, LAYOUT)
    for _ in range(300):
        fleet.step(gradient, gamma)
        fleet.absorb(fleet.send(W))
    *_, (X_300, _, _) = oracle.choco_fixed(X, u, W, 300, gradient, gamma, eta, oracle.identity)
    np.testing.assert_allclose(fleet.X, X_300, rtol=0, atol=1e-11)  # 300 rounds of rounding

    scale = np.linalg.norm(optimum)
    bias_good = np.linalg.norm(X_good.sum(0) / u_good.sum() - optimum)
    bias_bad = np.linalg.norm(X_bad.sum(0) / u_bad.sum() - optimum)
    assert bias_good < 0.01 * scale
    assert bias_bad > 0.1 * scale
