"""Ten thousand damaged and forged messages: refused by WireError, or valid content."""

import contextlib
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from compression_strategies import message_of, resnet20_layout

from edgesim.compression.buckets import in_buckets
from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.errors import WireError
from edgesim.compression.payload import Payload
from edgesim.compression.segments import Segments
from edgesim.compression.value_codes import FloatCode, MinMaxByte, ScaledInteger, SignBit
from edgesim.compression.wire import HEADER, decode, decode_one_of, encode, message_checksum
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(40, 3), (17,), (1,), (300,)])
LAYOUTS = {layout.digest: layout for layout in (LAYOUT, in_buckets(LAYOUT, 50))}
COMPRESSORS = [
    TopK(0.1, "int8"),
    TopK(0.02, "fp16"),
    TopK(0.7, "fp32"),
    RandomK(0.3, "fp64"),
    Identity("int8"),
    Identity("fp32"),
    QSGD(3),
    MinMaxUInt8(),
    SignScale(),
    QSGD(3, bucket_size=50),
]
CHECKSUM_AT = HEADER.size - 4


def originals():
    rng = np.random.default_rng(0)
    for sequence, compressor in enumerate(COMPRESSORS):
        x = torch.from_numpy(rng.standard_normal(LAYOUT.numel)).float()
        yield encode(message_of(compressor.compress(x, LAYOUT, rng), sequence=sequence))
    payload = Identity("fp32").compress(torch.ones(LAYOUT.numel), LAYOUT, rng)
    yield encode(message_of(payload, kind="handover", notes=(3, 1, 2)))


def flip_bits(data, rng, _others):
    for _ in range(rng.integers(1, 4)):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return data


def edit_header(data, rng, _others):
    start = rng.integers(HEADER.size)
    values = [b"\x00", b"\xff", b"\x00" * 4, b"\xff" * 4, b"\x01\x00\x00\x00", b"\x00" * 8]
    value = values[rng.integers(len(values))]
    data[start : start + len(value)] = value
    return data


def edit_body(data, rng, _others):
    start = rng.integers(HEADER.size, len(data))
    data[start : start + 4] = rng.bytes(4)
    return data


def truncate(data, rng, _others):
    return data[: rng.integers(len(data))]


def lengthen(data, rng, _others):
    return data + rng.bytes(rng.integers(1, 20))


def splice(data, rng, others):
    other = others[rng.integers(len(others))]
    cut = rng.integers(len(data))
    return data[:cut] + other[rng.integers(len(other)) :]


def rewrite_index_table(data, rng, _others):
    start = rng.integers(HEADER.size, min(len(data), HEADER.size + 40))
    data[start] = rng.integers(256)
    return data


MUTATIONS = [flip_bits, edit_header, edit_body, truncate, lengthen, splice, rewrite_index_table]


def forge(data):
    """The mutated message with its length and checksum made right, as an attacker would."""
    if len(data) < HEADER.size:
        return data
    struct.pack_into("<I", data, CHECKSUM_AT - 4, len(data))
    struct.pack_into("<I", data, CHECKSUM_AT, message_checksum(data))
    return data


@pytest.mark.parametrize("claimed", [2, 4, 2**20, 2**32 - 1])
def test_notes_that_are_announced_and_not_there_are_refused(claimed):
    """The body follows the notes, so fewer or more of them shift it."""
    payload = Identity("fp32").compress(torch.ones(LAYOUT.numel), LAYOUT, np.random.default_rng(0))
    data = bytearray(encode(message_of(payload, kind="handover", notes=(3, 1, 2))))
    struct.pack_into("<I", data, HEADER.size + len("choco"), claimed)
    with pytest.raises(WireError, match="notes" if claimed > 2**16 else None):
        decode(bytes(forge(data)), LAYOUT)


def outcome(data):
    """None for a refusal; a message that was accepted must itself be sendable and stable."""
    try:
        message = decode_one_of(bytes(data), LAYOUTS)
    except WireError:
        return None
    assert np.isfinite(message.payload.values).all()
    assert bool(message.payload.decode().isfinite().all())
    assert encode(message) == data, "only what the encoder writes is accepted"
    return message


@pytest.mark.parametrize("forged", [False, True], ids=["as damaged", "checksum recomputed"])
def test_mutated_messages_are_refused_or_valid(forged):
    """2 x 11 x 7 x 100 = 15,400 messages. CRC-32 catches all accidental damage here."""
    messages = [bytearray(data) for data in originals()]
    rng = np.random.default_rng(2021)
    accepted = 0
    for original in messages:
        for mutate in MUTATIONS:
            for _ in range(100):
                data = bytearray(mutate(bytearray(original), rng, messages))
                if forged:
                    data = forge(data)
                if data == original:
                    continue
                accepted += outcome(data) is not None
    assert (accepted > 0) == forged


def test_an_index_bomb_allocates_nothing():
    """Counts that promise billions of entries are refused before any array is made for them."""
    data = bytearray(next(originals()))
    struct.pack_into("<I", data, CHECKSUM_AT - 12, 2**32 - 1)
    with pytest.raises(WireError, match="entries"):
        decode(bytes(forge(data)), LAYOUT)


@pytest.mark.parametrize("compressor", [SignScale(), QSGD(3)])
def test_a_bit_after_the_last_value_is_refused(compressor):
    """133 values of 1 bit leave 3 bits of the last byte, of 4 bits 4."""
    layout = ParameterLayout.from_shapes([(40, 3), (13,)])
    payload = compressor.compress(torch.ones(133), layout, np.random.default_rng(0))
    data = bytearray(encode(message_of(payload)))
    decode(bytes(data), layout)
    data[-1] |= 0x80
    with pytest.raises(WireError, match="zero"):
        decode(bytes(forge(data)), layout)


MILLION = ParameterLayout.from_shapes([(1_000_000,)])


@pytest.mark.parametrize("code", [SignBit(), ScaledInteger(8), MinMaxByte(), FloatCode(32)])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_decoding_takes_a_small_multiple_of_the_dense_vector(code, share):
    """A sparse payload keeps 8 bytes an entry for its place and 5 or more for code and value.

    Of all entries that are 3.25 times the vector; reading takes some arrays more for a while. It
    was 18.75 times: 300 MB for a message of 1 MB.
    """
    kept = np.flatnonzero(np.random.default_rng(0).random(MILLION.numel) < share)
    counts, values = np.array([len(kept)]), np.linspace(-1, 1, len(kept), dtype=np.float32)
    codes, scales = code.quantize(values, Segments(counts))
    data = encode(message_of(Payload(MILLION, code, kept, counts, codes, scales)))
    assert peak_bytes(data) < 6 * 4 * MILLION.numel


def test_a_forged_message_takes_no_more():
    """One that promises all entries, and has all its flags set."""
    data = bytearray(encode(message_of(TopK(1.0, "int8").compress(*ONES))))
    flags = data.index(b"\xff" * 100_000)
    data[flags + 90_000 : flags + 90_100] = bytes(100)
    assert peak_bytes(bytes(forge(data))) < 6 * 4 * MILLION.numel


ONES = torch.ones(MILLION.numel), MILLION, np.random.default_rng(0)


def peak_bytes(data):
    """The most memory that decoding takes, whether or not the message is accepted."""
    tracemalloc.start()
    try:
        with contextlib.suppress(WireError):
            decode(data, MILLION)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_message_for_another_model_is_refused():
    with pytest.raises(WireError, match="layout"):
        decode(next(originals()), resnet20_layout())


def test_another_version_is_named():
    data = bytearray(next(originals()))
    data[4] = 9
    with pytest.raises(WireError, match="version 9"):
        decode(bytes(forge(data)), LAYOUT)


@pytest.mark.parametrize("data", [b"", b"ESIM", bytes(200), np.zeros((9, 9), np.float32)[:, ::2]])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(WireError):
        decode(data, LAYOUT)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_values_are_refused(bad):
    payload = Identity("fp32").compress(torch.ones(LAYOUT.numel), LAYOUT, np.random.default_rng(0))
    data = bytearray(encode(message_of(payload)))
    struct.pack_into("<f", data, len(data) - 4, bad)
    with pytest.raises(WireError, match="finite"):
        decode(bytes(forge(data)), LAYOUT)


def test_checksum_is_crc32_of_body_then_header():
    """Written down so that another implementation can be checked against it."""
    data = next(originals())
    body_at = HEADER.size + len("choco")
    expected = zlib.crc32(
        data[:CHECKSUM_AT] + data[HEADER.size : body_at], zlib.crc32(data[body_at:])
    )
    assert struct.unpack_from("<I", data, CHECKSUM_AT)[0] == expected
