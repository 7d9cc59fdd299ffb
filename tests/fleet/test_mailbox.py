"""A mailbox takes each message once and hands messages out in the order of their edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression.compressors import Identity
from edgesim.compression.wire import Message
from edgesim.device.mail import Arrival
from edgesim.fleet.transport.mailbox import WINDOW, Mailbox
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(2,)])
PAYLOAD = Identity(values="fp32").compress(torch.ones(2), LAYOUT, np.random.default_rng(0))


def message(sender, sequence):
    return Arrival(Message("choco", sender, 9, sequence, sequence, 0.5, 1.0, PAYLOAD), None)


def test_waits_for_every_sender():
    box = Mailbox()
    assert box.put(message(1, 0))
    assert not box.has_next_of([(1, 9), (2, 9)])
    with pytest.raises(KeyError):
        box.take_next_of([(1, 9), (2, 9)])
    assert box.put(message(2, 0))
    assert [a.message.sender for a in box.take_next_of([(1, 9), (2, 9)])] == [1, 2]
    assert len(box) == 0


@given(st.permutations([(s, q) for s in (1, 2) for q in range(4)] * 2))
def test_any_order_and_repetition_gives_each_message_once_in_sequence(arrivals):
    box, taken = Mailbox(), []
    for sender, sequence in arrivals:
        box.put(message(sender, sequence))
        while box.has_next_of([(1, 9), (2, 9)]):
            messages = [arrival.message for arrival in box.take_next_of([(1, 9), (2, 9)])]
            taken.append([(m.sender, m.sequence) for m in messages])
    assert taken == [[(1, q), (2, q)] for q in range(4)]
    assert len(box) == 0
    assert not box.put(message(1, 2)), "a message that was absorbed does not come back"


def test_a_sender_may_be_a_window_ahead_on_its_own_edge():
    box = Mailbox()
    assert box.has_room((1, 9), WINDOW - 1)
    assert not box.has_room((1, 9), WINDOW)
    box.put(message(1, 0))
    box.take_next_of([(1, 9)])
    assert box.has_room((1, 9), WINDOW)
    assert not box.has_room((1, 9), WINDOW + 1)
    assert not box.has_room((2, 9), WINDOW)


def test_a_mailbox_goes_on_where_another_one_stopped():
    """What came twice, to the old address and forwarded, is taken once."""
    box = Mailbox()
    for sequence in (3, 4):
        box.put(message(1, sequence))
    box.put(message(2, 0))
    box.take_over({(1, 9): 4})
    assert len(box) == 2
    assert not box.put(message(1, 3))
    assert [a.message.sequence for a in box.take_next_of([(1, 9)])] == [4]
    assert box.next_sequences == {(1, 9): 5}
    assert [a.message.sender for a in box.take_next_of([(2, 9)])] == [2]


def test_a_mailbox_is_emptied_in_the_order_of_edges_and_sequences():
    box = Mailbox()
    for sender, sequence in [(2, 1), (1, 1), (2, 0), (1, 0)]:
        box.put(message(sender, sequence))
    left = [(a.message.sender, a.message.sequence) for a in box.empty()]
    assert left == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert len(box) == 0
