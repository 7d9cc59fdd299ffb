"""A checkpoint comes back as it was, or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from edgesim.storage.checkpoint_format import (
    FORMAT_VERSION,
    Checkpoint,
    CheckpointError,
    OtherFormatError,
    decode,
    encode,
)

FRAME_BYTES = 8 + 4 + 8 + 32  # magic, version, length, digest, as the module says
DIGEST = slice(20, 52)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
dtypes = st.one_of(
    np_st.boolean_dtypes(),
    np_st.integer_dtypes(),
    np_st.unsigned_integer_dtypes(),
    np_st.floating_dtypes(),
    np_st.complex_number_dtypes(),
)
arrays = dtypes.flatmap(
    lambda dtype: np_st.arrays(np.uint8, st.tuples(st.integers(0, 3), st.just(dtype.itemsize))).map(
        lambda raw: np.frombuffer(raw.tobytes(), dtype)
    )
)
shaped = arrays.flatmap(
    lambda a: st.sampled_from([a, a.reshape(1, -1), a.reshape(-1, 1, 1), a[::2], a[::-1]])
)
checkpoints = st.builds(
    Checkpoint,
    device=st.integers(0, 2**40),
    round_index=st.integers(0, 2**40),
    run_digest=st.text(),
    fields=st.dictionaries(st.text(), json_values, max_size=5),
    arrays=st.dictionaries(st.text(), shaped, max_size=4),
    blobs=st.lists(st.binary(max_size=200), max_size=4),
)

SMALL = Checkpoint(
    device=3,
    round_index=12,
    run_digest="abc",
    fields={"clock_s": 0.1, "edges": [[0, 1, 5]], "successor": None},
    arrays={"x": np.arange(5, dtype=np.float32), "counts": np.array([[1, 2]], dtype=np.int64)},
    blobs=[b"letter one", b"", b"two"],
)
BYTES = encode(SMALL)


def is_same(ours: object, theirs: object) -> bool:
    """Same value and same type, NaN equal to itself, zeros with their sign."""
    if isinstance(ours, dict):
        assert isinstance(theirs, dict)
        return list(ours) == list(theirs) and all(is_same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        assert isinstance(theirs, list)
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or (
            ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs)
        )
    return type(ours) is type(theirs) and ours == theirs


def assert_same(ours: Checkpoint, theirs: Checkpoint) -> None:
    assert (ours.device, ours.round_index) == (theirs.device, theirs.round_index)
    assert ours.run_digest == theirs.run_digest
    assert is_same(dict(ours.fields), dict(theirs.fields))
    assert list(ours.arrays) == list(theirs.arrays)
    for name, array in ours.arrays.items():
        assert (array.dtype, array.shape) == (theirs.arrays[name].dtype, theirs.arrays[name].shape)
        assert array.tobytes() == theirs.arrays[name].tobytes()
    assert list(ours.blobs) == list(theirs.blobs)


def with_digest(data: bytes) -> bytes:
    """The same with a digest that fits, as nobody but a forger would make it."""
    digest = hashlib.sha256(data[: DIGEST.start] + data[DIGEST.stop :]).digest()
    return data[: DIGEST.start] + digest + data[DIGEST.stop :]


def with_length(data: bytes) -> bytes:
    return with_digest(data[:12] + struct.pack("<Q", len(data)) + data[20:])


def with_header(**changes: Any) -> bytes:
    """The small checkpoint with some of its header exchanged; sections stay where they are."""
    start = FRAME_BYTES + 4
    (length,) = struct.unpack_from("<I", BYTES, FRAME_BYTES)
    header = json.loads(BYTES[start : start + length]) | changes
    text = json.dumps({k: v for k, v in header.items() if v != "absent"}).encode()
    new = BYTES[:FRAME_BYTES] + struct.pack("<I", len(text)) + text
    sections = BYTES[start + length + -(start + length) % 64 :]
    return with_length(new + bytes(-len(new) % 64) + sections)


@given(checkpoints)
def test_what_is_encoded_comes_back_to_the_bit(checkpoint):
    data = encode(checkpoint)
    assert_same(checkpoint, decode(data))
    assert encode(decode(data)) == data


@pytest.mark.parametrize(
    "array",
    [
        np.array(1.5),
        np.zeros((0, 3), dtype=np.int8),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::3],
        np.array([1, 2], dtype=">i2"),
        np.array([True, False]),
        np.array([1 + 2j], dtype=np.complex64),
    ],
    ids=str,
)
def test_arrays_of_all_kinds_come_back(array):
    back = decode(encode(Checkpoint(0, 0, "", {}, {"a": array}, []))).arrays["a"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert back.flags.aligned
    assert not back.flags.writeable


@pytest.mark.parametrize(
    ("fields", "arrays", "reason"),
    [
        ({"a": (1, 2)}, {}, r"fields\.a: tuple"),
        ({"a": {1: 2}}, {}, r"fields\.a: 1 is no str"),
        ({"a": [{1, 2}]}, {}, r"fields\.a\[0\]: set"),
        ({"a": np.float32(1)}, {}, r"fields\.a: float32"),
        ({"a": b"1"}, {}, r"fields\.a: bytes"),
        ({}, {"x": np.array([None])}, "array x: object"),
        ({}, {"x": np.zeros(1, dtype=[("a", "i1"), ("b", "i8")])}, r"array x: .*can't be kept"),
        ({}, {"x": np.array(["a", "bcd"])}, r"array x: <U3 can't be kept"),
        ({}, {"x": np.array(["2020-01-01"], dtype="M8[D]")}, "array x: datetime64"),
    ],
)
def test_what_would_not_come_back_is_refused(fields, arrays, reason):
    with pytest.raises(TypeError, match=reason):
        encode(Checkpoint(0, 0, "", fields, arrays, []))


def test_a_checkpoint_that_is_cut_short_anywhere_is_refused():
    for length in range(len(BYTES)):
        with pytest.raises(CheckpointError, match="truncated"):
            decode(BYTES[:length])


def test_one_flipped_bit_anywhere_is_noticed():
    for place in range(len(BYTES)):
        for bit in range(8):
            damaged = bytearray(BYTES)
            damaged[place] ^= 1 << bit
            with pytest.raises(CheckpointError, match=r"damaged|truncated|foreign"):
                decode(bytes(damaged))


@given(st.data())
def test_damage_of_any_kind_is_noticed(data):
    """Pieces overwritten, removed, inserted, exchanged: never believed, never another exception."""
    start = data.draw(st.integers(0, len(BYTES)))
    stop = data.draw(st.integers(start, len(BYTES)))
    damaged = BYTES[:start] + data.draw(st.binary(max_size=64)) + BYTES[stop:]
    if damaged == BYTES:
        return
    with pytest.raises(CheckpointError):
        decode(damaged)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_nothing_but_checkpoint_errors_whatever_the_digest_says(data):
    """Even bytes that were made to pass the digest do no harm."""
    body = bytearray(BYTES)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(FRAME_BYTES, len(body) - 1))
        body[place] = data.draw(st.sampled_from(b'0129-"[]{},:.eE<>|fUOSM\x00\xff') | st.just(7))
    cut = data.draw(st.integers(FRAME_BYTES, len(body)) | st.just(len(body)))
    try:
        found = decode(with_length(bytes(body[:cut])))
    except CheckpointError:
        return
    assert isinstance(found.fields, dict)
    assert all(isinstance(array, np.ndarray) for array in found.arrays.values())


def test_the_forged_headers_below_are_read_when_nothing_is_changed():
    assert_same(decode(with_header()), SMALL)


@pytest.mark.parametrize(
    "changes",
    [
        {"device": -1},
        {"device": True},
        {"device": 1.0},
        {"round_index": None},
        {"run_digest": 5},
        {"fields": []},
        {"fields": "absent"},
        {"extra": 1},
        {"arrays": {}},
        {"arrays": [1]},
        {"arrays": [["x", "<f4"]]},
        {"arrays": [["x", "|O", [5]]]},
        {"arrays": [["x", "<f4,<f4", [5]]]},
        {"arrays": [["x", "<f3", [5]]]},
        {"arrays": [["x", "<U99999999999999999999", [5]]]},
        {"arrays": [["x", "|S0", [5]]]},
        {"arrays": [["x", [["a", "<f4"]], [5]]]},
        {"arrays": [["x", [["a", "<f4", []], ["a", "<f4", []]], [5]]]},
        {"arrays": [["x", [], [5]]]},
        {"arrays": [["x", [[1, "<f4", []]], [5]]]},
        {"arrays": [["x", "<f4", [-5]]]},
        {"arrays": [["x", "<f4", [1.0]]]},
        {"arrays": [["x", "<f4", [2**70]]]},
        {"arrays": [["x", "<f4", [0, 2**70]]]},
        {"arrays": [["x", "<f4", [1] * 100]]},
        {"arrays": [["x", "<f4", [4]]], "blobs": []},
        {"blobs": [10, 0]},
        {"blobs": [10, 0, 400]},
        {"blobs": [10, 0, -3]},
        {"blobs": "10"},
        {"blobs": None},
    ],
    ids=str,
)
def test_headers_that_no_encoder_writes_are_refused(changes):
    with pytest.raises(CheckpointError, match="damaged"):
        decode(with_header(**changes))


@pytest.mark.parametrize("text", [b"[" * 100_000, b"1" * 10_000, b"\xff", b"", b"[]", b'{"a":'])
def test_headers_that_are_no_json_object_are_refused(text):
    data = BYTES[:FRAME_BYTES] + struct.pack("<I", len(text)) + text
    with pytest.raises(CheckpointError, match="damaged: its header"):
        decode(with_length(data))


def test_another_format_is_not_taken_for_damage():
    for version, age in ((FORMAT_VERSION + 1, "a newer"), (FORMAT_VERSION - 1, "an older")):
        other = with_digest(BYTES[:8] + struct.pack("<I", version) + BYTES[12:])
        with pytest.raises(OtherFormatError, match=rf"written by {age} edgesim \(format {version}"):
            decode(other)
    damaged = BYTES[:8] + struct.pack("<I", FORMAT_VERSION + 1) + BYTES[12:]
    with pytest.raises(CheckpointError, match="damaged"):
        decode(damaged)
    with pytest.raises(CheckpointError, match="foreign: there is no format 0"):
        decode(with_digest(BYTES[:8] + struct.pack("<I", 0) + BYTES[12:]))


@pytest.mark.parametrize("data", [b"PK\x03\x04" + bytes(100), b"\x80\x04\x95" + bytes(100), b"{}"])
def test_other_files_are_foreign(data):
    with pytest.raises(CheckpointError, match="foreign"):
        decode(data)
