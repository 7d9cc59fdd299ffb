"""Which entries were kept: per tensor the shortest of bitmap, fixed width and Rice gap code.

A set of k positions out of n holds log2 C(n, k) bits if all sets are equally likely. Gaps between
random positions are nearly geometric, for which Rice's code is within a few per cent of that
(R. F. Rice, JPL Publication 79-22, 1979). Layout of the code, T tensors:

    T mode bytes      0 bitmap, 1 fixed width, 2 + b Rice with parameter b
    T counts k        as varints
    fields            one bit string over all tensors: per entry nothing (bitmap), its position in
                      ceil(log2 n) bits (fixed width), or the low b bits of its gap (Rice)
    flags             one bit string over all tensors: first every bitmap, n bits each; then per
                      Rice entry the rest of its gap, gap >> b, as that many zeros and a one

The gap of an entry is the number of positions skipped since the previous entry of its tensor. The
high parts of gaps stand apart from the low ones so that both sides work on whole arrays at once.

Symbols:
    n: entries of a tensor   k: kept entries of a tensor   b: Rice parameter   T: tensors
    K: kept entries over all tensors
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgesim.compression.bits import (
    Bytes,
    pack_fields,
    pack_varints,
    unpack_fields,
    unpack_varints,
)
from edgesim.compression.errors import WireError
from edgesim.compression.segments import Segments
from edgesim.learning.parameters import ParameterLayout

Ints: TypeAlias = NDArray[np.int64]

BITMAP, FIXED, RICE = 0, 1, 2


def encode_indices(indices: Ints, counts: Ints, layout: ParameterLayout) -> Bytes:
    """Encode kept positions.

    Args:
        indices: shape (K,), positions in the flat vector, ascending, each once.
        counts: shape (T,), how many of them lie in each tensor.
        layout: of the vector.
    """
    segments = Segments(counts)
    positions = indices - segments.spread(layout.offsets[:-1])
    gaps = _gaps_from_positions(positions, segments)
    modes = _shortest_modes(gaps, segments, layout)
    plan = _Plan.of(modes, segments, layout)
    fields = pack_fields(
        np.where(plan.is_fixed, positions, gaps & ((1 << plan.widths) - 1)).astype(np.uint64),
        plan.widths,
    )
    stops = np.cumsum((gaps >> plan.widths)[plan.is_rice] + 1) - 1 + plan.bitmap_bits
    flags = np.zeros(int(stops[-1]) + 1 if len(stops) else plan.bitmap_bits, np.uint8)
    flags[stops] = 1
    if plan.bitmap_bits:
        in_bitmap = plan.is_bitmap
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
    """Invert `encode_indices`, trusting nothing.

    Memory is bounded by a small multiple of the layout's size, however long the data.

    Args:
        data: the code, and nothing after it.
        num_values: K as the message's header has it.
        layout: of the vector.

    Returns:
        indices, shape (K,); counts, shape (T,).

    Raises:
        WireError: anything but a well-formed code of `num_values` positions in ascending order.
    """
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
    fields = unpack_fields(rest[:field_bytes], plan.widths).astype(np.int64)
    if 8 * (len(rest) - field_bytes) > plan.most_flag_bits + 7:
        raise WireError("indices: more bytes than the longest code of this layout")
    flags = np.unpackbits(rest[field_bytes:], bitorder="little")
    if len(flags) < plan.bitmap_bits:
        raise WireError(f"indices: {plan.bitmap_bits} bits of bitmap expected, {len(flags)} found")

    positions = _positions_from_gaps(fields, flags[plan.bitmap_bits :], plan, segments, layout)
    if plan.bitmap_bits:
        positions[plan.is_bitmap] = _positions_from_bitmaps(flags, plan, counts)
    return _checked_indices(positions, segments, layout), counts


def entropy_bytes(counts: Ints, layout: ParameterLayout) -> float:
    """Bytes that no index code can beat on average: sum over tensors of log2 C(n, k) / 8."""
    nats = sum(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        for n, k in zip(layout.sizes, counts.tolist(), strict=True)
    )
    return nats / math.log(2) / 8


@dataclass(frozen=True, eq=False, slots=True)
class _Plan:
    """What the mode of each tensor means for its entries; both directions derive it alike."""

    widths: Ints  # (K,), bits of an entry in the fields
    is_fixed: NDArray[np.bool_]  # (K,)
    is_rice: NDArray[np.bool_]  # (K,)
    is_bitmap: NDArray[np.bool_]  # (K,)
    has_bitmap: NDArray[np.bool_]  # (T,)
    bitmap_starts: Ints  # (T,), where a tensor's bitmap starts in the flags, if it has one
    bitmap_bits: int
    field_bits: int
    most_flag_bits: int  # gaps of a tensor add up to less than n, so their rests to n >> b

    @classmethod
    def of(cls, modes: Ints, segments: Segments, layout: ParameterLayout) -> _Plan:
        tensor_widths = np.maximum(modes - RICE, 0)
        tensor_widths[modes == FIXED] = _position_widths(layout)[modes == FIXED]
        entry_modes = segments.spread(modes)
        has_bitmap = modes == BITMAP
        sizes = layout.size_array
        bitmap_sizes = np.where(has_bitmap, sizes, 0)
        rice_flags = np.where(modes >= RICE, segments.counts + (sizes >> tensor_widths), 0)
        return cls(
            widths=segments.spread(tensor_widths),
            is_fixed=entry_modes == FIXED,
            is_rice=entry_modes >= RICE,
            is_bitmap=entry_modes == BITMAP,
            has_bitmap=has_bitmap,
            bitmap_starts=np.cumsum(bitmap_sizes) - bitmap_sizes,
            bitmap_bits=int(bitmap_sizes.sum()),
            field_bits=int((tensor_widths * segments.counts).sum()),
            most_flag_bits=int((bitmap_sizes + rice_flags).sum()),
        )


@lru_cache(maxsize=8)
def _position_widths(layout: ParameterLayout) -> Ints:
    """ceil(log2 n) of each tensor, exactly; not to be changed."""
    widths = np.array([(n - 1).bit_length() for n in layout.sizes], np.int64)
    widths.flags.writeable = False
    return widths


def _gaps_from_positions(positions: Ints, segments: Segments) -> Ints:
    """Positions skipped before each entry, counted anew in each tensor."""
    gaps = np.diff(positions, prepend=-1) - 1
    starts = segments.bounds[:-1][segments.counts > 0]
    gaps[starts] = positions[starts]
    return gaps


def _shortest_modes(gaps: Ints, segments: Segments, layout: ParameterLayout) -> Ints:
    """Mode byte of the shortest code of each tensor.

    Rice takes b + 1 + (gap >> b) bits an entry, which lies within one bit of b + 1 + gap / 2**b.
    That is least near 2**b = ln 2 times the mean gap, so b and its two neighbours are tried.
    """
    k, n = segments.counts, layout.size_array
    widths = _position_widths(layout)
    mean_gaps = segments.sums(gaps) / np.maximum(k, 1)
    likely = np.frexp(mean_gaps * math.log(2))[1].astype(np.int64) - 1  # floor(log2), exactly
    candidates = [np.clip(likely + step, 0, widths) for step in (-1, 0, 1)]
    rice_bits = [k * (b + 1) + segments.sums(gaps >> segments.spread(b)) for b in candidates]
    modes = np.stack(
        [np.full_like(k, BITMAP), np.full_like(k, FIXED), *(b + RICE for b in candidates)]
    )
    best = np.argmin(np.stack([n, k * widths, *rice_bits]), axis=0)
    shortest: Ints = np.take_along_axis(modes, best[None], axis=0)[0]
    return shortest


def _check_table(modes: Ints, counts: Ints, num_values: int, layout: ParameterLayout) -> None:
    if (modes - RICE > _position_widths(layout)).any():
        raise WireError("index table: a mode that no tensor of this layout can have")
    if (counts > layout.size_array).any():
        raise WireError("index table: a tensor has more kept entries than entries")
    if int(counts.sum()) != num_values:
        raise WireError(f"index table: {counts.sum()} kept entries, {num_values} in the header")


def _positions_from_gaps(
    fields: Ints, flags: Bytes, plan: _Plan, segments: Segments, layout: ParameterLayout
) -> Ints:
    """Fill in the positions of Rice entries; those of other entries stay as in `fields`."""
    stops = np.flatnonzero(flags)
    if len(stops) != int(plan.is_rice.sum()):
        raise WireError(f"indices: {plan.is_rice.sum()} gaps expected, {len(stops)} found")
    if len(flags) - (stops[-1] + 1 if len(stops) else 0) > 7:
        raise WireError("indices: bytes left over after the last gap")
    quotients = np.zeros_like(fields)
    quotients[plan.is_rice] = np.diff(stops, prepend=-1) - 1
    sizes = segments.spread(layout.size_array)
    if (quotients > sizes >> plan.widths).any():  # also keeps the sums below from overflowing
        raise WireError("indices: a gap leads beyond its tensor")
    gaps = (quotients << plan.widths) | fields
    running = np.concatenate(([0], np.cumsum(gaps + 1)))
    positions = running[1:] - segments.spread(running[segments.bounds[:-1]]) - 1
    return np.where(plan.is_rice, positions, fields)


def _positions_from_bitmaps(flags: Bytes, plan: _Plan, counts: Ints) -> Ints:
    set_bits = np.flatnonzero(flags[: plan.bitmap_bits])
    tensors = np.flatnonzero(plan.has_bitmap)
    bounds = np.append(plan.bitmap_starts[tensors], plan.bitmap_bits)
    found = np.diff(np.searchsorted(set_bits, bounds))
    if not np.array_equal(found, counts[tensors]):
        raise WireError("indices: a bitmap has another number of bits set than its count says")
    positions: Ints = set_bits - np.repeat(bounds[:-1], found)
    return positions


def _checked_indices(positions: Ints, segments: Segments, layout: ParameterLayout) -> Ints:
    if (positions >= segments.spread(layout.size_array)).any():
        raise WireError("indices: a position lies beyond its tensor")
    indices = positions + segments.spread(layout.offsets[:-1])
    if (np.diff(indices) <= 0).any():
        raise WireError("indices: positions are not in ascending order")
    return indices
