import gc
import math
import struct
from weakref import WeakValueDictionary

import numpy as np
import pytest
import torch
from compression_strategies import (
    assert_same_payload,
    message_of,
    messages,
    payloads,
    resnet20_layout,
)
from hypothesis import given

from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.errors import WireError
from edgesim.compression.payload import Payload
from edgesim.compression.wire import HEADER, MAGIC, ByteCounts, announced_bytes, decode, encode
from edgesim.learning.parameters import ParameterLayout

HEADER_FIELDS = ("algorithm", "sender", "receiver", "sequence", "round_index", "kind", "notes")


@given(messages)
def test_length_on_the_wire_is_wire_bytes(message):
    assert len(encode(message)) == message.wire_bytes == message.byte_counts.total


@given(messages)
def test_the_header_says_how_long_the_message_is(message):
    data = encode(message)
    assert announced_bytes(data[: HEADER.size]) == len(data)


@pytest.mark.parametrize("at", [0, HEADER.size - 8], ids=["magic", "length"])
def test_a_length_is_read_from_nothing_but_a_header(at):
    """It stands before the checksum, the last 4 bytes; a message of 0 bytes has no header."""
    head = bytearray(HEADER.size)
    head[:4] = MAGIC
    head[-8:-4] = struct.pack("<I", 256)
    assert announced_bytes(head) == 256
    head[at : at + 4] = bytes(4)
    with pytest.raises(WireError, match="no message begins with"):
        announced_bytes(head)


@given(messages)
def test_what_arrives_is_what_left_bit_for_bit(message):
    received = decode(encode(message), message.payload.layout)
    for field in HEADER_FIELDS:
        assert getattr(received, field) == getattr(message, field)
    assert struct.pack("<2d", received.weight, received.push_weight) == struct.pack(
        "<2d", message.weight, message.push_weight
    )
    assert_same_payload(received.payload, message.payload)
    assert encode(received) == encode(message)


@given(payloads())
def test_receivers_copy_is_bit_equal_to_senders(payload):
    """reference.md, section 10, check 6: both ends add the payload to their copy and hold the same
    bits."""
    sender = torch.linspace(-1, 1, payload.layout.numel)
    receiver = sender.clone()
    payload.add_to_(sender)
    decode(encode(message_of(payload)), payload.layout).payload.add_to_(receiver)
    assert sender.numpy().tobytes() == receiver.numpy().tobytes()


def test_any_buffer_is_accepted_and_not_kept():
    """Ray hands out read-only arrays over shared memory; a payload must not hold on to them."""
    layout = ParameterLayout.from_shapes([(3,)])
    payload = Identity("fp32").compress(torch.arange(3.0), layout, np.random.default_rng(0))
    data = bytearray(encode(message_of(payload)))
    kinds = [bytes(data), memoryview(data), np.frombuffer(data, np.uint8), data]
    received = [decode(kind, layout).payload for kind in kinds]
    data[:] = bytes(len(data))
    assert [payload.decode().tolist() for payload in received] == [[0.0, 1.0, 2.0]] * 4


def test_one_payload_on_several_edges_is_encoded_once():
    layout = ParameterLayout.from_shapes([(50,)])
    payload = TopK(0.1, "int8").compress(torch.arange(50.0), layout, np.random.default_rng(0))
    first, second = (message_of(payload, receiver=receiver) for receiver in (1, 2))
    sections = payload.sections
    assert encode(first)[HEADER.size + 5 :] == encode(second)[HEADER.size + 5 :]
    assert payload.sections is sections
    assert decode(encode(second), layout).receiver == 2


def test_one_payload_on_several_edges_is_read_once_while_somebody_holds_it():
    layout = ParameterLayout.from_shapes([(50,)])
    x = torch.arange(50.0)
    payload = TopK(0.1, "int8").compress(x, layout, np.random.default_rng(0))
    other = TopK(0.1, "int8").compress(x.flip(0), layout, np.random.default_rng(0))
    cache: WeakValueDictionary[bytes, Payload] = WeakValueDictionary()
    first, second = (
        decode(encode(message_of(payload, receiver=receiver)), layout, cache) for receiver in (1, 2)
    )
    assert second.payload is first.payload
    assert (first.receiver, second.receiver) == (1, 2)
    third = decode(encode(message_of(other)), layout, cache)
    assert torch.equal(third.payload.decode(), other.decode())
    assert torch.equal(first.payload.decode(), payload.decode())
    assert len(cache) == 2
    del first, second, third
    gc.collect()
    assert not cache


def test_equal_bodies_of_unlike_layouts_are_not_taken_for_each_other():
    """An algorithm of one's own may send vectors of several layouts through one cache."""
    one, other = (ParameterLayout.from_shapes(shapes) for shapes in ([(4,), (4,)], [(3,), (5,)]))
    cache: WeakValueDictionary[bytes, Payload] = WeakValueDictionary()
    x, y = torch.zeros(8), torch.zeros(8)
    x[[2, 6]] = y[[2, 5]] = torch.tensor([5.0, 7.0])  # the third entry of each tensor
    read, bodies = [], []
    for vector, layout in ((x, one), (y, other)):
        payload = TopK(0.25, "fp32").compress(vector, layout, np.random.default_rng(0))
        data = encode(message_of(payload))
        bodies.append(data[HEADER.size :])
        read.append(decode(data, layout, cache).payload)
    assert bodies[0] == bodies[1]
    assert [payload.decode().tolist() for payload in read] == [x.tolist(), y.tolist()]


def test_byte_counts_by_hand():
    """Two tensors of 8 and 2 entries, one kept of each; int8 and one scale each.

    Header: 61 fixed bytes and the 5 of "choco". Scales 2 x 4. Values 2 x 1. Indices: mode and count
    of each tensor, then 3 and 1 bits of position in fixed width: 5 bytes.
    """
    layout = ParameterLayout.from_shapes([(8,), (2,)])
    x = torch.tensor([0, 0, 0, 0, 0, 0, 0, 5.0, 0, 1.0])
    message = message_of(TopK(0.1, "int8").compress(x, layout, np.random.default_rng(0)))
    assert message.byte_counts == ByteCounts(values=2, indices=5, scales=8, header=66)
    assert message.wire_bytes == 81


def resnet20_message(compressor):
    layout = resnet20_layout()
    x = torch.from_numpy(np.random.default_rng(2).standard_normal(layout.numel)).float()
    return message_of(compressor.compress(x, layout, np.random.default_rng(3)))


def test_dense_int8_is_within_1_percent_of_one_byte_a_parameter():
    assert resnet20_message(Identity("int8")).wire_bytes <= 1.01 * 273_258


@pytest.mark.parametrize(
    ("compressor", "bits_per_value"),
    [
        (Identity("fp32"), 32),
        (Identity("fp16"), 16),
        (Identity("int8"), 8),
        (QSGD(4), 5),
        (MinMaxUInt8(), 8),
        (SignScale(), 1),
    ],
)
def test_dense_values_take_exactly_their_bits(compressor, bits_per_value):
    counts = resnet20_message(compressor).byte_counts
    assert counts.values == math.ceil(273_258 * bits_per_value / 8)
    assert counts.indices == 0


@pytest.mark.parametrize("keep", [0.01, 0.1])
def test_random_k_message_of_resnet20_comes_back(keep):
    message = resnet20_message(RandomK(keep, "fp16"))
    received = decode(encode(message), message.payload.layout)
    assert_same_payload(received.payload, message.payload)


@pytest.mark.parametrize(
    "fields",
    [
        {"algorithm": ""},
        {"algorithm": "Choco SGD"},
        {"algorithm": "x" * 33},
        {"sender": -1},
        {"receiver": 2**32},
        {"sequence": 1.5},
        {"round_index": -3},
        {"weight": math.nan},
        {"weight": -0.1},
        {"push_weight": math.inf},
    ],
)
def test_a_message_that_no_receiver_would_take_cannot_be_made(fields):
    layout = ParameterLayout.from_shapes([(2,)])
    payload = SignScale().compress(torch.ones(2), layout, np.random.default_rng(0))
    with pytest.raises(WireError, match=next(iter(fields))):
        message_of(payload, **fields)
