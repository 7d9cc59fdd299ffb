"""A mailbox takes each message once and hands messages out in the order of their edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression import Identity, Message
from edgesim.device import Arrival
from edgesim.fleet.mailbox import Mailbox
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(2,)])
PAYLOAD = Identity(values="fp32").compress(torch.ones(2), LAYOUT, np.random.default_rng(0))


def message(sender, sequence):
    return Arrival(Message("choco", sender, 9, sequence, sequence, 0.5, 1.0, PAYLOAD), None)


def test_waits_for_every_sender():
    box = Mailbox()
    assert box.put(message(1, 0))
    assert not box.has_next_from([1, 2])
    with pytest.raises(KeyError):
        box.take_next_from([1, 2])
    assert box.put(message(2, 0))
    assert [a.message.sender for a in box.take_next_from([1, 2])] == [1, 2]
    assert len(box) == 0


@given(st.permutations([(s, q) for s in (1, 2) for q in range(4)] * 2))
def test_any_order_and_repetition_gives_each_message_once_in_sequence(arrivals):
    box, taken = Mailbox(), []
    for sender, sequence in arrivals:
        box.put(message(sender, sequence))
        while box.has_next_from([1, 2]):
            messages = [arrival.message for arrival in box.take_next_from([1, 2])]
            taken.append([(m.sender, m.sequence) for m in messages])
    assert taken == [[(1, q), (2, q)] for q in range(4)]
    assert len(box) == 0
    assert not box.put(message(1, 2)), "a message that was absorbed does not come back"
