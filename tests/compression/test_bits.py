import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression import bits
from edgesim.compression.errors import WireError

fields = st.lists(
    st.integers(0, 32).flatmap(lambda w: st.tuples(st.integers(0, 2**w - 1), st.just(w))),
    max_size=80,
)


def naive_bits(values, widths):
    """Little-endian bit string of the fields, one bit at a time."""
    return [
        value >> j & 1 for value, width in zip(values, widths, strict=True) for j in range(width)
    ]


@given(fields)
def test_fields_are_the_plain_bit_string_and_come_back(pairs):
    values = np.array([value for value, _ in pairs], np.uint64)
    widths = np.array([width for _, width in pairs], np.int64)
    packed = bits.pack_fields(values, widths)
    expected = naive_bits([v for v, _ in pairs], [w for _, w in pairs])
    assert len(packed) == -(-len(expected) // 8)
    assert np.unpackbits(packed, bitorder="little")[: len(expected)].tolist() == expected
    np.testing.assert_array_equal(bits.unpack_fields(packed, widths), values)


@given(st.integers(1, 8), st.data())
def test_equal_widths_are_the_same_bit_string(width, data):
    values = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=60))
    array = np.array(values, np.uint8)
    packed = bits.pack_equal(array, width)
    widths = np.full(len(values), width, np.int64)
    np.testing.assert_array_equal(packed, bits.pack_fields(array.astype(np.uint64), widths))
    np.testing.assert_array_equal(bits.unpack_equal(packed, width, len(values)), array)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40), st.binary(max_size=5))
def test_varints_come_back_and_leave_the_rest(numbers, rest):
    array = np.array(numbers, np.int64)
    packed = bits.pack_varints(array)
    data = np.concatenate([packed, np.frombuffer(rest, np.uint8)])
    values, used = bits.unpack_varints(data, len(numbers))
    np.testing.assert_array_equal(values, array)
    assert used == len(packed)


@pytest.mark.parametrize("data", [[], [0x80], [0x80] * 6 + [1], [0x80, 0x00], [0xFF] * 4 + [0x7F]])
def test_a_varint_cut_overlong_padded_or_above_32_bits_is_refused(data):
    with pytest.raises(WireError):
        bits.unpack_varints(np.array(data, np.uint8), 1)
