"""All-reduce, local SGD and FedAvg against plain averages, in float64, to 1e-12."""

from __future__ import annotations

import methods_oracle as oracle
import numpy as np
import pytest
import torch
from fleet_of_algorithms import AlgorithmFleet

from edgesim.compression.compressors import Identity
from edgesim.gossip.all_reduce import AllReduce
from edgesim.gossip.fed_avg import FedAvg
from edgesim.learning.parameters import ParameterLayout
from topologies import RingReduction, ServerRounds, build_schedule

LAYOUT = ParameterLayout.from_shapes([(4, 5), (7,), (3, 3)])
D = LAYOUT.numel
IDENTITY = Identity(values="fp64")
TOLERANCE = 1e-12


def problem(n, seed):
    rng = np.random.default_rng(seed)
    minima, curvatures = rng.normal(size=(n, D)), rng.uniform(0.5, 1.5, size=(n, D))
    start = np.repeat(rng.normal(size=(1, D)), n, axis=0)
    return start, lambda Z: curvatures * (Z - minima)


class CyclingFleet(AlgorithmFleet):
    """Devices that step and send as a schedule of several exchanges says."""

    def __init__(self, algorithm, X, schedule, samples=None):
        n = len(X)
        super().__init__(algorithm, X, np.eye(n), LAYOUT, samples)
        self.schedule, self.bytes_sent = schedule, 0

    def run_cycle(self, gradient, gamma):
        """Rounds up to the end of a cycle; the number of messages."""
        messages = 0
        for _ in range(self.schedule.exchange_every):
            steps = [
                self.schedule.takes_step(i, self.round) and state.u > 0
                for i, state in enumerate(self.states)
            ]
            X = np.stack([state.x.numpy() for state in self.states])
            for state, g, is_due in zip(self.states, gradient(X), steps, strict=True):
                if is_due:
                    state.x.sub_(torch.from_numpy(gamma * g))
                    state.take_rate_(gamma)
            W = np.zeros((len(X), len(X)))
            for i in range(len(X)):
                for receiver, weight in self.schedule.out_edges(i, self.round):
                    assert i in self.schedule.in_neighbors(receiver, self.round)
                    W[receiver, i] = weight
            sent = self.send(W)
            messages += len(sent)
            self.bytes_sent += sum(map(len, sent))
            self.absorb(sent)
        return messages


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_all_reduce_equals_one_node_with_the_mean_gradient_and_local_sgd(n, every):
    X, gradient = problem(n, n)
    ring = RingReduction(build_schedule("directed_ring", n, seed=0), every)
    fleet = CyclingFleet(AllReduce(compressor=IDENTITY, layout=LAYOUT, num_devices=n), X, ring)
    one = X[0]
    for mean in oracle.local_sgd(X, [0.05] * 6 * every, gradient, every):
        assert fleet.run_cycle(gradient, 0.05) == 2 * (n - 1) * n
        np.testing.assert_allclose(fleet.X, mean, rtol=0, atol=TOLERANCE)
        assert all(np.array_equal(row, fleet.X[0]) for row in fleet.X)  # the same bits
        if every == 1:  # one node, which sees the mean of the gradients
            one = one - 0.05 * gradient(np.repeat(one[None], n, 0)).mean(0)
            np.testing.assert_allclose(fleet.X[0], one, rtol=0, atol=TOLERANCE)


def test_all_reduce_with_momentum_is_sgd_with_momentum_of_the_mean_gradient():
    n, beta = 4, 0.9
    X, gradient = problem(n, 7)
    ring = RingReduction(build_schedule("directed_ring", n, seed=0), 1)
    fleet = CyclingFleet(AllReduce(compressor=IDENTITY, layout=LAYOUT, num_devices=n), X, ring)
    m, x, m_one = np.zeros_like(X), X[0], np.zeros(D)
    for _ in range(8):
        m = beta * m + gradient(fleet.X)
        fleet.run_cycle(lambda _: m, 0.05)  # noqa: B023 (called at once)
        m_one = beta * m_one + gradient(np.repeat(x[None], n, 0)).mean(0)
        x = x - 0.05 * m_one
        np.testing.assert_allclose(fleet.X[0], x, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("participation", "every"), [(1.0, 1), (1.0, 3), (0.5, 2), (0.1, 2)])
def test_fedavg(participation, every):
    n, samples = 6, [3, 1, 4, 1, 5, 9]
    X, gradient = problem(n, 2)
    star = ServerRounds(build_schedule("star", n, seed=0), every, participation, 5)
    algorithm = FedAvg(compressor=IDENTITY, layout=LAYOUT)
    draws = [sorted(star.drawn(cycle)) for cycle in range(12)]
    fleet = CyclingFleet(algorithm, X, star, samples)
    for i, state in enumerate(fleet.states):  # devices that do not begin hold no model
        if i and i not in draws[0]:
            state.x.zero_()
            state.u = 0.0
    wanted = oracle.fed_avg(X[0], draws[:-1], gradient, 0.05, every, samples)
    for cycle, want in enumerate(wanted):
        after = {0, *draws[cycle + 1]}
        messages = fleet.run_cycle(gradient, 0.05)
        assert messages == len(set(draws[cycle]) - {0}) + len(after - {0})
        for i, state in enumerate(fleet.states):
            assert state.u == (i in after)
            if i in after:
                np.testing.assert_allclose(state.x.numpy(), want, rtol=0, atol=TOLERANCE)


def test_fedavg_with_equal_shards_and_all_devices_is_all_reduce():
    n = 5
    X, gradient = problem(n, 3)
    star = ServerRounds(build_schedule("star", n, seed=0), 2, 1.0, 5)
    fleet = CyclingFleet(FedAvg(compressor=IDENTITY, layout=LAYOUT), X, star)
    for mean in oracle.local_sgd(X, [0.05] * 12, gradient, every=2):
        fleet.run_cycle(gradient, 0.05)
        np.testing.assert_allclose(fleet.X, mean, rtol=0, atol=TOLERANCE)


def test_a_model_smaller_than_the_fleet_is_refused_in_words():
    """Some chunks would be empty, and no message has no entry."""
    graph = build_schedule("directed_ring", D + 1, seed=1).graph(0)
    small = AllReduce(compressor=IDENTITY, layout=LAYOUT, num_devices=D + 1)
    assert [layout.numel for layout in small.message_layouts] == [1]
    assert small.graph_problem(graph) == "a model of 36 entries is too small for 37 chunks"
