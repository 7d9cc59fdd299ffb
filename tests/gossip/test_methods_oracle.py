"""The methods for skewed data against dense recursions, in float64, to 1e-12 (reference.md, 13)."""

from __future__ import annotations

import gossip_oracle
import methods_oracle as oracle
import networkx as nx
import numpy as np
import pytest
import torch
from fleet_of_algorithms import AlgorithmFleet
from thorough import some

from edgesim.assembly.parts.own_calls import flat_vectors
from edgesim.compression.compressors import Identity, TopK
from edgesim.gossip.beer import Beer
from edgesim.gossip.choco_iclr import ChocoIclr
from edgesim.gossip.d2 import D2
from edgesim.gossip.global_update_tracking import GlobalUpdateTracking
from edgesim.gossip.gradient_tracking import GradientTracking
from edgesim.gossip.momentum_tracking import MomentumTracking
from edgesim.gossip.relay_sgd import RelaySgd
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(4, 5), (7,), (3, 3)])
D = LAYOUT.numel
IDENTITY = Identity(values="fp64")
TOLERANCE = 1e-12
SEEDS = some(range(6), 4)  # odd and even ones, and both halves
RATES = [0.05] * 12 + [0.005] * 12  # a milestone
CONSTANT = [0.05] * 24


def problem(n, seed):
    """Quadratic losses with different minima and curvatures: start, gradient."""
    rng = np.random.default_rng(seed)
    minima, curvatures = rng.normal(size=(n, D)), rng.uniform(0.5, 1.5, size=(n, D))
    start = np.repeat(rng.normal(size=(1, D)), n, axis=0)
    return start, lambda Z: curvatures * (Z - minima)


def graph(seed, *, symmetric=True):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    make = oracle.metropolis_weights if symmetric else oracle.doubly_stochastic
    return n, make(n, rng)


def made(kind, **options):
    return kind(**{"compressor": IDENTITY, "layout": LAYOUT, **options})


def assert_follows(algorithm, X, W, rates, gradient, expected):
    fleet = AlgorithmFleet(algorithm, X, W, LAYOUT)
    for gamma, want in zip(rates, expected, strict=True):
        fleet.step(gradient, gamma)
        fleet.absorb(fleet.send(W))
        np.testing.assert_allclose(fleet.X, want, rtol=0, atol=TOLERANCE)
    return fleet


@pytest.mark.parametrize("keep", [None, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_choco_iclr(seed, keep):
    n, W = graph(seed, symmetric=seed % 2 == 0)
    X, gradient = problem(n, seed)
    C = gossip_oracle.identity if keep is None else gossip_oracle.top_k(LAYOUT.sizes, keep)
    compressor = IDENTITY if keep is None else TopK(keep=keep, values="fp64")
    eta = 0.8 if keep is None else 0.1
    algorithm = made(ChocoIclr, compressor=compressor, averaging_rate=eta)
    expected = oracle.choco_iclr(X, W, RATES, gradient, eta, C)
    fleet = assert_follows(algorithm, X, W, RATES, gradient, expected)
    S = gossip_oracle.off_diagonal(W) @ np.stack([state.h.numpy() for state in fleet.states])
    np.testing.assert_allclose([state.S.numpy() for state in fleet.states], S, atol=TOLERANCE)


@pytest.mark.parametrize("eta", [1.0, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_d2(seed, eta):
    n, W = graph(seed)
    X, gradient = problem(n, seed)
    expected = oracle.d2(X, oracle.lazy(W, eta), RATES, gradient)
    assert_follows(made(D2, averaging_rate=eta), X, W, RATES, gradient, expected)


@pytest.mark.parametrize("eta", [1.0, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_tracking(seed, eta):
    n, W = graph(seed, symmetric=seed % 2 == 0)
    X, gradient = problem(n, seed)
    expected = oracle.gradient_tracking(X, oracle.lazy(W, eta), RATES, gradient)
    assert_follows(made(GradientTracking, averaging_rate=eta), X, W, RATES, gradient, expected)


@pytest.mark.parametrize("keep", [None, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_beer(seed, keep):
    n, W = graph(seed, symmetric=seed % 2 == 0)
    X, gradient = problem(n, seed)
    C = gossip_oracle.identity if keep is None else gossip_oracle.top_k(LAYOUT.sizes, keep)
    compressor = IDENTITY if keep is None else TopK(keep=keep, values="fp64")
    eta = 0.6 if keep is None else 0.1
    algorithm = made(Beer, compressor=compressor, averaging_rate=eta)
    expected = oracle.beer(X, W, RATES, gradient, eta, C)
    fleet = assert_follows(algorithm, X, W, RATES, gradient, expected)
    p = np.stack([state.p.numpy() for state in fleet.states])
    R = (W - np.eye(n)) @ p
    np.testing.assert_allclose([state.R.numpy() for state in fleet.states], R, atol=TOLERANCE)
    for state in fleet.states:
        assert flat_vectors(state, D) / 2 - 1 == algorithm.buffers(2, 2).kept  # in float64


class HeavyBall:
    """Steps with a momentum of each device's own, as an optimizer takes them."""

    def __init__(self, gradient, beta):
        self.gradient, self.beta, self.m = gradient, beta, 0.0

    def __call__(self, Z):
        self.m = self.beta * self.m + self.gradient(Z)
        return self.m


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("seed", SEEDS)
def test_momentum_tracking(seed, beta):
    n, W = graph(seed, symmetric=seed % 2 == 0)
    X, gradient = problem(n, seed)
    eta = 1.0 if seed < 3 else 0.6
    expected = oracle.momentum_tracking(X, oracle.lazy(W, eta), RATES, gradient, beta)
    algorithm = made(MomentumTracking, averaging_rate=eta)
    assert_follows(algorithm, X, W, RATES, HeavyBall(gradient, beta), expected)


@pytest.mark.parametrize(("mu", "beta"), [(0.0, 0.0), (0.9, 0.0), (0.06, 0.9), (0.0, 0.9)])
@pytest.mark.parametrize("seed", SEEDS)
def test_global_update_tracking(seed, mu, beta):
    n, W = graph(seed)
    X, gradient = problem(n, seed)
    eta = 1.0 if seed < 3 else 0.6
    W_eta = oracle.lazy(W, eta)
    expected = [W_eta @ sent for sent in oracle.gut(X, W_eta, RATES, gradient, mu, beta)]
    algorithm = made(GlobalUpdateTracking, mu=mu, momentum=beta, averaging_rate=eta)
    fleet = assert_follows(algorithm, X, W, RATES, gradient, expected)
    for state in fleet.states:
        vectors = flat_vectors(state, D) / 2  # in float64
        assert vectors - 1 == algorithm.buffers(2, 2).kept


def weights_of(tree):
    """Weights of a tree, which RelaySGD ignores."""
    A = nx.to_numpy_array(tree, nodelist=range(len(tree)))
    return A / (A.sum(0) + 1) + np.diag(1 / (A.sum(0) + 1))


def random_tree(seed):
    n = int(np.random.default_rng(seed).integers(2, 10))
    return nx.random_labeled_tree(n, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_relay_sgd(seed):
    tree = random_tree(seed)
    X, gradient = problem(len(tree), seed)
    expected = oracle.relay_sum(X, tree, RATES, gradient)
    assert_follows(made(RelaySgd), X, weights_of(tree), RATES, gradient, expected)


# --- Limit cases: where a method is a simpler one, or a published form of itself.


@pytest.mark.parametrize("seed", SEEDS)
def test_d2_and_gradient_tracking_equal_their_published_forms(seed):
    n, W = graph(seed)
    X, gradient = problem(n, seed)
    d2 = oracle.d2_as_published(X, W, CONSTANT, gradient)
    assert_follows(made(D2), X, W, CONSTANT, gradient, d2)
    tracking = oracle.tracking_as_published(X, W, RATES, gradient)
    assert_follows(made(GradientTracking), X, W, RATES, gradient, tracking)


def test_with_complete_information_d2_and_gradient_tracking_are_the_plain_average():
    """W = 1/n: every model is the mean, and the corrections have no effect on it."""
    n, W = 6, np.full((6, 6), 1 / 6)
    X, gradient = problem(n, 1)
    for kind in (D2, GradientTracking):
        mean = oracle.local_sgd(X, CONSTANT, gradient, every=1)
        assert_follows(made(kind), X, W, CONSTANT, gradient, mean)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_skew_corrections_vanish(seed):
    """Equal data: all models stay equal, and each method is a plain descent."""
    n, W = graph(seed)
    X, _ = problem(n, seed)

    def gradient(Z):
        return 0.7 * (Z - 1)

    for kind, options in (
        (D2, {}),
        (GradientTracking, {}),
        (MomentumTracking, {}),
        (GlobalUpdateTracking, {"mu": 0.5}),
    ):
        one = oracle.d_psgd(X, W, CONSTANT, gradient, steps_first=True)
        assert_follows(made(kind, **options), X, W, CONSTANT, gradient, one)


@pytest.mark.parametrize("seed", SEEDS)
def test_gut_without_tracking_is_d_psgd_and_tracked_in_full_it_is_d2(seed):
    n, W = graph(seed)
    X, gradient = problem(n, seed)
    plain = oracle.d_psgd(X, W, RATES, gradient, steps_first=True)
    assert_follows(made(GlobalUpdateTracking, mu=0.0), X, W, RATES, gradient, plain)
    d2 = oracle.d2(X, W, RATES, gradient)
    assert_follows(made(GlobalUpdateTracking, mu=1.0), X, W, RATES, gradient, d2)


@pytest.mark.parametrize("curvature", [0.03, 0.2, 1.0])
def test_gut_comes_to_rest_on_a_ring_of_eight_with_long_steps(curvature):
    """W has the eigenvalue -1/3. With gradients at the own model it diverges from 0.035 on."""
    X, minima = np.zeros((8, D)), np.random.default_rng(0).normal(size=(8, D))
    fleet = AlgorithmFleet(made(GlobalUpdateTracking, mu=0.9), X, ring(8), LAYOUT)
    for _ in range(800):
        before = fleet.X
        fleet.step(lambda Z: Z - minima, curvature)
        fleet.absorb(fleet.send(ring(8)))
    assert np.abs(fleet.X - before).max() < 1e-9
    np.testing.assert_allclose(fleet.X.mean(0), minima.mean(0), atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_compression_choco_iclr_combines_then_adapts(seed):
    n, W = graph(seed)
    X, gradient = problem(n, seed)
    # CHOCO's public copies start at zero, so the first exchange makes them known and mixes nothing.
    fleet = AlgorithmFleet(made(ChocoIclr, averaging_rate=1.0), X, W, LAYOUT)
    want = X
    for t, gamma in enumerate(RATES):
        want = (W if t else np.eye(n)) @ want - gamma * gradient(want)
        fleet.step(gradient, gamma)
        fleet.absorb(fleet.send(W))
        np.testing.assert_allclose(fleet.X, want, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_skew_beer_is_choco_in_the_order_of_2020(seed):
    """Limit case: with equal gradients trackers are equal, and cancel in what neighbours mix."""
    n, W = graph(seed)
    X, _ = problem(n, seed)
    top_k = TopK(keep=0.3, values="fp64")
    G = np.random.default_rng(seed).normal(size=(1, D)).repeat(n, axis=0)
    rows = gossip_oracle.top_k(LAYOUT.sizes, 0.3)
    choco = oracle.choco_iclr(X, W, RATES, lambda _: G, 0.1, rows)
    algorithm = made(Beer, compressor=top_k, averaging_rate=0.1)
    assert_follows(algorithm, X, W, RATES, lambda _: G, choco)


@pytest.mark.parametrize("seed", SEEDS)
def test_relay_sgd_gives_the_exact_mean_after_as_many_rounds_as_the_tree_is_wide(seed):
    tree, rng = random_tree(seed), np.random.default_rng(seed)
    n, W = len(tree), weights_of(tree)
    fleet = AlgorithmFleet(made(RelaySgd), np.zeros((n, D)), W, LAYOUT)
    X = rng.normal(size=(n, D))
    diameter = nx.diameter(tree)
    for t in range(diameter):
        is_exact = np.allclose(fleet.X, X.mean(0), atol=TOLERANCE)
        assert t == 0 or not is_exact
        for state, row in zip(fleet.states, X, strict=True):
            state.x.copy_(torch.from_numpy(row))
        fleet.absorb(fleet.send(W))
    np.testing.assert_allclose(fleet.X, np.repeat(X.mean(0)[None], n, 0), rtol=0, atol=TOLERANCE)


def test_relay_sgd_of_two_devices_is_all_reduce():
    tree = nx.path_graph(2)
    X, gradient = problem(2, 3)
    mean = oracle.local_sgd(X, RATES, gradient, every=1)
    assert_follows(made(RelaySgd), X, weights_of(tree), RATES, gradient, mean)


@pytest.mark.parametrize(
    "kind", [Beer, ChocoIclr, D2, GradientTracking, MomentumTracking, GlobalUpdateTracking]
)
def test_the_mean_moves_by_the_mean_step_alone(kind):
    """What gossip must not change: the mean of the models."""
    n, W = graph(5)
    X, gradient = problem(n, 5)
    options = {"averaging_rate": 1.0} if kind in {Beer, ChocoIclr} else {}
    fleet = AlgorithmFleet(made(kind, **options), X, W, LAYOUT)
    for gamma in RATES:
        before = fleet.X
        fleet.step(gradient, gamma)
        fleet.absorb(fleet.send(W))
        moved = -gamma * gradient(before).mean(0)
        np.testing.assert_allclose(fleet.X.mean(0) - before.mean(0), moved, atol=TOLERANCE)


def test_corrections_bring_devices_with_unlike_data_to_one_point():
    """Quadratic losses, constant rate: D-PSGD keeps devices apart, these recursions do not."""
    n, W = graph(5)
    X, gradient = problem(n, 5)
    W, rates = oracle.lazy(W, 0.9), [0.05] * 1000

    def spread(recursion):
        *_, last = recursion
        return np.abs(last - last.mean(0)).max()

    assert spread(oracle.d_psgd(X, W, rates, gradient, steps_first=True)) > 1e-3
    assert spread(oracle.d2(X, W, rates, gradient)) < 1e-8
    assert spread(oracle.gradient_tracking(X, W, rates, gradient)) < 1e-8
    assert spread(oracle.momentum_tracking(X, W, rates, gradient, 0.5)) < 1e-8
    top_k = gossip_oracle.top_k(LAYOUT.sizes, 0.3)
    assert spread(oracle.choco_iclr(X, W, rates, gradient, 0.2, top_k)) > 1e-3
    assert spread(oracle.beer(X, W, rates, gradient, 0.2, top_k)) < 1e-8


@pytest.mark.parametrize("factor", [0.1, 5.0])
@pytest.mark.parametrize("kind", [Beer, D2, GradientTracking, MomentumTracking])
def test_devices_that_agree_stay_together_at_a_new_rate(kind, factor):
    """The correction is of the new rate; with an old one they would move apart by 0.1 and more."""
    n, W = graph(5)
    X, gradient = problem(n, 5)
    options = {"averaging_rate": 0.6} if kind is Beer else {}
    fleet = AlgorithmFleet(made(kind, **options), X, oracle.lazy(W, 0.9), LAYOUT)
    for gamma in [0.05] * 1000 + [0.05 * factor] * 50:
        fleet.step(gradient, gamma)
        fleet.absorb(fleet.send(oracle.lazy(W, 0.9)))
    assert np.abs(fleet.X - fleet.X.mean(0)).max() < 1e-7


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [Beer, D2, GradientTracking, MomentumTracking])
def test_devices_that_agree_stay_together_if_the_rate_changes_between_two_exchanges(kind, offset):
    """Of four local steps `offset` are still of the old rate, and s and c are sums over all four.

    In the first exchange after it c is what it would be if all steps had had their mean rate, but
    for the curvature over a few steps.
    """
    n, W = graph(5)
    X, gradient = problem(n, 5)
    options = {"averaging_rate": 0.6} if kind is Beer else {}
    fleet = AlgorithmFleet(made(kind, **options), X, oracle.lazy(W, 0.9), LAYOUT)
    change, spread = 300 * 4 + offset, []
    for t in range(change + 40 * 4):
        fleet.step(gradient, 0.02 if t < change else 0.002)
        fleet.absorb(fleet.send(oracle.lazy(W, 0.9) if t % 4 == 3 else np.eye(n)))
        spread.append(np.abs(fleet.X - fleet.X.mean(0)).max())
    after = spread[3::4]
    assert after[299] < 1e-6
    assert max(after[300:]) < 5e-3


def test_gut_takes_a_rate_that_changes_between_two_exchanges_as_d2_does():
    """Tracked in full, GUT is D2 with local steps too."""
    n, W = graph(4)
    X, gradient = problem(n, 4)
    fleets = [
        AlgorithmFleet(made(kind, **options), X, W, LAYOUT)
        for kind, options in ((D2, {}), (GlobalUpdateTracking, {"mu": 1.0}))
    ]
    for t in range(60):
        for fleet in fleets:
            fleet.step(gradient, 0.02 if t < 30 else 0.002)
            fleet.absorb(fleet.send(W if t % 4 == 3 else np.eye(n)))
        np.testing.assert_allclose(fleets[1].X, fleets[0].X, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", [D2, GradientTracking, MomentumTracking, GlobalUpdateTracking])
def test_statistics_do_not_follow_the_learning_rate(kind):
    """The last entries move by 0.9 (b - x) at any rate, so that all devices come to rest.

    With a correction of them that is rescaled, the end of a warm-up throws them apart.
    """
    n, W = 5, oracle.lazy(np.full((5, 5), 0.2), 0.5)
    start, trained = np.zeros((n, D)), D - 9
    fleet = AlgorithmFleet(made(kind), start, W, LAYOUT, num_trained=trained)
    b = 1 + 0.1 * np.arange(n)[:, None]
    change = 0.5 if kind is MomentumTracking else 0.9
    moved = []
    for t in range(400):
        before = fleet.X[:, trained:]
        for state, row in zip(fleet.states, b, strict=True):
            own = state.x[trained:]
            own.add_(change * (torch.from_numpy(row) - own))
            state.take_rate_(0.01 if t < 300 else 0.1)
        fleet.absorb(fleet.send(W))
        moved.append(np.abs(fleet.X[:, trained:] - before).max())
    assert moved[299] < 1e-7
    assert max(moved[300:]) < 1e-7


def ring(n):
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)) / 3


@pytest.mark.parametrize(("n", "fits"), [(8, False), (5, True)])
def test_d2_names_graphs_on_which_it_does_not_converge(n, fits):
    """The ring of 8 has the eigenvalue -1/3, that of 5 has -0.206."""
    W = nx.from_numpy_array(ring(n) - np.eye(n) / 3, create_using=nx.DiGraph)
    problem_found = made(D2).graph_problem(W)
    assert ("set gossip.averaging_rate below 1" in problem_found) is not fits
    assert made(D2, averaging_rate=0.9).graph_problem(W) == ""


def test_relay_sgd_names_graphs_that_are_no_tree():
    assert "tree" in made(RelaySgd).graph_problem(nx.path_graph(4, create_using=nx.DiGraph))
    assert "tree" in made(RelaySgd).graph_problem(nx.cycle_graph(4).to_directed())
    assert made(RelaySgd).graph_problem(nx.path_graph(4).to_directed()) == ""
