"""Conservation of mass, push weights, and public copies, through the wire (reference.md, section 10
checks 3, 5, 6)."""

from __future__ import annotations

import gossip_oracle as oracle
import numpy as np
import pytest
from fleet_of_algorithms import AlgorithmFleet
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import each_once, examples

from edgesim.compression.buckets import message_layout
from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.wire import decode
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(6, 5), (3,), (1,)])
D = LAYOUT.numel
COMPRESSORS = [
    Identity(values="fp64"),
    Identity(values="fp32"),
    Identity(values="fp16"),
    Identity(values="int8"),
    TopK(keep=0.1, values="fp32"),
    TopK(keep=0.1, values="int8"),
    RandomK(keep=0.2, values="fp16"),
    QSGD(bits=4),
    QSGD(bits=4, biased=True),
    QSGD(bits=4, biased=True, bucket_size=3),
    MinMaxUInt8(),
    SignScale(),
]
KINDS = [Choco, ChocoNumerator, FixedGraphChoco, DeepSqueeze, GradientPush]
ETA = 0.05


def make(kind, compressor):
    return kind(averaging_rate=ETA, compressor=compressor, layout=LAYOUT)


@settings(max_examples=examples(20, 12))
@given(
    st.integers(2, 7),
    st.integers(0, 10_000),
    st.sampled_from(COMPRESSORS),
    st.sampled_from([Choco, ChocoNumerator, DeepSqueeze, GradientPush]),
)
def test_mass_is_conserved_with_messages_in_flight(n, seed, compressor, kind):
    """sum(x) and sum(u), counting what has left and not arrived, for any order and delay."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    fleet = AlgorithmFleet(make(kind, compressor), X, np.eye(n), LAYOUT)
    in_flight: list[tuple[bytes, tuple[int, int], np.ndarray, float]] = []
    for _ in range(20):
        envelopes = fleet.send(oracle.random_weights(n, rng))
        in_flight += [(envelope, *carried(fleet, envelope)) for envelope in envelopes]
        # Each edge keeps its order, as hosts see to; edges are delayed at random.
        stuck = {edge: rng.random() < 0.5 for edge in {edge for _, edge, _, _ in in_flight}}
        fleet.absorb([envelope for envelope, edge, _, _ in in_flight if not stuck[edge]])
        in_flight = [entry for entry in in_flight if stuck[entry[1]]]
        x_total = fleet.X.sum(0) + sum((mass for _, _, mass, _ in in_flight), np.zeros(D))
        u_total = fleet.u.sum() + sum(u for *_, u in in_flight)
        np.testing.assert_allclose(x_total, X.sum(0), rtol=0, atol=1e-12)
        assert u_total == pytest.approx(n, abs=1e-12)


def carried(fleet, envelope):
    """Edge, and what the receiver will add: eta w h or eta w u h for CHOCO, else eta w content."""
    message = decode(envelope, message_layout(fleet.algorithm.compressor, LAYOUT))
    if fleet.algorithm.name == "choco":
        vector = fleet.states[message.sender].sent[message.receiver, None].numpy().copy()
    else:
        vector = message.payload.decode().double().numpy()
    share = ETA * message.weight
    if isinstance(fleet.algorithm, Choco):
        vector *= message.push_weight
    edge = message.sender, message.receiver
    return edge, share * vector, share * message.push_weight


@pytest.mark.parametrize(
    ("kind", "compressor"), each_once([Choco, ChocoNumerator], COMPRESSORS), ids=str
)
def test_choco_receivers_hold_bit_equal_public_copies(kind, compressor):
    rng = np.random.default_rng(1)
    n = 5
    X = rng.normal(size=(n, D)).astype(np.float32)
    fleet = AlgorithmFleet(make(kind, compressor), X, np.eye(n), LAYOUT)
    assert fleet.states[0].x.dtype.is_floating_point
    for _ in range(15):
        fleet.absorb(fleet.send(oracle.random_weights(n, rng)))
        for j, state in enumerate(fleet.states):
            for (i, _), h in state.sent.items():
                assert h.equal(fleet.states[i].received[j, None])


@pytest.mark.parametrize(("kind", "compressor"), each_once(KINDS, COMPRESSORS[1:]), ids=str)
def test_mass_is_conserved_in_float32_as_far_as_float32_can(kind, compressor):
    """As fleets run. A sum of n entries of size one errs by some units of 6e-8 each round."""
    n, rounds = 6, 40
    W = oracle.random_weights(n, np.random.default_rng(4))
    X = np.random.default_rng(1).normal(size=(n, D)).astype(np.float32)
    fleet = AlgorithmFleet(make(kind, compressor), X, W, LAYOUT)
    assert fleet.X.dtype == np.float32
    for _ in range(rounds):
        fleet.absorb(fleet.send(W))
    drift = np.abs(fleet.X.sum(0, dtype=np.float64) - X.sum(0, dtype=np.float64))
    assert drift.max() < rounds * n * 4 * np.finfo(np.float32).eps * np.abs(X).max()


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_the_running_sum_of_choco_is_the_weighted_sum_of_the_senders_copies(compressor):
    n = 6
    W = oracle.random_weights(n, np.random.default_rng(5))
    X = np.random.default_rng(2).normal(size=(n, D))
    fleet = AlgorithmFleet(make(FixedGraphChoco, compressor), X, W, LAYOUT)
    for _ in range(20):
        fleet.absorb(fleet.send(W))
    H = np.stack([state.h.numpy() for state in fleet.states])
    S = np.stack([state.S.numpy() for state in fleet.states])
    np.testing.assert_allclose(S, oracle.off_diagonal(W) @ H, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_push_weights_stay_one_on_regular_graphs_and_always_sum_to_the_devices(kind):
    n = 8
    X = np.random.default_rng(0).normal(size=(n, D))
    regular = (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), 3, axis=0)) / 3
    irregular = oracle.random_weights(n, np.random.default_rng(2), probability=0.3)
    for W, is_regular in ((regular, True), (irregular, False)):
        fleet = AlgorithmFleet(make(kind, Identity(values="fp64")), X, W, LAYOUT)
        for _ in range(40):
            fleet.absorb(fleet.send(W))
            assert fleet.u.sum() == pytest.approx(n, abs=1e-12)
            if is_regular:
                np.testing.assert_allclose(fleet.u, 1.0, rtol=0, atol=1e-6)
        assert is_regular or np.ptp(fleet.u) > 0.1


def test_a_device_without_active_edges_sends_nothing_and_keeps_its_state():
    """So devices need not call `send_` then."""
    X = np.random.default_rng(0).normal(size=(1, D))
    for kind in (Choco, ChocoNumerator, DeepSqueeze, FixedGraphChoco, GradientPush):
        assert kind.is_idle_without_edges
        fleet = AlgorithmFleet(make(kind, TopK(keep=0.1, values="fp32")), X, np.eye(1), LAYOUT)
        assert fleet.send(np.eye(1)) == []
        fleet.absorb([])
        np.testing.assert_array_equal(fleet.X, X)
        assert fleet.u[0] == 1.0
