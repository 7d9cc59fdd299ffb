"""The code of `index_code.py`, compiled: the same bytes in less time.

The functions loop over the entries, one tensor after the other. They check what keeps them within
their arrays. `index_code.py` checks the rest, and says what is wrong with a code.

Symbols:
    n: entries of a tensor   k: kept entries of a tensor   b: Rice parameter   T: tensors
    K: kept entries over all tensors
"""

from __future__ import annotations

import math

import numpy as np

from edgesim.compiled import compiled
from edgesim.compression.bits import Bytes
from edgesim.compression.index_modes import BITMAP, FIXED, RICE, Ints

_LN_2 = math.log(2)


@compiled
def write_code(indices: Ints, counts: Ints, offsets: Ints, widths: Ints) -> Bytes:
    """Code of kept positions.

    Args:
        indices: shape (K,), positions in the flat vector, ascending, each once.
        counts: shape (T,), how many of them lie in each tensor.
        offsets: shape (T + 1,), start of each tensor in the flat vector, then its end.
        widths: shape (T,), bits of a position in each tensor.

    Returns:
        the code; an empty array if the positions do not ascend within the tensors of the counts.
    """
    if counts.sum() != len(indices):
        return np.empty(0, np.uint8)
    num_tensors = len(counts)
    modes = np.empty(num_tensors, np.int64)
    table_bytes, field_bits, bitmap_bits, rice_bits, first = num_tensors, 0, 0, 0, 0
    for t in range(num_tensors):
        entries = indices[first : first + counts[t]]
        first += counts[t]
        if not _ascends(entries, counts[t], offsets[t], offsets[t + 1]):
            return np.empty(0, np.uint8)
        modes[t], high_parts = _shortest(entries, offsets[t], offsets[t + 1], widths[t])
        table_bytes += _varint_bytes(counts[t])
        field_bits += counts[t] * _field_width(modes[t], widths[t])
        if modes[t] == BITMAP:
            bitmap_bits += offsets[t + 1] - offsets[t]
        elif modes[t] >= RICE:
            rice_bits += counts[t] + high_parts
    flags_at = table_bytes + (field_bits + 7) // 8
    code = np.zeros(flags_at + (bitmap_bits + rice_bits + 7) // 8, np.uint8)
    _write_table(modes, counts, code)
    field_bit, bitmap_bit = 8 * table_bytes, 8 * flags_at
    rice_bit, first = bitmap_bit + bitmap_bits, 0
    for t in range(num_tensors):
        entries, start = indices[first : first + counts[t]], offsets[t]
        first += counts[t]
        width = _field_width(modes[t], widths[t])
        if modes[t] == BITMAP:
            for index in entries:
                _set(code, bitmap_bit + index - start)
            bitmap_bit += offsets[t + 1] - start
        elif modes[t] == FIXED:
            for i in range(len(entries)):
                _write_field(code, field_bit + i * width, width, entries[i] - start)
        else:
            rice_bit = _write_gaps(code, field_bit, rice_bit, width, start, entries)
        field_bit += width * len(entries)
    return code


@compiled
def _write_gaps(
    code: Bytes, field_bit: int, rice_bit: int, width: int, start: int, entries: Ints
) -> int:
    """Write Rice's code of a tensor's entries; returns the bit after the last high part."""
    expected = start
    for i in range(len(entries)):
        gap = entries[i] - expected
        _write_field(code, field_bit + i * width, width, gap & ((1 << width) - 1))
        _set(code, rice_bit + (gap >> width))
        expected, rice_bit = entries[i] + 1, rice_bit + (gap >> width) + 1
    return rice_bit


@compiled
def read_code(code: Bytes, offsets: Ints, widths: Ints, indices: Ints, counts: Ints) -> bool:
    """Read a code as far as it goes, into positions that ascend; says whether it read them all.

    A code that no writer writes may be read too: then `write_code` gives another one for what was
    read.

    Args:
        code: the code, and nothing after it.
        offsets: shape (T + 1,), start of each tensor in the flat vector, then its end.
        widths: shape (T,), bits of a position in each tensor.
        indices: shape (K,); overwritten.
        counts: shape (T,); overwritten.
    """
    table_bytes = _read_counts(code, offsets, counts)
    if table_bytes == 0 or counts.sum() != len(indices):
        return False
    modes, sizes = code[: len(counts)].astype(np.int64), np.diff(offsets)
    field_bits, bitmap_bits = 0, 0
    for t in range(len(counts)):
        if modes[t] - RICE > widths[t]:
            return False
        field_bits += counts[t] * _field_width(modes[t], widths[t])
        bitmap_bits += sizes[t] if modes[t] == BITMAP else 0
    field_bit = 8 * table_bytes
    bitmap_bit = field_bit + (field_bits + 7) // 8 * 8
    rice_bit, first = bitmap_bit + bitmap_bits, 0
    if rice_bit > 8 * len(code):
        return False
    for t in range(len(counts)):
        entries = indices[first : first + counts[t]]
        first += counts[t]
        width = _field_width(modes[t], widths[t])
        if modes[t] == BITMAP:
            _read_bitmap(code, bitmap_bit, sizes[t], entries)
            bitmap_bit += sizes[t]
        elif modes[t] == FIXED:
            for i in range(len(entries)):
                entries[i] = _read_field(code, field_bit + i * width, width)
        else:
            rice_bit = _read_gaps(code, field_bit, rice_bit, width, sizes[t], entries)
        field_bit += width * len(entries)
        entries += offsets[t]
        if not _ascends(entries, counts[t], offsets[t], offsets[t + 1]):
            return False
    return True


@compiled
def _read_bitmap(code: Bytes, bitmap_bit: int, size: int, positions: Ints) -> None:
    """Positions of set bits; `size`, which is none, for those that are lacking."""
    position = -1
    for i in range(len(positions)):
        position = _next_set(code, bitmap_bit + position + 1, bitmap_bit + size) - bitmap_bit
        positions[i] = position


@compiled
def _read_gaps(
    code: Bytes, field_bit: int, rice_bit: int, width: int, size: int, positions: Ints
) -> int:
    """Positions by Rice's code; `size`, which is none, from a gap on that leads beyond the tensor.

    Returns:
        the bit after the last one that was read of the high parts.
    """
    end, expected = 8 * len(code), 0
    for i in range(len(positions)):
        stop = _next_set(code, rice_bit, end)
        high = stop - rice_bit
        if stop == end or high > size >> width:
            positions[i:] = size
            return end
        gap = high << width | _read_field(code, field_bit + i * width, width)
        positions[i] = min(expected + gap, size)
        expected, rice_bit = positions[i] + 1, stop + 1
    return rice_bit


@compiled
def _ascends(entries: Ints, count: int, start: int, end: int) -> bool:
    """Whether the entries are so many, and ascend from `start` on to before `end`."""
    least, ascends = start, len(entries) == count
    for index in entries:
        ascends &= least <= index < end
        least = index + 1
    return ascends


@compiled
def _shortest(entries: Ints, start: int, end: int, width: int) -> tuple[int, int]:
    """Mode of the shortest code of a tensor, and the sum of its gaps' high parts if it is Rice's.

    The same choice as `_shortest_modes` of `index_code.py`.
    """
    k, n = len(entries), end - start
    mean_gap = (entries[-1] + 1 - start - k) / k if k else 0.0
    likely = math.frexp(mean_gap * _LN_2)[1] - 1
    b0 = min(max(likely - 1, 0), width)
    b1, b2 = min(max(likely, 0), width), min(max(likely + 1, 0), width)
    high0, high1, high2, expected = 0, 0, 0, start
    for index in entries:
        gap = index - expected
        high0, high1, high2 = high0 + (gap >> b0), high1 + (gap >> b1), high2 + (gap >> b2)
        expected = index + 1
    mode, high, best = BITMAP, 0, n
    if k * width < best:
        mode, best = FIXED, k * width
    for b, candidate in ((b0, high0), (b1, high1), (b2, high2)):
        if k * (b + 1) + candidate < best:
            mode, high, best = RICE + b, candidate, k * (b + 1) + candidate
    return mode, high


@compiled
def _field_width(mode: int, width: int) -> int:
    """Bits of an entry in the fields."""
    if mode == BITMAP:
        return 0
    return width if mode == FIXED else mode - RICE


@compiled
def _varint_bytes(number: int) -> int:
    length = 1
    while number > 0x7F:
        length, number = length + 1, number >> 7
    return length


@compiled
def _write_table(modes: Ints, counts: Ints, code: Bytes) -> None:
    at = len(modes)
    for t in range(len(modes)):
        code[t] = modes[t]
        number = counts[t]
        while number > 0x7F:
            code[at] = 0x80 | (number & 0x7F)
            at, number = at + 1, number >> 7
        code[at] = number
        at += 1


@compiled
def _read_counts(code: Bytes, offsets: Ints, counts: Ints) -> int:
    """Bytes of the table; 0 if it is cut short or a tensor has more kept entries than entries."""
    at = len(counts)
    for t in range(len(counts)):
        number, shift, is_read = 0, 0, False
        while not is_read:
            if at >= len(code) or shift > 28:
                return 0
            number |= (int(code[at]) & 0x7F) << shift
            is_read, at, shift = code[at] <= 0x7F, at + 1, shift + 7
        if number > offsets[t + 1] - offsets[t]:
            return 0
        counts[t] = number
    return at


@compiled
def _set(code: Bytes, bit: int) -> None:
    code[bit >> 3] |= np.uint8(1 << (bit & 7))


@compiled
def _next_set(code: Bytes, bit: int, end: int) -> int:
    """Place of the first set bit from `bit` on, or `end`."""
    while bit < end:
        byte = code[bit >> 3] >> (bit & 7)
        if byte == 0:
            bit = (bit | 7) + 1
        else:
            while byte & 1 == 0:
                byte, bit = byte >> 1, bit + 1
            return min(bit, end)
    return end


@compiled
def _write_field(code: Bytes, bit: int, width: int, value: int) -> None:
    while width > 0:
        shift = bit & 7
        code[bit >> 3] |= np.uint8((value << shift) & 0xFF)
        taken = 8 - shift
        value, bit, width = value >> taken, bit + taken, width - taken


@compiled
def _read_field(code: Bytes, bit: int, width: int) -> int:
    value, read = 0, 0
    while read < width:
        shift = bit & 7
        value |= int(code[bit >> 3] >> shift) << read
        read, bit = read + 8 - shift, bit + 8 - shift
    return value & ((1 << width) - 1)
