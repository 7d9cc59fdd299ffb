"""Thrift's compact protocol, byte by byte as its specification has it."""

from __future__ import annotations

import pytest

from edgesim.data.parquet.thrift_compact import DEEPEST, CompactReader

# A field begins with a byte of its distance to the one before and its kind; integers are zigzag.
EVERY_KIND = bytes(
    [
        *(0x15, 0xAC, 0x02),  # 1: i32; 150 is 300 in zigzag, 2 x 128 + 44
        0x11,  # 2: true
        0x12,  # 3: false
        *(0x18, 2, *b"ab"),  # 4: binary of 2 bytes
        *(0x17, *range(8)),  # 5: double
        *(0x19, 0x25, 2, 3),  # 6: list of 2 i32; 1 and -2
        *(0x1A, 0x15, 2),  # 7: set of 1 i32
        *(0x1B, 2, 0x58, 2, 1, *b"k", 4, 1, *b"l"),  # 8: map of 2, i32 to binary
        *(0x1B, 0),  # 9: map of none
        *(0x1C, 0x16, 1, 0),  # 10: struct of an i64 -1
        *(0x05, 80, 7),  # number 40, told by itself: i32 -4
        *(0x13, 200),  # 41: byte
        *(0x14, 5),  # 42: i16 -3
        0,
    ]
)
VALUES = {1: 150, 2: True, 3: False, 4: b"ab", 6: [1, -2], 10: {1: -1}, 40: -4, 41: 200, 42: -3}


def test_every_kind_of_value_is_read_or_passed_over():
    reader = CompactReader(EVERY_KIND + b"more")
    assert reader.struct() == VALUES
    assert reader.at == len(EVERY_KIND)


@pytest.mark.parametrize("length", range(len(EVERY_KIND)))
def test_data_that_ends_too_early_is_told(length):
    with pytest.raises(IndexError):
        CompactReader(EVERY_KIND[:length]).struct()


def test_long_lists_tell_their_length_by_itself():
    data = bytes([0x19, 0xF5, 15, *([2] * 15), 0])
    assert CompactReader(data).struct() == {1: [1] * 15}


@pytest.mark.parametrize("kind", [0, 13, 14, 15])
def test_kinds_that_there_are_not_are_refused(kind):
    with pytest.raises(ValueError, match=f"unknown type {kind}"):
        CompactReader(bytes([0x19, 0x10 | kind, 0, 0])).struct()


def test_structs_are_read_to_a_depth_and_no_further():
    def nested(depth):
        return bytes([0x1C] * depth + [0] * (depth + 1))

    CompactReader(nested(DEEPEST)).struct()
    with pytest.raises(ValueError, match="nested without end"):
        CompactReader(nested(DEEPEST + 1)).struct()


def test_numbers_have_64_bits_at_most():
    largest = bytes([0x16, *([0xFF] * 9), 0x01, 0])
    assert CompactReader(largest).struct() == {1: -(2**63)}
    with pytest.raises(ValueError, match="above 64 bits"):
        CompactReader(bytes([0x16, *([0xFF] * 10), 0x01, 0])).struct()
