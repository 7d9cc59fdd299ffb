"""Packing of numbers of any bit width, one after the other, for the wire format.

All bit strings are little-endian: the first field starts at bit 0 of byte 0, and the lowest bit of
a field comes first. The last byte is filled up with zeros. No function loops over entries.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgesim.compression.errors import WireError

Bytes: TypeAlias = NDArray[np.uint8]

_ONE = np.uint64(1)
_WORD_BITS = np.uint64(63)  # mask: position of a bit within its 64-bit word


def pack_fields(values: NDArray[np.uint64], widths: NDArray[np.int64]) -> Bytes:
    """Pack each value into a field of its own width.

    Args:
        values: shape (K,), each below 2**width.
        widths: shape (K,), each in [0, 32].
    """
    ends = np.cumsum(widths)
    num_bits = int(ends[-1]) if len(ends) else 0
    words = np.zeros(num_bits // 64 + 2, "<u8")
    if num_bits:
        starts = ends - widths
        word, shift = starts >> 6, starts.astype(np.uint64) & _WORD_BITS
        first_of_word = np.flatnonzero(np.diff(word, prepend=-1))
        words[word[first_of_word]] = np.bitwise_or.reduceat(values << shift, first_of_word)
        # Two shifts, because one by 64 is undefined. At most one field straddles a word's end.
        spill = (values >> _ONE) >> (_WORD_BITS - shift)
        straddling = np.flatnonzero(spill)
        words[word[straddling] + 1] |= spill[straddling]
    return words.view(np.uint8)[: -(-num_bits // 8)]


def unpack_fields(data: Bytes, widths: NDArray[np.int64], start: int = 0) -> NDArray[np.uint64]:
    """Invert `pack_fields`: read fields from bit `start` of `data` on.

    Args:
        data: shape (B,).
        widths: shape (K,), each in [0, 32].
        start: the first field's first bit.
    """
    ends = np.cumsum(widths) + start % 8
    used = data[start // 8 : start // 8 + (-(-int(ends[-1]) // 8) if len(ends) else 0)]
    padded = np.zeros((len(used) // 8 + 2) * 8, np.uint8)
    padded[: len(used)] = used
    words = padded.view("<u8")
    starts = ends - widths
    word, shift = starts >> 6, starts.astype(np.uint64) & _WORD_BITS
    low = words[word] >> shift
    high = (words[word + 1] << _ONE) << (_WORD_BITS - shift)
    fields: NDArray[np.uint64] = (low | high) & ((_ONE << widths.astype(np.uint64)) - _ONE)
    return fields


def ends_in_zeros(data: Bytes, num_bits: int) -> bool:
    """Whether the unused bits of the last byte are zero, as packing leaves them.

    Args:
        data: ceil(num_bits / 8) bytes.
        num_bits: of the string.
    """
    return num_bits % 8 == 0 or int(data[-1]) >> num_bits % 8 == 0


def pack_equal(values: NDArray[np.uint8], width: int) -> Bytes:
    """Pack values, each below 2**width, into fields of one width in [1, 8].

    Eight fields fill `width` bytes; each eight are packed within one 64-bit word.
    """
    groups = np.zeros((-(-len(values) // 8), 8), np.uint8)
    groups.reshape(-1)[: len(values)] = values
    words = np.zeros(len(groups), "<u8")
    for place in range(8):
        words |= groups[:, place].astype(np.uint64) << np.uint64(width * place)
    packed = words.view(np.uint8).reshape(-1, 8)[:, :width].reshape(-1)
    return packed[: -(-len(values) * width // 8)]


def unpack_equal(data: Bytes, width: int, count: int) -> NDArray[np.uint8]:
    """Invert `pack_equal`; `data` holds at least count * width bits."""
    groups = np.zeros((-(-count // 8), 8), np.uint8)
    packed = np.zeros(len(groups) * width, np.uint8)
    packed[: len(data)] = data
    groups[:, :width] = packed.reshape(-1, width)
    words, mask = groups.view("<u8")[:, 0], np.uint64((1 << width) - 1)
    values = np.empty((len(groups), 8), np.uint8)
    for place in range(8):
        values[:, place] = (words >> np.uint64(width * place)) & mask
    return values.reshape(-1)[:count]


def pack_varints(numbers: NDArray[np.int64]) -> Bytes:
    """Write numbers in [0, 2**32) seven bits a byte, low first; all bytes but the last have bit 7.

    Source: unsigned LEB128, as in DWARF 5, section 7.6.
    """
    place = np.arange(5)
    groups = numbers[:, None] >> (7 * place)
    is_written = (groups > 0) | (place == 0)
    with_more_bit = (groups & 0x7F) | (0x80 * (groups > 0x7F))
    packed: Bytes = with_more_bit[is_written].astype(np.uint8)
    return packed


def unpack_varints(data: Bytes, count: int) -> tuple[NDArray[np.int64], int]:
    """Read the varints at the start of `data`.

    Returns:
        the numbers, shape (count,), below 2**32; how many bytes they took.

    Raises:
        WireError: a number that is cut short, too large, or longer than it needs to be.
    """
    head = data[: 5 * count]
    ends = np.flatnonzero(head < 0x80)[:count]
    if len(ends) < count:
        raise WireError(f"index table: {count} tensor counts expected, {len(ends)} found")
    lengths = np.diff(ends, prepend=-1)
    if (lengths > 5).any() or ((lengths > 1) & (head[ends] == 0)).any():
        raise WireError("index table: a tensor count is longer than it needs to be")
    used = int(ends[-1]) + 1 if count else 0
    place = np.arange(used) - np.repeat(ends - lengths + 1, lengths)
    groups = (head[:used].astype(np.int64) & 0x7F) << (7 * place)
    numbers = np.add.reduceat(groups, ends - lengths + 1)
    if (numbers >= 1 << 32).any():
        raise WireError("index table: a tensor count is above 32 bits")
    return numbers, used
