"""Both forms of CHOCO against a sequential event loop, message by message, through the wire.

Devices of unlike speed begin late, are away, and leave; graphs change in every turn.
"""

from __future__ import annotations

from collections import Counter, deque

import choco_forms_oracle as oracle
import numpy as np
import pytest
import torch
from thorough import each_once, some, thorough_only

from edgesim.compression.buckets import in_buckets
from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.wire import Message, decode_one_of, encode
from edgesim.device.membership import Membership
from edgesim.device.succession import (
    drop_internal_copies_,
    handover,
    inherit_copies_,
    inherit_mass_,
)
from edgesim.gossip.algorithm import LEAST_PUSH_WEIGHT, OutEdge, Share
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout
from topologies import Static, column_stochastic, complete

LAYOUT = ParameterLayout.from_shapes([(4, 5), (7,), (3, 3)])
BUCKET_SIZE = 3
LAYOUTS = {layout.digest: layout for layout in (LAYOUT, in_buckets(LAYOUT, BUCKET_SIZE))}
D = LAYOUT.numel
TOLERANCE = 1e-12  # both sides round some hundred sums of numbers of order one
GAMMA = 0.05
COMPRESSORS = [
    Identity(values="fp64"),
    Identity(values="fp32"),
    Identity(values="fp16"),
    Identity(values="int8"),
    TopK(keep=0.1, values="fp64"),
    TopK(keep=0.1, values="fp32"),
    TopK(keep=0.2, values="int8"),
    RandomK(keep=0.2, values="fp16"),
    QSGD(bits=4),
    QSGD(bits=4, biased=True),
    QSGD(bits=4, biased=True, bucket_size=BUCKET_SIZE),
    MinMaxUInt8(),
    SignScale(),
]
FORMS = {"model": Choco, "numerator": ChocoNumerator}


def read(data):
    """A message of vectors, or of their buckets."""
    return decode_one_of(data, LAYOUTS)


class Devices:
    """States of an algorithm, driven by the oracle's events; all messages are encoded."""

    def __init__(self, algorithm, X, gradient, gamma, late=frozenset()):
        n = len(X)
        self.algorithm, self.gradient, self.gamma = algorithm, gradient, gamma
        self.states = [algorithm.init(torch.from_numpy(x.copy()), {}) for x in X]
        for i in late:
            self.states[i].x.zero_()
            self.states[i].u = 0.0
        schedule = Static(column_stochastic(complete(n)))
        self.members = [Membership(i, schedule) for i in range(n)]
        self.envelopes = {}
        self.sequence = Counter()

    @property
    def X(self):
        return np.stack([state.x.numpy() for state in self.states])

    @property
    def u(self):
        return np.array([state.u for state in self.states])

    def follow(self, event):
        match event:
            case oracle.Step(i):
                state = self.states[i]
                if state.u > 0:
                    z = state.debiased().numpy()
                    state.x.numpy()[:] -= self.gamma * self.gradient(i, z)
            case oracle.Send(i, weights, seed):
                self._send(i, weights, np.random.default_rng(seed))
            case oracle.Absorb(i, edges):
                self._absorb(i, edges)
            case oracle.Leave(i, k, first, last):
                self._absorb(k, first)
                self._hand_over(i, k, last)

    def _send(self, i, weights, rng):
        edges = [OutEdge(b, w, None if a == i else a) for (a, b), w in weights.items()]
        for share in self.algorithm.send_(self.states[i], edges, rng):
            edge = (i if share.address is None else share.address), share.peer
            self._post(edge, "share", share.payload, share.weight, share.push_weight)

    def _post(self, edge, kind, payload, weight, push_weight, notes=()):
        self.sequence[edge] += 1
        message = Message(
            self.algorithm.name,
            *edge,
            self.sequence[edge],
            0,
            weight,
            push_weight,
            payload,
            kind,
            notes,
        )
        self.envelopes.setdefault(edge, deque()).append(encode(message))

    def _absorb(self, i, edges):
        shares = []
        for edge in edges:
            m = read(self.envelopes[edge].popleft())
            address = None if m.receiver == i else m.receiver
            shares.append(Share(m.sender, m.weight, m.push_weight, m.payload, address))
        self.algorithm.absorb_(self.states[i], shares)

    def _hand_over(self, i, k, last):
        for draft in handover(self.states[i], LAYOUT, self.members[i], {}):
            self._post((i, k), draft.kind, draft.payload, 0.0, draft.push_weight, draft.notes)
        messages = [read(envelope) for envelope in self.envelopes.pop((i, k))]
        for message in messages:
            self.members[k].take_note(message, 0)
        inherit_copies_(self.states[k], messages)
        self._absorb(k, last)
        for message in messages:
            if message.kind == "handover":
                inherit_mass_(self.states[k], message)
        drop_internal_copies_(self.states[k], self.members[k])
        self.states[i].x.zero_()
        self.states[i].u = 0.0


def black_box(compressor):
    """A compressor as the oracle knows it."""

    def compress(v, rng):
        payload = compressor.compress(torch.from_numpy(v), LAYOUT, rng)
        return payload.decode().double().numpy()

    return compress


def problem(n, seed, spread=1.0):
    """Quadratic losses with different minima, and starts that differ."""
    rng = np.random.default_rng(seed)
    minima, start = rng.normal(size=(n, D)), rng.normal(size=D)
    return start + spread * rng.normal(size=(n, D)), lambda i, z: z - minima[i]


def both(form, compressor, seed, *, n=5, turns=25, eta=0.05, late=(), leavers=0, gamma=GAMMA):
    """Events, and a fleet of each reading of the algorithm."""
    late = frozenset(late)
    X, gradient = problem(n, seed)
    rng = np.random.default_rng(seed)
    events = oracle.free_events(n, turns, rng, late=late, leavers=leavers)
    algorithm = FORMS[form](averaging_rate=eta, compressor=compressor, layout=LAYOUT)
    theirs = oracle.Fleet(X, form, eta, black_box(compressor), gradient, gamma, late)
    return events, Devices(algorithm, X, gradient, gamma, late), theirs


def check(events, ours, theirs):
    """Equal after each event, and no mass is ever lost."""
    x_0, u_0 = theirs.total_x(), theirs.total_u()
    most = 0
    for event in events:
        ours.follow(event)
        theirs.follow(event)
        assert np.abs(ours.X - theirs.x).max() <= TOLERANCE
        assert np.abs(ours.u - theirs.u).max() <= TOLERANCE
        assert np.abs(theirs.total_x() + theirs.trained - x_0).max() <= TOLERANCE
        assert abs(theirs.total_u() - u_0) <= TOLERANCE
        most = max(most, theirs.num_under_way)
    assert most > 2
    assert theirs.num_under_way == 0
    assert not any(ours.envelopes.values()), "all that was sent has been absorbed"
    assert np.abs(ours.X.sum(0) + theirs.trained - x_0).max() <= TOLERANCE
    assert abs(ours.u.sum() - u_0) <= TOLERANCE


def assert_copies_are_equal(ours, owner):
    """Where all mail has arrived, both ends of an edge hold the same public copy, bit for bit."""
    num = 0
    for j, state in enumerate(ours.states):
        for (receiver, at), h in state.sent.items():
            sender, i = (j if at is None else at), owner[receiver]
            if owner[sender] != j:
                continue  # what a leaver kept
            address = None if receiver == i else receiver
            assert h.equal(ours.states[i].received[sender, address])
            num += 1
    assert num > 2


@pytest.mark.parametrize(("form", "compressor"), each_once(FORMS, COMPRESSORS), ids=str)
@pytest.mark.parametrize("seed", some(range(3), 1))
def test_a_free_fleet_follows_the_event_loop(form, compressor, seed):
    events, ours, theirs = both(form, compressor, seed)
    check(events, ours, theirs)
    assert_copies_are_equal(ours, theirs.owner)


@pytest.mark.parametrize(("form", "compressor"), each_once(FORMS, COMPRESSORS[::-1]), ids=str)
@pytest.mark.parametrize("seed", some(range(3), 1))
def test_devices_that_begin_late_and_leave_follow_the_event_loop(form, compressor, seed):
    events, ours, theirs = both(form, compressor, 10 + seed, n=6, late=(1, 4), leavers=3)
    check(events, ours, theirs)
    assert_copies_are_equal(ours, theirs.owner)
    assert sum(isinstance(event, oracle.Leave) for event in events) == 3


def test_the_histories_of_these_tests_are_free():
    """None, one, several messages at once; devices without mass send; inherited edges are used."""
    seen = Counter()
    for seed in range(10):
        late = frozenset({1, 4})
        events = oracle.free_events(6, 25, np.random.default_rng(seed), late=late, leavers=3)
        begun, left = set(), set()
        for event in events:
            match event:
                case oracle.Absorb(_, edges):
                    per_edge = Counter(edges)
                    seen["none"] += not edges
                    seen["several of an edge"] += any(number > 1 for number in per_edge.values())
                    seen["several edges"] += len(per_edge) > 1
                case oracle.Send(i, weights, _):
                    seen["without mass"] += i in late and i not in begun
                    seen["in another's name"] += any(a != i for a, _ in weights)
                    seen["to one who left"] += any(b in left for _, b in weights)
                    begun.add(i)
                case oracle.Leave(i, _, first, last):
                    left.add(i)
                    seen["mail on the road between the two"] += bool(first or last)
    assert len(seen) == 7
    assert min(seen.values()) >= 5


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_a_device_without_mass_sends_the_zero_vector(compressor):
    """Its public copies stay as they are at both ends, and nothing moves at the receiver."""
    algorithm = Choco(averaging_rate=0.5, compressor=compressor, layout=LAYOUT)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, D))
    fleet = Devices(algorithm, X, None, 0.0, late={0})
    fleet._send(0, {(0, 1): 0.5}, rng)
    message = read(fleet.envelopes[0, 1][0])
    assert message.push_weight == 0.0
    assert not message.payload.decode().any()
    ordinary = algorithm.compressor.compress(torch.from_numpy(X[1]), LAYOUT, rng)
    dense = message.payload.indices is None
    assert not dense or message.byte_counts.values == len(ordinary.sections.values)
    fleet._absorb(1, [(0, 1)])
    assert not fleet.states[0].sent[1, None].any()
    np.testing.assert_array_equal(fleet.X, [np.zeros(D), X[1]])
    np.testing.assert_array_equal(fleet.u, [0.0, 1.0])

    fleet._send(1, {(1, 0): 0.5}, rng)  # its first mass is its neighbour's public copy
    fleet._absorb(0, [(1, 0)])
    h = fleet.states[1].sent[0, None]
    assert fleet.states[0].u == 0.25
    np.testing.assert_allclose(fleet.states[0].debiased().numpy(), h.numpy(), rtol=1e-15)


@pytest.mark.parametrize("kind", [Choco, GradientPush, DeepSqueeze])
def test_a_device_that_gives_without_receiving_keeps_its_model(kind):
    """In float32, where x = u z would sink below the smallest number, and with it z."""
    algorithm = kind(averaging_rate=1.0, compressor=Identity(values="fp32"), layout=LAYOUT)
    X = np.random.default_rng(0).normal(size=(2, D)).astype(np.float32)
    fleet = Devices(algorithm, X, None, 0.0)
    for _ in range(300):
        fleet._send(0, {(0, 1): 0.5}, np.random.default_rng(0))
    assert 0 < fleet.states[0].u < LEAST_PUSH_WEIGHT
    np.testing.assert_allclose(fleet.states[0].debiased().numpy(), X[0], rtol=1e-4)
    fleet._absorb(1, [(0, 1)] * 300)
    assert fleet.u.sum() == 2.0
    np.testing.assert_allclose(fleet.X.sum(axis=0), X.sum(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("form", "compressor"),
    each_once(FORMS, [each for each in COMPRESSORS if "fp64" not in str(each)]),
    ids=str,
)
def test_mass_is_kept_in_float32_as_far_as_float32_can(form, compressor):
    """Each of some thousand sums of numbers of order one errs by half a unit of 6e-8 at most."""
    n = 6
    X = problem(n, 3)[0].astype(np.float32)
    rng = np.random.default_rng(3)
    events = oracle.free_events(n, 60, rng, late=frozenset({2}), leavers=2)
    algorithm = FORMS[form](averaging_rate=0.05, compressor=compressor, layout=LAYOUT)
    ours = Devices(algorithm, X, lambda i, z: 0 * z, 0.0, late={2})
    x_0, largest = ours.X.sum(0, dtype=np.float64), np.abs(X).max()
    num_sums = 0
    for event in events:
        ours.follow(event)
        match event:
            case oracle.Send(_, weights, _):
                num_sums += len(weights)
            case oracle.Absorb(_, edges):
                num_sums += len(edges)
        largest = max(largest, np.abs(ours.X).max())
    drift = np.abs(ours.X.sum(0, dtype=np.float64) - x_0).max()
    assert drift < num_sums * np.finfo(np.float32).eps * largest
    assert drift < 2e-4
    assert ours.u.sum() == pytest.approx(n - 1, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_float32_follows_float64_where_nothing_is_selected(form):
    """Uncompressed: no choice of entries can tip over, so only rounding tells the two apart."""
    n = 5
    X, gradient = problem(n, 4)
    events = oracle.free_events(n, 40, np.random.default_rng(4), late=frozenset({3}), leavers=1)
    compressor = Identity(values="fp32")
    algorithm = FORMS[form](averaging_rate=0.3, compressor=compressor, layout=LAYOUT)
    ours = Devices(algorithm, X.astype(np.float32), gradient, GAMMA, {3})
    theirs = oracle.Fleet(X, form, 0.3, lambda v, rng: v.copy(), gradient, GAMMA, frozenset({3}))
    for event in events:
        ours.follow(event)
        theirs.follow(event)
    np.testing.assert_allclose(ours.X, theirs.x, rtol=0, atol=5e-5)
    np.testing.assert_allclose(ours.u, theirs.u, rtol=0, atol=1e-12)


def lockstep(W, rounds, silent=()):
    """Events of a fleet in lockstep on a fixed graph; in silent rounds there are local steps."""
    n = len(W)
    links = {j: {(j, i): W[i, j] for i in range(n) if i != j and W[i, j] > 0} for j in range(n)}
    events = []
    for round_index in range(rounds):
        events += [oracle.Step(j) for j in range(n)]
        if round_index not in silent:
            events += [oracle.Send(j, links[j], (round_index, j)) for j in range(n)]
            events += [
                oracle.Absorb(i, tuple((j, i) for j in range(n) if (j, i) in links[j]))
                for i in range(n)
            ]
    return events


def irregular():
    """The digraph of reference.md, sections 9.3 and 11: ring of 8, plus 0 -> 3, 0 -> 5, 1 -> 6."""
    A = np.eye(8) + np.roll(np.eye(8), 1, axis=0)
    A[3, 0] = A[5, 0] = A[6, 1] = 1
    return A / A.sum(axis=0)


def follow(algorithm, X, gradient, events):
    ours = Devices(algorithm, X, gradient, GAMMA)
    for event in events:
        ours.follow(event)
    return ours


DETERMINISTIC = [each for each in COMPRESSORS if not isinstance(each, RandomK | QSGD)]


@pytest.mark.parametrize("compressor", some(DETERMINISTIC, 5), ids=str)
def test_the_forms_are_one_where_weights_are_doubly_stochastic(compressor):
    """In lockstep u stays 1, so both forms and both storages have the same iterates."""
    n = 8
    W = (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), 3, axis=0)) / 3
    X, gradient = problem(n, 6)
    events = lockstep(W, 20, silent={3, 4, 11})
    ends = [
        follow(kind(averaging_rate=0.2, compressor=compressor, layout=LAYOUT), X, gradient, events)
        for kind in (Choco, ChocoNumerator, FixedGraphChoco)
    ]
    for end in ends:
        np.testing.assert_allclose(end.u, 1.0, rtol=0, atol=1e-14)
        np.testing.assert_allclose(end.X, ends[0].X, rtol=0, atol=TOLERANCE)


def test_on_an_irregular_digraph_the_forms_differ_until_push_weights_settle():
    W = irregular()
    X, gradient = problem(8, 7)
    events = lockstep(W, 30)
    compressor = TopK(keep=0.2, values="fp64")
    model, numerator, fixed = (
        follow(kind(averaging_rate=0.2, compressor=compressor, layout=LAYOUT), X, gradient, events)
        for kind in (Choco, ChocoNumerator, FixedGraphChoco)
    )
    np.testing.assert_allclose(numerator.X, fixed.X, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(numerator.u, model.u, rtol=0, atol=TOLERANCE)
    assert np.abs(model.X - numerator.X).max() > 0.01


@thorough_only
def test_the_model_form_agrees_where_the_numerator_form_stalls():
    """Consensus alone, at free pace: each device's model against the mean of the starts."""
    n = 6
    X = problem(n, 8)[0]
    mean = X.mean(axis=0)
    events = oracle.free_events(n, 220, np.random.default_rng(8))
    errors = {}
    for form, kind in FORMS.items():
        compressor = TopK(keep=0.5, values="fp64")
        algorithm = kind(averaging_rate=0.3, compressor=compressor, layout=LAYOUT)
        fleet = Devices(algorithm, X, lambda i, z: 0 * z, 0.0)
        for event in events:
            fleet.follow(event)
        errors[form] = np.abs(fleet.X / fleet.u[:, None] - mean).max()
    assert errors["model"] < 1e-5
    assert errors["numerator"] > 1e-2
