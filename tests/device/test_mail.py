"""Envelopes: a message need not be decoded where it was encoded, and only there."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import torch

from edgesim.compression.compressors import TopK
from edgesim.compression.wire import decode
from edgesim.device.mail import Envelope, Outbox
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(6, 5), (10,)])


def written() -> Envelope:
    x = torch.from_numpy(np.random.default_rng(3).normal(size=40)).float()
    payload = TopK(keep=0.2, values="fp32").compress(x, LAYOUT, np.random.default_rng(0))
    outbox = Outbox(device=4, algorithm="choco", meter=None)
    return outbox.write((4, 7), 9, "share", payload, weight=0.5, push_weight=2.0, sent_in=9)


def test_the_message_of_an_envelope_is_what_its_data_decodes_to():
    envelope = written()
    message, decoded = envelope.message, decode(envelope.data, LAYOUT)
    assert message is not None
    for name in ("algorithm", "sender", "receiver", "sequence", "round_index"):
        assert getattr(message, name) == getattr(decoded, name)
    for name in ("weight", "push_weight", "kind", "notes", "wire_bytes"):
        assert getattr(message, name) == getattr(decoded, name)
    for name in ("indices", "counts", "codes", "scales", "values"):
        ours, theirs = getattr(message.payload, name), getattr(decoded.payload, name)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_other_data_even_equal_data_has_to_be_decoded():
    envelope = written()
    assert replace(envelope, to=2).message is envelope.message  # forwarded to a successor
    assert replace(envelope, data=bytes(bytearray(envelope.data))).message is None
    assert replace(envelope, data=envelope.data[:-1] + b"x").message is None


def test_only_what_is_on_the_wire_goes_to_another_process():
    envelope = written()
    sent = pickle.loads(pickle.dumps(envelope))
    assert sent == envelope
    assert sent.origin is None
