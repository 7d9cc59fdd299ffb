"""Gossip without training, before an evaluation, against the dense recursions and against the
residuals of reference.md, section 8."""

from __future__ import annotations

import gossip_oracle as oracle
import networkx as nx
import numpy as np
import pytest
import torch
from fleet_of_algorithms import AlgorithmFleet

from edgesim.compression.compressors import Identity, TopK
from edgesim.fleet.recording.further_gossip import FurtherGossip
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout
from edgesim.results.snapshot import Snapshot
from edgesim.storage.state_tree import Packed
from topologies import Cycle, Intermittent, Static

LAYOUT = ParameterLayout.from_shapes([(4, 5), (7,)])
D = LAYOUT.numel
IDENTITY = Identity(values="fp64")
TRAINED, FURTHER = 6, 9


def directed_ring(n):
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0)) / 2


def schedule_of(*matrices):
    """Graphs of column-stochastic matrices, in turn."""
    graphs = []
    for W in matrices:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(W)))
        edges = [(j, i, W[i, j]) for i, j in zip(*np.nonzero(oracle.off_diagonal(W)), strict=True)]
        graph.add_weighted_edges_from(edges)
        graphs.append(graph)
    return Cycle(tuple(graphs), hold=1) if len(graphs) > 1 else Static(graphs[0])


def snapshots_of(fleet, rounds_done):
    """What devices leave for an evaluation, the last device first."""
    found = [
        Snapshot(
            device=device,
            round_index=rounds_done,
            rounds_done=rounds_done,
            x=state.x.clone(),
            u=state.u,
            buffers=torch.tensor([float(device)]),
            virtual_time_s=None,
            gossip=Packed.of(state, "gossip"),
        )
        for device, state in enumerate(fleet.states)
    ]
    return found[::-1]


def trained(algorithm, Ws, seed):
    """A fleet after some rounds of training, its first X, and the gradient."""
    n, rng = len(Ws[0]), np.random.default_rng(seed)
    minima, start = rng.normal(size=(n, D)), np.repeat(rng.normal(size=(1, D)), n, axis=0)
    fleet = AlgorithmFleet(algorithm, start, Ws[0], LAYOUT)
    for W in Ws[:TRAINED]:
        fleet.step(lambda Z: Z - minima, 0.05)
        fleet.absorb(fleet.send(W))
    calls = iter(range(TRAINED + FURTHER))

    def gradient(Z):  # none once the training is over
        return Z - minima if next(calls) < TRAINED else np.zeros_like(Z)

    return fleet, start, gradient


def algorithm_of(kind, keep, eta):
    compressor = IDENTITY if keep is None else TopK(keep=keep, values="fp64")
    return kind(averaging_rate=eta, compressor=compressor, layout=LAYOUT)


@pytest.mark.parametrize("keep", [None, 0.2])
@pytest.mark.parametrize("kind", [ChocoNumerator, FixedGraphChoco, DeepSqueeze, GradientPush])
@pytest.mark.parametrize("graph", ["irregular", "changing"])
def test_it_goes_on_as_the_dense_recursion_does_without_gradients(kind, keep, graph):
    """The whole recursion is the oracle's: its state after training is never handed over."""
    rng = np.random.default_rng(3)
    matrices = [oracle.random_weights(5, rng) for _ in range(1 if graph == "irregular" else 3)]
    if graph == "changing" and kind is FixedGraphChoco:
        matrices = matrices[:1]
    if kind is GradientPush:
        keep = None
    Ws = [matrices[r % len(matrices)] for r in range(TRAINED + FURTHER)]
    eta = 1.0 if keep is None else 0.2
    fleet, start, gradient = trained(algorithm_of(kind, keep, eta), Ws, seed=1)
    C = oracle.identity if keep is None else oracle.top_k(LAYOUT.sizes, keep)
    arguments = (gradient, 0.05, eta)
    if kind is GradientPush:
        recursion = oracle.gradient_push(start, np.ones(5), Ws, *arguments)
    elif kind is FixedGraphChoco:
        rounds = len(Ws)
        recursion = oracle.choco_fixed(start, np.ones(5), Ws[0], rounds, *arguments, C)
    else:
        oracles = {ChocoNumerator: oracle.choco, DeepSqueeze: oracle.deep_squeeze}
        recursion = oracles[kind](start, np.ones(5), Ws, *arguments, C)
    *_, (X_want, u_want, *_) = recursion
    before = [(state.x.clone(), state.u) for state in fleet.states]
    gossip = FurtherGossip(fleet.algorithm, schedule_of(*matrices), seed=0, num_rounds=FURTHER)
    mixed = gossip(snapshots_of(fleet, TRAINED))
    assert [snapshot.device for snapshot in mixed] == list(range(5))
    np.testing.assert_allclose(np.stack([s.x.numpy() for s in mixed]), X_want, rtol=0, atol=1e-12)
    np.testing.assert_allclose([s.u for s in mixed], u_want, rtol=0, atol=1e-12)
    assert [s.buffers.item() for s in mixed] == [0, 1, 2, 3, 4]  # local statistics stay
    for state, (x, u) in zip(fleet.states, before, strict=True):  # the fleet's own are untouched
        assert torch.equal(state.x, x)
        assert state.u == u


@pytest.mark.parametrize(
    ("n", "eta", "residual"),
    [(8, 1.0, 0.019), (16, 1.0, 0.379), (8, 0.01, 0.930), (16, 0.01, 0.981)],
)
def test_fifty_rounds_leave_what_the_reference_says(n, eta, residual):
    """The slowest mode of a directed ring, as sine and cosine: reference.md, section 8."""
    angles = 2 * np.pi * np.arange(n) / n
    start = np.zeros((n, D))
    start[:, 0], start[:, 1] = np.cos(angles), np.sin(angles)
    W = directed_ring(n)
    fleet = AlgorithmFleet(algorithm_of(GradientPush, None, eta), start, W, LAYOUT)
    mixed = FurtherGossip(fleet.algorithm, schedule_of(W), seed=0, num_rounds=50)(
        snapshots_of(fleet, 0)
    )
    norm = np.linalg.norm(np.stack([s.x.numpy() for s in mixed]))
    assert norm / np.linalg.norm(start) == pytest.approx(residual, abs=5e-4)


@pytest.mark.parametrize(("rounds_done", "first"), [(0, 2), (2, 2), (3, 5), (7, 8)])
def test_with_local_steps_each_of_the_rounds_is_an_exchange(rounds_done, first):
    schedule = Intermittent(schedule_of(directed_ring(4)), 3)
    gossip = FurtherGossip(algorithm_of(GradientPush, None, 1.0), schedule, 0, num_rounds=4)
    assert list(gossip._rounds_after(rounds_done)) == [first + 3 * k for k in range(4)]


def test_an_error_of_its_check_ends_it():
    fleet = AlgorithmFleet(
        algorithm_of(GradientPush, None, 1.0), np.ones((4, D)), directed_ring(4), LAYOUT
    )
    gossip = FurtherGossip(fleet.algorithm, schedule_of(directed_ring(4)), 0, num_rounds=10**9)

    def close():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        gossip(snapshots_of(fleet, 0), close)
