"""At free pace: message by message against event recursions, in float64, to 1e-12; and mass."""

from __future__ import annotations

from collections import Counter

import free_order_oracle as oracle
import gossip_oracle
import numpy as np
import pytest
from fleet_of_algorithms import AlgorithmFleet
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from edgesim.compression.compressors import Identity, TopK
from edgesim.compression.wire import decode
from edgesim.gossip.algorithm import OutEdge, Share
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(4, 5), (7,), (3, 3)])
D = LAYOUT.numel
TOLERANCE = 1e-12  # both sides round some hundred sums of numbers of order one
GAMMA = 0.05
ROUNDS = 15
SCHEDULES = st.tuples(st.integers(3, 6), st.integers(0, 10_000), st.sampled_from([None, 0.3, 0.05]))


class FreeFleet(AlgorithmFleet):
    """The algorithms themselves, driven event by event through the wire."""

    def __init__(self, algorithm, X, W0, gradient):
        super().__init__(algorithm, X, W0, LAYOUT)
        self.gradient = gradient
        self.envelopes: dict[oracle.Key, bytes] = {}

    def follow(self, event):
        state = self.states[event.device]
        if isinstance(event, oracle.Step):
            move = GAMMA * self.gradient(event.device, state.debiased().numpy())
            state.x.numpy()[:] -= move
            edges = [OutEdge(k, w) for k, w in event.weights.items()]
            rng = np.random.default_rng(0)
            for share in self.algorithm.send_(state, edges, rng):
                envelope = self._encode(event.device, share)
                message = decode(envelope, LAYOUT)
                self.envelopes[message.sender, message.receiver, message.sequence] = envelope
        else:
            messages = [decode(self.envelopes.pop(key), LAYOUT) for key in event.keys]
            shares = [Share(m.sender, m.weight, m.push_weight, m.payload) for m in messages]
            self.algorithm.absorb_(state, shares)


def problem(n, seed):
    """Quadratic losses with different minima."""
    rng = np.random.default_rng(seed)
    minima = rng.normal(size=(n, D))
    start = np.repeat(rng.normal(size=(1, D)), n, axis=0)
    return start, lambda i, z: z - minima[i]


def random_digraphs(n, rng):
    """A new random digraph in every round of every device, which may have no out-edge."""

    def out_weights(i):
        receivers = [k for k in range(n) if k != i and rng.random() < 0.4]
        return dict.fromkeys(receivers, 1 / (len(receivers) + 1))

    return out_weights


def compressors(keep):
    if keep is None:
        return Identity(values="fp64"), gossip_oracle.identity
    return TopK(keep=keep, values="fp64"), gossip_oracle.top_k(LAYOUT.sizes, keep)


def check(events, ours, want, *, has_mass=True):
    """Both follow the events and are equal after each; nothing of the sums is ever lost."""
    x_0, n = ours.X.sum(axis=0), len(ours.states)
    most_under_way = 0
    for event, theirs in zip(events, want, strict=True):
        ours.follow(event)
        assert np.abs(ours.X - theirs.x).max() <= TOLERANCE
        assert np.abs(ours.u - theirs.u).max() <= TOLERANCE
        if has_mass:
            assert np.abs(theirs.total_x() + theirs.trained - x_0).max() <= TOLERANCE
            assert abs(theirs.total_u() - n) <= TOLERANCE
        most_under_way = max(most_under_way, len(theirs.x_under_way))
    assert not ours.envelopes, "all that was sent has been absorbed"
    if has_mass:  # nothing is under way: our own sums are all there is
        assert np.abs(ours.X.sum(0) + theirs.trained - x_0).max() <= TOLERANCE
        assert abs(ours.u.sum() - n) <= TOLERANCE
    assert most_under_way > 2


def free_run(n, seed):
    rng = np.random.default_rng(seed)
    return oracle.free_order(n, ROUNDS, rng, random_digraphs(n, rng))


@settings(max_examples=examples(20, 10))
@given(SCHEDULES)
def test_published_choco_in_free_order_equals_the_event_recursion(case):
    n, seed, keep = case
    compressor, C = compressors(keep)
    X, gradient = problem(n, seed)
    eta = 0.5 if keep is None else 0.05
    algorithm = ChocoNumerator(averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    events = free_run(n, seed)
    ours = FreeFleet(algorithm, X, np.eye(n), gradient)
    check(events, ours, oracle.choco(oracle.Fleet(X, gradient, GAMMA), events, eta, C))
    for j, state in enumerate(ours.states):
        for (i, _), h in state.sent.items():
            assert h.equal(ours.states[i].received[j, None])


@settings(max_examples=examples(20, 10))
@given(SCHEDULES)
def test_deep_squeeze_in_free_order_equals_the_event_recursion(case):
    n, seed, keep = case
    compressor, C = compressors(keep)
    X, gradient = problem(n, seed)
    eta = 0.5 if keep is None else 0.05
    algorithm = DeepSqueeze(averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    events = free_run(n, seed)
    ours = FreeFleet(algorithm, X, np.eye(n), gradient)
    check(events, ours, oracle.deep_squeeze(oracle.Fleet(X, gradient, GAMMA), events, eta, C))


@settings(max_examples=examples(20, 10))
@given(SCHEDULES)
def test_gradient_push_in_free_order_equals_the_event_recursion(case):
    n, seed, _ = case
    X, gradient = problem(n, seed)
    algorithm = GradientPush(averaging_rate=0.5, compressor=Identity(values="fp64"), layout=LAYOUT)
    events = free_run(n, seed)
    ours = FreeFleet(algorithm, X, np.eye(n), gradient)
    check(events, ours, oracle.gradient_push(oracle.Fleet(X, gradient, GAMMA), events, 0.5))


def test_the_orders_of_these_tests_are_free():
    """Devices absorb none, one, several, and several of one edge at once; steps are unequal."""
    seen, steps = Counter(), Counter()
    for seed in range(20):
        for event in free_run(5, seed):
            if isinstance(event, oracle.Absorb):
                edges = Counter(key[:2] for key in event.keys)
                seen["none"] += not event.keys
                seen["several of an edge"] += any(number > 1 for number in edges.values())
                seen["several edges"] += len(edges) > 1
            else:
                steps[seed, event.device] += 1
                seen["silent"] += not event.weights
    assert min(seen.values()) > 50
    assert len(seen) == 4
    assert max(steps.values()) > 4 * min(steps.values())


def ring_weights(n):
    W = (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)) / 3
    return W, lambda i: {k: W[k, i] for k in range(n) if k != i and W[k, i] > 0}


@pytest.mark.parametrize("keep", [None, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_dcd_in_free_order_equals_the_event_recursion(keep, seed):
    """Copies of neighbours are as old as their newest absorbed message; none is lost."""
    n = 5
    W, out_weights = ring_weights(n)
    compressor, C = compressors(keep)
    X, gradient = problem(n, seed)
    events = oracle.free_order(n, ROUNDS, np.random.default_rng(seed), out_weights)
    ours = FreeFleet(Dcd(compressor=compressor, layout=LAYOUT), X, W, gradient)
    theirs = oracle.Fleet(X, gradient, GAMMA)
    check(events, ours, oracle.dcd(theirs, events, W, C), has_mass=False)
    for i, state in enumerate(ours.states):
        for j, copy in state.received.items():
            assert copy.equal(ours.states[j].x), "all is absorbed: copies are their owners'"


def test_dcd_keeps_no_mass_at_free_pace_where_choco_does():
    """A device mixes in its neighbours whenever it steps, so the fast ones count for less.

    Of Dcd's sums only those in lockstep are constant (W is doubly stochastic).
    """
    n = 5
    W, out_weights = ring_weights(n)
    X, gradient = problem(n, 3)
    events = oracle.free_order(n, ROUNDS, np.random.default_rng(3), out_weights)
    drifts = []
    for algorithm in (
        Dcd(compressor=Identity(values="fp64"), layout=LAYOUT),
        ChocoNumerator(averaging_rate=1.0, compressor=Identity(values="fp64"), layout=LAYOUT),
    ):
        theirs = oracle.Fleet(X, gradient, GAMMA)
        run = (
            oracle.dcd(theirs, events, W, gossip_oracle.identity)
            if algorithm.name == "dcd"
            else oracle.choco(theirs, events, 1.0, gossip_oracle.identity)
        )
        ours = FreeFleet(algorithm, X, W, gradient)
        check(events, ours, run, has_mass=algorithm.name != "dcd")
        drifts.append(np.abs(ours.X.sum(0) + theirs.trained - X.sum(0)).max())
    assert drifts[0] > 0.01
    assert drifts[1] < TOLERANCE
