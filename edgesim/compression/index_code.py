"""Code of the kept positions: per tensor the shortest of bitmap, fixed width and Rice gap code.

A set of k positions out of n holds log2 C(n, k) bits if all sets are equally likely. Gaps between
random positions are nearly geometric, for which Rice's code is within a few per cent of that
(R. F. Rice, JPL Publication 79-22, 1979). Layout of the code, T tensors:

    T mode bytes      0 bitmap, 1 fixed width, 2 + b Rice with parameter b
    T counts k        as varints
    fields            one bit string over all tensors: per entry nothing (bitmap), its position in
                      ceil(log2 n) bits (fixed width), or the low b bits of its gap (Rice)
    flags             one bit string over all tensors: first every bitmap, n bits each; then per
                      Rice entry the rest of its gap, gap >> b, as that many zeros and a one

The gap of an entry is the number of positions skipped since the previous entry of its tensor. High
and low parts of the gaps are stored separately, so that encoder and decoder can work on
whole arrays. Compiled code, where it is due (compilation.py), goes entry by entry instead.

Symbols:
    n: entries of a tensor   k: kept entries of a tensor   b: Rice parameter   T: tensors
    K: kept entries over all tensors
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np

from edgesim.compression.bits import (
    Bytes,
    ends_in_zeros,
    pack_fields,
    pack_varints,
    unpack_fields,
    unpack_varints,
)
from edgesim.compression.compilation import is_compiled_code_due
from edgesim.compression.errors import CompressionError, WireError
from edgesim.compression.index_modes import BITMAP, FIXED, RICE, Ints
from edgesim.compression.segments import Segments
from edgesim.learning.parameters import ParameterLayout

BLOCK = 8192  # entries that are worked on at a time: arrays of them stay in the cache

_NOT_ASCENDING = "the positions of a payload do not ascend within the tensors of its counts"
_WRONG_BITMAP = "indices: a bitmap has another number of bits set than its count says"


def encode_indices(indices: Ints, counts: Ints, layout: ParameterLayout) -> Bytes:
    """Encode kept positions.

    Args:
        indices: shape (K,), positions in the flat vector, ascending, each once.
        counts: shape (T,), how many of them lie in each tensor.
        layout: of the vector.

    Raises:
        CompressionError: the positions do not ascend within the tensors of the counts.
    """
    if (compiled := _compiled()) is not None:
        code: Bytes = compiled.write_code(indices, counts, layout.offsets, _position_widths(layout))
        if not len(code):
            raise CompressionError(_NOT_ASCENDING)
        return code.copy()  # in numpy's memory, by which payloads are counted
    if not _ascends(indices, counts, layout):
        raise CompressionError(_NOT_ASCENDING)
    segments = Segments(counts)
    gaps = _gaps(indices, 0, segments, layout)
    modes = _shortest_modes(indices, segments, layout, gaps)
    plan = _Plan.of(modes, segments, layout)
    positions = indices - segments.spread(layout.offsets[:-1])
    widths, entry_modes = segments.spread(plan.widths), segments.spread(modes)
    is_rice, in_bitmap = entry_modes >= RICE, entry_modes == BITMAP
    fields = pack_fields(
        np.where(entry_modes == FIXED, positions, gaps & ((1 << widths) - 1)).astype(np.uint64),
        widths,
    )
    stops = np.cumsum((gaps >> widths)[is_rice] + 1) - 1 + plan.bitmap_bits
    flags = np.zeros(int(stops[-1]) + 1 if len(stops) else plan.bitmap_bits, np.uint8)
    flags[stops] = 1
    if plan.bitmap_bits:
        flags[positions[in_bitmap] + segments.spread(plan.bitmap_starts)[in_bitmap]] = 1
    return np.concatenate(
        [
            modes.astype(np.uint8),
            pack_varints(counts),
            fields,
            np.packbits(flags, bitorder="little"),
        ]
    )


def decode_indices(data: Bytes, num_values: int, layout: ParameterLayout) -> tuple[Ints, Ints]:
    """Invert `encode_indices`; all of `data` is checked.

    Only the code that `encode_indices` writes is accepted: encoding the result gives `data` again.
    Memory beside the result: the code once more in compiled code; in numpy one byte for each flag
    of the data, at most two flags per entry of the layout, the positions of set flags, and arrays
    of `BLOCK` entries.

    Args:
        data: the code, and nothing after it.
        num_values: K as the message's header has it.
        layout: of the vector.

    Returns:
        indices, shape (K,); counts, shape (T,).

    Raises:
        WireError: `data` is not the shortest code of `num_values` positions in ascending order.
    """
    if (compiled := _compiled()) is not None and 0 <= num_values <= layout.numel:
        read = _read_compiled(compiled, data, num_values, layout)
        if read is not None:
            return read
    modes = data[: layout.num_tensors].astype(np.int64)
    if len(modes) < layout.num_tensors:
        raise WireError("index table: cut short")
    counts, used = unpack_varints(data[layout.num_tensors :], layout.num_tensors)
    rest = data[layout.num_tensors + used :]
    _check_table(modes, counts, num_values, layout)

    segments = Segments(counts)
    plan = _Plan.of(modes, segments, layout)
    field_bytes = -(-plan.field_bits // 8)
    if len(rest) < field_bytes:
        raise WireError(f"indices: {field_bytes} bytes of fields expected, {len(rest)} found")
    if not ends_in_zeros(rest[:field_bytes], plan.field_bits):
        raise WireError("indices: bits after the last field that are not zero")
    if 8 * (len(rest) - field_bytes) > plan.most_flag_bits + 7:
        raise WireError("indices: more bytes than the longest code of this layout")
    marks = _Marks.of(np.unpackbits(rest[field_bytes:], bitorder="little"), plan, segments)
    indices = _read_entries(rest[:field_bytes], marks, plan, segments, layout)
    if not np.array_equal(modes, _shortest_modes(indices, segments, layout)):
        raise WireError("indices: a tensor's mode is not the shortest one")
    return indices, counts


def _compiled() -> ModuleType | None:
    """The compiled code, if it is due."""
    if not is_compiled_code_due():
        return None
    from edgesim.compression import compiled_index_code  # loads numba

    return compiled_index_code


def _read_compiled(
    compiled: ModuleType, data: Bytes, num_values: int, layout: ParameterLayout
) -> tuple[Ints, Ints] | None:
    """What a code means; None if it is not the code that `encode_indices` writes."""
    indices, counts = np.empty(num_values, np.int64), np.empty(layout.num_tensors, np.int64)
    vector = layout.offsets, _position_widths(layout)
    if not compiled.read_code(data, *vector, indices, counts):
        return None
    for array in (indices, counts):
        array.setflags(write=False)  # as in payloads: numba compiles anew for read-only arrays
    again = compiled.write_code(indices, counts, *vector)
    return (indices, counts) if np.array_equal(again, data) else None


def _ascends(indices: Ints, counts: Ints, layout: ParameterLayout) -> bool:
    """Whether positions ascend, with as many in each tensor as its count says, and none outside."""
    if len(indices) != counts.sum() or not (indices[1:] > indices[:-1]).all():
        return False
    return np.array_equal(np.diff(np.searchsorted(indices, layout.offsets)), counts)


def entropy_bytes(counts: Ints, layout: ParameterLayout) -> float:
    """Bytes that no index code can beat on average: sum over tensors of log2 C(n, k) / 8."""
    nats = sum(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        for n, k in zip(layout.sizes, counts.tolist(), strict=True)
    )
    return nats / math.log(2) / 8


@dataclass(frozen=True, eq=False, slots=True)
class _Plan:
    """Sizes that follow from the mode of each tensor; encoder and decoder derive them alike."""

    modes: Ints  # (T,)
    widths: Ints  # (T,), bits of an entry in the fields
    bitmap_starts: Ints  # (T,), where a tensor's bitmap starts in the flags, if it has one
    bitmap_bits: int
    field_bits: int
    num_rice: int  # entries with a gap code
    most_flag_bits: int  # gaps sum to less than n; their high parts to at most n >> b

    @classmethod
    def of(cls, modes: Ints, segments: Segments, layout: ParameterLayout) -> _Plan:
        widths = np.maximum(modes - RICE, 0)
        widths[modes == FIXED] = _position_widths(layout)[modes == FIXED]
        sizes = layout.size_array
        bitmap_sizes = np.where(modes == BITMAP, sizes, 0)
        rice_flags = np.where(modes >= RICE, segments.counts + (sizes >> widths), 0)
        return cls(
            modes=modes,
            widths=widths,
            bitmap_starts=np.cumsum(bitmap_sizes) - bitmap_sizes,
            bitmap_bits=int(bitmap_sizes.sum()),
            field_bits=int((widths * segments.counts).sum()),
            num_rice=int(segments.counts[modes >= RICE].sum()),
            most_flag_bits=int((bitmap_sizes + rice_flags).sum()),
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Marks:
    """Places of the flags that are set."""

    bitmap: Ints  # ascending, counted from the first bitmap on
    rice: Ints  # ascending, counted from the end of the bitmaps on

    @classmethod
    def of(cls, flags: Bytes, plan: _Plan, segments: Segments) -> _Marks:
        """Find the set flags.

        Raises:
            WireError: the number of set flags differs from the counts.
        """
        if len(flags) < plan.bitmap_bits:
            raise WireError(
                f"indices: {plan.bitmap_bits} bits of bitmap expected, {len(flags)} found"
            )
        in_bitmaps, in_gaps = flags[: plan.bitmap_bits], flags[plan.bitmap_bits :]
        num_gaps = np.count_nonzero(in_gaps)
        if num_gaps != plan.num_rice:
            raise WireError(f"indices: {plan.num_rice} gaps expected, {num_gaps} found")
        if np.count_nonzero(in_bitmaps) > segments.num_entries:
            raise WireError(_WRONG_BITMAP)
        marks = cls(np.flatnonzero(in_bitmaps), np.flatnonzero(in_gaps))
        if len(in_gaps) - (marks.rice[-1] + 1 if num_gaps else 0) > 7:
            raise WireError("indices: bytes left over after the last gap")
        tensors = np.flatnonzero(plan.modes == BITMAP)
        bounds = np.append(plan.bitmap_starts[tensors], plan.bitmap_bits)
        found = np.diff(np.searchsorted(marks.bitmap, bounds))
        if not np.array_equal(found, segments.counts[tensors]):
            raise WireError(_WRONG_BITMAP)
        return marks


@lru_cache(maxsize=8)
def _position_widths(layout: ParameterLayout) -> Ints:
    """ceil(log2 n) of each tensor, exact. The result is shared: do not change it."""
    widths = np.array([(n - 1).bit_length() for n in layout.sizes], np.int64)
    widths.flags.writeable = False
    return widths


def _gaps(indices: Ints, start: int, segments: Segments, layout: ParameterLayout) -> Ints:
    """Positions skipped before each entry of a block, counted from the start of each tensor.

    Args:
        indices: shape (K,), of all entries.
        start: of the block.
        segments: the block's share of each tensor.
        layout: of the vector.
    """
    block = indices[start : start + segments.num_entries]
    before = int(indices[start - 1]) if start else -1
    gaps = np.diff(block, prepend=before) - 1
    # An entry is the first of its tensor if the one before lies in another.
    tensors = np.flatnonzero(segments.counts)
    firsts, offsets = segments.bounds[tensors], layout.offsets[tensors]
    is_first = np.append(before, block)[firsts] < offsets
    gaps[firsts[is_first]] = block[firsts[is_first]] - offsets[is_first]
    return gaps


def _shortest_modes(
    indices: Ints, segments: Segments, layout: ParameterLayout, known_gaps: Ints | None = None
) -> Ints:
    """Mode byte of the shortest code of each tensor; the lowest one of equally short codes.

    Rice takes b + 1 + (gap >> b) bits an entry, which lies within one bit of b + 1 + gap / 2**b.
    That is least near 2**b = ln 2 times the mean gap, so b and its two neighbours are tried.
    """
    k, n = segments.counts, layout.size_array
    widths = _position_widths(layout)
    # The gaps of a tensor are the positions up to its last entry that are not entries.
    lasts = indices[segments.bounds[1:] - 1] if len(indices) else np.zeros_like(k)
    mean_gaps = np.where(k > 0, lasts + 1 - layout.offsets[:-1] - k, 0) / np.maximum(k, 1)
    likely = np.frexp(mean_gaps * math.log(2))[1].astype(np.int64) - 1  # floor(log2), exactly
    b_3T = np.clip(likely + np.array([[-1], [0], [1]]), 0, widths)
    bits_3T = k * (b_3T + 1)
    for start, within in segments.blocks(BLOCK):
        if known_gaps is None:
            gaps = _gaps(indices, start, within, layout)
        else:
            gaps = known_gaps[start : start + within.num_entries]
        there = np.flatnonzero(within.counts)
        high_3K = gaps >> np.repeat(b_3T, within.counts, axis=1)
        bits_3T[:, there] += np.add.reduceat(high_3K, within.bounds[there], axis=1)
    modes = np.concatenate([np.full((1, len(k)), BITMAP), np.full((1, len(k)), FIXED), b_3T + RICE])
    best = np.argmin(np.concatenate([[n, k * widths], bits_3T]), axis=0)
    shortest: Ints = np.take_along_axis(modes, best[None], axis=0)[0]
    return shortest


def _check_table(modes: Ints, counts: Ints, num_values: int, layout: ParameterLayout) -> None:
    if (modes - RICE > _position_widths(layout)).any():
        raise WireError("index table: a mode that no tensor of this layout can have")
    if (counts > layout.size_array).any():
        raise WireError("index table: a tensor has more kept entries than entries")
    if int(counts.sum()) != num_values:
        raise WireError(f"index table: {counts.sum()} kept entries, {num_values} in the header")


def _read_entries(
    data: Bytes, marks: _Marks, plan: _Plan, segments: Segments, layout: ParameterLayout
) -> Ints:
    """Decode the positions in the flat vector from the fields of `data` and the set flags."""
    indices = np.empty(segments.num_entries, np.int64)
    sizes, offsets = layout.size_array, layout.offsets[:-1]
    field_bit = bitmap_mark = rice_mark = 0
    for start, within in segments.blocks(BLOCK):
        widths, modes = within.spread(plan.widths), within.spread(plan.modes)
        fields = unpack_fields(data, widths, field_bit).astype(np.int64)
        field_bit += int(widths.sum())
        is_rice, in_bitmap = modes >= RICE, modes == BITMAP

        num_rice = int(np.count_nonzero(is_rice))
        stops = marks.rice[rice_mark : rice_mark + num_rice]
        before = int(marks.rice[rice_mark - 1]) if rice_mark else -1
        quotients = np.zeros_like(fields)
        quotients[is_rice] = np.diff(stops, prepend=before) - 1
        rice_mark += num_rice
        if (quotients > within.spread(sizes) >> widths).any():  # also keeps sums from overflowing
            raise WireError("indices: a gap leads beyond its tensor")
        steps = ((quotients << widths) | fields) + 1
        before = int(indices[start - 1]) if start else -1
        positions = np.where(is_rice, _running(steps, within, before - offsets), fields)

        num_marks = int(np.count_nonzero(in_bitmap))
        set_bits = marks.bitmap[bitmap_mark : bitmap_mark + num_marks]
        positions[in_bitmap] = set_bits - within.spread(plan.bitmap_starts)[in_bitmap]
        bitmap_mark += num_marks

        if (positions >= within.spread(sizes)).any():
            raise WireError("indices: a position lies beyond its tensor")
        block = positions + within.spread(offsets)
        if (np.diff(block, prepend=before) <= 0).any():
            raise WireError("indices: positions are not in ascending order")
        indices[start : start + len(block)] = block
    return indices


def _running(steps: Ints, segments: Segments, last_positions: Ints) -> Ints:
    """Running sums of steps between positions, per tensor.

    Args:
        steps: shape (K,), from one position to the next; the first step of a tensor starts at -1.
        segments: the entries' tensors.
        last_positions: shape (T,), of the entry before the first step; negative if it lies in
            another tensor.
    """
    sums = np.concatenate(([0], np.cumsum(steps)))
    bases = np.maximum(last_positions, -1) - sums[segments.bounds[:-1]]
    positions: Ints = sums[1:] + segments.spread(bases)
    return positions
