"""Who answers for whose edges when devices leave."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression.lossless import whole
from edgesim.compression.wire import Message
from edgesim.device.membership import HandoverNotes, Membership, is_handover_notes
from edgesim.learning.parameters import ParameterLayout
from topologies import Static, column_stochastic, directed_ring, erdos_renyi

LAYOUT = ParameterLayout.from_shapes([(2,)])
numbers = st.integers(0, 2**32 - 1)
handover_notes = st.builds(
    HandoverNotes,
    num_copies=numbers,
    addresses=st.lists(numbers, max_size=4).map(tuple),
    sequences=st.dictionaries(st.tuples(numbers, numbers), numbers, max_size=5),
)


@given(handover_notes)
def test_notes_of_a_handover_survive_their_numbers(notes):
    assert is_handover_notes(notes.to_numbers())
    assert HandoverNotes.from_numbers(notes.to_numbers()) == notes


@pytest.mark.parametrize("notes", [(), (0,), (0, 1), (0, 5, 1, 2), (0, 1, 7, 1), (0, 0, 1, 2)])
def test_numbers_that_are_no_notes_of_a_handover_are_known_as_such(notes):
    assert not is_handover_notes(notes)


def handover(sender: int, receiver: int, addresses: tuple[int, ...]) -> Message:
    notes = HandoverNotes(0, addresses, {}).to_numbers()
    payload = whole(torch.zeros(2), LAYOUT)
    return Message("choco", sender, receiver, 0, 0, 0.0, 1.0, payload, "handover", notes)


@given(st.integers(3, 9), st.integers(0, 1000))
def test_what_is_left_of_a_fleet_stays_connected_and_keeps_its_mass(n, seed):
    """Devices leave one by one until one is left; each to its first receiver."""
    schedule = Static(column_stochastic(erdos_renyi(n, probability=0.4, seed=seed)))
    if not nx.is_strongly_connected(schedule.weighted):
        return
    members = {i: Membership(i, schedule) for i in range(n)}
    owner = {i: i for i in range(n)}
    order = np.random.default_rng(seed).permutation(n)
    for t, leaver in enumerate(order[:-1].tolist()):
        edge = members[leaver].out_edges(t)[0]
        successor = owner[edge.receiver]
        left = members.pop(leaver).addresses
        further = members[successor].take_note(handover(edge.sender, edge.receiver, left), t)
        # What is waited for in the leaver's place is what its in-neighbours sent, the successor
        # too.
        wanted = {(s, a) for a in left for s in schedule.in_neighbors(a, t) if s not in left}
        assert set(further) == wanted
        owner |= dict.fromkeys(left, successor)
        graph = nx.DiGraph()
        graph.add_nodes_from(members)
        for i, member in members.items():
            edges = member.out_edges(t + 1)
            assert sum(e.weight for e in edges) < 1
            assert all(owner[e.sender] == i and owner[e.receiver] != i for e in edges)
            graph.add_edges_from((i, owner[e.receiver]) for e in edges)
            for e in edges:
                assert (e.sender, e.receiver) in members[owner[e.receiver]].in_edges(t + 1)
        assert nx.is_strongly_connected(graph)
        sent = sum(len(member.out_edges(t + 1)) for member in members.values())
        assert sent == sum(len(member.in_edges(t + 1)) for member in members.values())
    assert members.popitem()[1].out_edges(n) == []


@pytest.mark.parametrize(
    ("kind", "sender", "receiver", "notes"),
    [
        ("share", 0, 9, ()),
        ("share", 9, 1, ()),
        ("share", 2, 1, ()),  # no such edge
        ("handover", 0, 1, (0,)),
        ("handover", 0, 1, (0, 1, 9)),
        ("copy", 0, 1, (0,)),
        ("copy", 0, 1, (0, 9)),
    ],
)
def test_messages_of_devices_and_edges_that_are_not_there_are_not_expected(
    kind, sender, receiver, notes
):
    member = Membership(1, Static(column_stochastic(directed_ring(3))))
    payload = whole(torch.zeros(2), LAYOUT)
    sound = Message("choco", 0, 1, 0, 0, 0.0, 1.0, payload)
    assert member.expects(sound)
    assert not member.expects(
        Message("choco", sender, receiver, 0, 0, 0.0, 1.0, payload, kind, notes)
    )
