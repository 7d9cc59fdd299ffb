"""A vector that goes with a leave-taking arrives bit for bit, at its own precision."""

from __future__ import annotations

import pytest
import torch
from compression_strategies import message_of

from edgesim.compression.lossless import whole
from edgesim.compression.wire import ByteCounts, decode, encode
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(3,), (2, 2)])


@pytest.mark.parametrize(("dtype", "entry_bytes"), [(torch.float32, 4), (torch.float64, 8)])
def test_every_bit_of_every_entry_arrives_and_nothing_else_is_sent(dtype, entry_bytes):
    x = torch.tensor([1 / 3, -0.0, 5e-40, 1e30, -1e-30, 0.1, 7.0], dtype=dtype)
    payload = whole(x, LAYOUT)
    assert payload.indices is None
    received = decode(encode(message_of(payload)), LAYOUT).payload
    for one in (payload, received):
        assert one.decode().dtype == dtype
        assert one.decode().numpy().tobytes() == x.numpy().tobytes()
    counts = message_of(payload).byte_counts
    assert (counts.values, counts.indices, counts.scales) == (7 * entry_bytes, 0, 0)


def test_a_vector_that_changes_afterwards_is_sent_as_it_was():
    x = torch.ones(7)
    payload = whole(x, LAYOUT)
    x.zero_()
    assert payload.decode().tolist() == [1.0] * 7


def test_counts_of_several_messages_are_added_by_kind():
    one, other = ByteCounts(1, 2, 3, 4), ByteCounts(10, 20, 30, 40)
    assert one + other == ByteCounts(values=11, indices=22, scales=33, header=44)
    assert (one + other).total == 110
