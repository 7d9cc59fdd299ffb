"""Register tiles of integer products of bytes.

One instruction of VNNI, vpdpbusd, multiplies 32 unsigned bytes by 32 signed ones, or 64 by 64 where
vectors have 512 bits, and adds the products four by four to sums of 32 bits: twice, or four times,
what `multiply_add.py` does in the same time. Codes
are unsigned and weights signed, so codes need not be widened; their zero point z comes in by the
sums' initial values, for sum (q - z) w = sum q w - z sum w. On the way sums may leave 32 bits and
wrap round; what they come to doesn't (`MAX_TERMS`). Where there is no VNNI the same products are
written out in plain vector operations: as exact, not as fast.

Symbols:
    tile: PIXELS x LANES sums, int32, pixel after pixel
    quad: four consecutive terms of each sum, multiplied by one instruction
    segment: a run of quads that are consecutive in the image
"""

from __future__ import annotations

from functools import cache

import numpy as np
from llvmlite import ir
from numba import njit

from edgesim.quant.kernels.arrays import Int8, Int32, Int64, UInt8
from edgesim.quant.kernels.instructions import (
    I32,
    LANES,
    I32x8,
    I32x16,
    Loop,
    add_dot_products,
    broadcast,
    constant,
    has_dot_product,
    has_wide_dot_product,
    instruction,
    load,
    starts,
    store,
    store_scaled,
)
from edgesim.quant.kernels.products.segments import add_segments, places_of, zeros
from edgesim.quant.kernels.products.tile import Tile

# A sum is added to every few cycles only, so some ten have to be under way: 12 vectors either way.
_SUMS = I32x16 if has_wide_dot_product() else I32x8
_PARTS = LANES // _SUMS.count  # vectors of a pixel's sums
PIXELS = 12 // _PARTS
TILE = Tile(pixels=PIXELS, terms=4, entry_bytes=1)

_QUAD_BYTES = 4 * LANES  # of weights


@cache
def dot_product_is_native() -> bool:
    """Whether tiles are computed by the processor's own instruction, and rightly.

    Compiles a small tile and compares it with numpy, once in a process.
    """
    if not has_dot_product():
        return False
    quads, zero_point = 3, 131
    image = (np.arange(80) * 59 % 256).astype(np.uint8)
    weights = (np.arange(quads * _QUAD_BYTES) * 37 % 255 - 127).astype(np.int8)
    bases = np.arange(PIXELS, dtype=np.int64) * 5
    segments = np.array([[2, quads]], dtype=np.int64)
    read = image[bases[:, None] + 2 + np.arange(4 * quads)].astype(np.int64) - zero_point
    by_lane = weights.reshape(quads, LANES, 4).transpose(0, 2, 1).reshape(4 * quads, LANES)
    expected = read @ by_lane.astype(np.int64)
    return bool(np.array_equal(_one_tile(image, bases, segments, weights, zero_point), expected))


@njit(nogil=True, cache=True)
def _one_tile(image: UInt8, bases: Int64, segments: Int64, weights: Int8, zero_point: int) -> Int32:
    initial = np.empty(LANES, np.int32)
    subtract_zero_point(weights, 0, len(weights) // _QUAD_BYTES, zero_point, initial, 0)
    sums = np.empty((PIXELS, LANES), np.int32)
    sum_tile(image, bases, 0, 0, segments, 0, len(segments), weights, 0, initial, 0, sums, 0)
    return sums


@instruction
def subtract_zero_point(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first_weight: ir.Value,
    quads: ir.Value,
    zero_point: ir.Value,
    initial: ir.Value,
    first_initial: ir.Value,
) -> None:
    """The initial sums of a panel: initial[lane] = - zero_point * sum of the lane's weights.

    Args:
        builder: of the caller's code.
        weights: int8, as tiles read them, from `first_weight`.
        first_weight: index.
        quads: number of them.
        zero_point: 0 to 255.
        initial: int32; 16 of them, from `first_initial`, are written.
        first_initial: index.
    """
    four = builder.trunc(builder.mul(zero_point, constant(0x01010101)), I32)
    spread = broadcast(builder, four, _SUMS.count)
    loop = Loop(builder, constant(0), quads, zeros(_SUMS, _PARTS))
    row = builder.gep(
        weights, [builder.add(first_weight, builder.mul(loop.index, constant(_QUAD_BYTES)))]
    )
    totals = loop.close(
        [
            add_dot_products(builder, total, spread, part)
            for total, part in zip(loop.values, _row(builder, row), strict=True)
        ]
    )
    for total, place in zip(totals, _places(builder, initial, first_initial, _PARTS), strict=True):
        store(builder, builder.neg(total), place, 4)


@instruction
def sum_tile(
    builder: ir.IRBuilder,
    image: ir.Value,
    bases: ir.Value,
    first_base: ir.Value,
    shift: ir.Value,
    segments: ir.Value,
    first_segment: ir.Value,
    last_segment: ir.Value,
    weights: ir.Value,
    first_weight: ir.Value,
    initial: ir.Value,
    first_initial: ir.Value,
    sums: ir.Value,
    first_sum: ir.Value,
) -> None:
    """The sums of one tile over a range of segments.

    sums[pixel, lane] = initial[lane] + sum of
    image[bases[pixel] + shift + offset + 4 p + h] * weights[p, lane, h]
    over the segments (offset, number of quads), p over their quads, h from 0 to 3; weights follow
    one another from segment to segment.

    Args:
        builder: of the caller's code.
        image: uint8.
        bases: int64; a tile's, from `first_base`, are read.
        first_base: index.
        shift: added to all bases.
        segments: int64, shape (segments, 2).
        first_segment: index.
        last_segment: index behind the last.
        weights: int8, read from `first_weight`.
        first_weight: index.
        initial: int32; 16 of them, from `first_initial`, are read.
        first_initial: index.
        sums: int32; a tile, from `first_sum`, is written.
        first_sum: index.
    """
    pixels = starts(builder, image, bases, first_base, shift, PIXELS)
    weights = builder.gep(weights, [first_weight])
    totals = _initial(builder, initial, first_initial)
    totals = add_segments(
        builder, pixels, segments, first_segment, last_segment, weights, totals, _add_quad
    )
    places = _places(builder, sums, first_sum, _PARTS * PIXELS)
    for total, place in zip(totals, places, strict=True):
        store(builder, total, place, 4)


@instruction
def accumulate_tile(
    builder: ir.IRBuilder,
    image: ir.Value,
    bases: ir.Value,
    first_base: ir.Value,
    shift: ir.Value,
    segments: ir.Value,
    first_segment: ir.Value,
    last_segment: ir.Value,
    weights: ir.Value,
    first_weight: ir.Value,
    sums: ir.Value,
    first_sum: ir.Value,
) -> None:
    """As `sum_tile`, but adds to what `sums` holds."""
    places = _places(builder, sums, first_sum, _PARTS * PIXELS)
    pixels = starts(builder, image, bases, first_base, shift, PIXELS)
    weights = builder.gep(weights, [first_weight])
    totals = [load(builder, place, _SUMS, 4) for place in places]
    totals = add_segments(
        builder, pixels, segments, first_segment, last_segment, weights, totals, _add_quad
    )
    for total, place in zip(totals, places, strict=True):
        store(builder, total, place, 4)


@instruction
def sum_tile_scaled(
    builder: ir.IRBuilder,
    image: ir.Value,
    bases: ir.Value,
    first_base: ir.Value,
    shift: ir.Value,
    segments: ir.Value,
    first_segment: ir.Value,
    last_segment: ir.Value,
    weights: ir.Value,
    first_weight: ir.Value,
    initial: ir.Value,
    first_initial: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    first_channel: ir.Value,
    out: ir.Value,
    out_shift: ir.Value,
    targets: ir.Value,
) -> None:
    """As `sum_tile`, but writes float32(sum) * scale + bias to the targets; three roundings.

    Args:
        builder: of the caller's code.
        image: as there, and so on until `first_initial`.
        bases: as there.
        first_base: also into `targets`.
        shift: as there.
        segments: as there.
        first_segment: as there.
        last_segment: as there.
        weights: as there.
        first_weight: as there.
        initial: as there.
        first_initial: as there.
        scale: float32.
        bias: float32.
        first_channel: index into `scale` and `bias`.
        out: float32.
        out_shift: added to the targets.
        targets: int64, positions in `out`.
    """
    pixels = starts(builder, image, bases, first_base, shift, PIXELS)
    weights = builder.gep(weights, [first_weight])
    totals = _initial(builder, initial, first_initial)
    totals = add_segments(
        builder, pixels, segments, first_segment, last_segment, weights, totals, _add_quad
    )
    scale, bias = (builder.gep(pointer, [first_channel]) for pointer in (scale, bias))
    places = starts(builder, out, targets, first_base, out_shift, PIXELS)
    store_scaled(builder, totals, scale, bias, places)


def _places(builder: ir.IRBuilder, sums: ir.Value, first: ir.Value, count: int) -> list[ir.Value]:
    return places_of(builder, builder.gep(sums, [first]), _SUMS, count)


def _initial(builder: ir.IRBuilder, initial: ir.Value, first: ir.Value) -> list[ir.Value]:
    """The initial sums of a tile: those of a panel, for each pixel."""
    places = _places(builder, initial, first, _PARTS)
    return [load(builder, place, _SUMS, 4) for place in places * PIXELS]


def _row(builder: ir.IRBuilder, row: ir.Value) -> list[ir.Value]:
    """The weights of a quad: vectors as those of the sums."""
    parts = [builder.gep(row, [constant(4 * _SUMS.count * part)]) for part in range(_PARTS)]
    return [load(builder, part, _SUMS, 1) for part in parts]


def _add_quad(
    builder: ir.IRBuilder, quad: ir.Value, pixels: list[ir.Value], values: list[ir.Value]
) -> list[ir.Value]:
    """One quad of terms in all sums of a tile; the next row of weights, and the new totals."""
    row, *totals = values
    weights = _row(builder, row)
    at = builder.shl(quad, constant(2))
    new = []
    for pixel, start in enumerate(pixels):
        four = load(builder, builder.gep(start, [at]), I32, 1)
        spread = broadcast(builder, four, _SUMS.count)
        new += [
            add_dot_products(builder, totals[_PARTS * pixel + part], spread, weights[part])
            for part in range(_PARTS)
        ]
    return [builder.gep(row, [constant(_QUAD_BYTES)]), *new]
