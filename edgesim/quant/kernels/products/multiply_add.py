"""Register tiles of integer products.

One instruction of AVX2, vpmaddwd, multiplies sixteen pairs of 16-bit integers and adds the products
two by two, exactly: twice what a fused multiply-add of 32-bit floats does in the same time. A tile
of 6 pixels by 16 output channels keeps its 96 sums in twelve registers; each step reads two vectors
of packed weights and multiplies them by two neighbouring input channels of each pixel. LLVM itself
makes vpdpwssd of it where the processor has VNNI. Where there is no AVX2 the same products are
written out in plain vector operations: as exact, not as fast.

Symbols:
    tile: PIXELS x LANES sums, int32, pixel after pixel
    pair: two consecutive terms of each sum, multiplied by one instruction
    segment: a run of pairs that are consecutive in the image
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit

from edgesim.quant.kernels.arrays import Int16, Int32, Int64
from edgesim.quant.kernels.instructions import (
    HALF,
    I32,
    LANES,
    I16x16,
    I32x8,
    Loop,
    broadcast,
    constant,
    has_native_instruction,
    instruction,
    load,
    multiply_add_pairs,
    starts,
    store,
    store_scaled,
)
from edgesim.quant.kernels.products.segments import add_segments, places_of, zeros
from edgesim.quant.kernels.products.tile import Tile

PIXELS = 6  # with two vectors of lanes: 12 of 16 registers hold sums
TILE = Tile(pixels=PIXELS, terms=2, entry_bytes=2)
_STEP = 16  # terms that `sum_rows` adds between two tests for the end


def multiply_add_is_native() -> bool:
    """Whether tiles are computed by the processor's own instruction, and rightly.

    Compiles a small tile and compares it with numpy.
    """
    if not has_native_instruction():
        return False
    pairs = 3
    image = np.arange(-20, 60, dtype=np.int16) * np.int16(3)
    weights = (np.arange(pairs * LANES * 2) * 37 % 255 - 127).astype(np.int16)
    bases = np.arange(PIXELS, dtype=np.int64) * 7
    segments = np.array([[2, pairs]], dtype=np.int64)
    read = image[bases[:, None] + 2 + np.arange(2 * pairs)].astype(np.int64)
    by_lane = weights.reshape(pairs, LANES, 2).transpose(0, 2, 1).reshape(2 * pairs, LANES)
    expected = read @ by_lane.astype(np.int64)
    return bool(np.array_equal(_one_tile(image, bases, segments, weights), expected.ravel()))


@njit(nogil=True, cache=True)
def _one_tile(image: Int16, bases: Int64, segments: Int64, weights: Int16) -> Int32:
    sums = np.empty(PIXELS * LANES, np.int32)
    sum_tile(image, bases, 0, 0, segments, 0, len(segments), weights, 0, sums, 0)
    return sums


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
    sums: ir.Value,
    first_sum: ir.Value,
) -> None:
    """The sums of one tile over a range of segments.

    sums[pixel, lane] = sum of image[bases[pixel] + shift + offset + 2 p + h] * weights[p, lane, h]
    over the segments (offset, number of pairs), p over their pairs, h over 0 and 1; weights follow
    one another from segment to segment.

    Args:
        builder: of the caller's code.
        image: int16.
        bases: int64; six of them, from `first_base`, are read.
        first_base: index.
        shift: added to all bases.
        segments: int64, shape (segments, 2).
        first_segment: index.
        last_segment: index behind the last.
        weights: int16, read from `first_weight`.
        first_weight: index.
        sums: int32; 96 of them, from `first_sum`, are written.
        first_sum: index.
    """
    tile = builder.gep(sums, [first_sum])
    pixels = starts(builder, image, bases, first_base, shift, PIXELS)
    weights = builder.gep(weights, [first_weight])
    totals = add_segments(
        builder,
        pixels,
        segments,
        first_segment,
        last_segment,
        weights,
        zeros(I32x8, 2 * PIXELS),
        _add_pair,
    )
    for total, place in zip(totals, places_of(builder, tile, I32x8, 2 * PIXELS), strict=True):
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
    places = places_of(builder, builder.gep(sums, [first_sum]), I32x8, 2 * PIXELS)
    pixels = starts(builder, image, bases, first_base, shift, PIXELS)
    weights = builder.gep(weights, [first_weight])
    totals = [load(builder, place, I32x8, 4) for place in places]
    totals = add_segments(
        builder, pixels, segments, first_segment, last_segment, weights, totals, _add_pair
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
    scale: ir.Value,
    bias: ir.Value,
    first_channel: ir.Value,
    out: ir.Value,
    out_shift: ir.Value,
    targets: ir.Value,
) -> None:
    """As `sum_tile`, but writes float32(sum) * scale + bias to the targets; three roundings.

    Args:
        builder: as there.
        image: as there, and so on until `first_weight`.
        bases: as there.
        first_base: also into `targets`.
        shift: as there.
        segments: as there.
        first_segment: as there.
        last_segment: as there.
        weights: as there.
        first_weight: as there.
        scale: float32.
        bias: float32.
        first_channel: index into `scale` and `bias`.
        out: float32.
        out_shift: added to the targets.
        targets: int64, positions in `out`.
    """
    pixels = starts(builder, image, bases, first_base, shift, PIXELS)
    weights = builder.gep(weights, [first_weight])
    totals = add_segments(
        builder,
        pixels,
        segments,
        first_segment,
        last_segment,
        weights,
        zeros(I32x8, 2 * PIXELS),
        _add_pair,
    )
    scale, bias = (builder.gep(pointer, [first_channel]) for pointer in (scale, bias))
    places = starts(builder, out, targets, first_base, out_shift, PIXELS)
    store_scaled(builder, totals, scale, bias, places)


@instruction
def sum_rows(
    builder: ir.IRBuilder,
    rows: ir.Value,
    first_row: ir.Value,
    row_step: ir.Value,
    steps: ir.Value,
    weights: ir.Value,
    first_weight: ir.Value,
    sums: ir.Value,
    first_sum: ir.Value,
) -> None:
    """The sums of one tile whose pixels are rows of a matrix: the short way for few terms.

    Args:
        builder: of the caller's code.
        rows: int16.
        first_row: position of the first of six rows.
        row_step: from a row to the next.
        steps: number of terms / 16; at least one.
        weights: int16, read from `first_weight`.
        first_weight: index.
        sums: int32; 96 of them, from `first_sum`, are written.
        first_sum: index.
    """
    values = [
        builder.gep(rows, [first_row]),
        builder.gep(weights, [first_weight]),
        *zeros(I32x8, 2 * PIXELS),
    ]
    # The first step is outside of the loop: its first pair needs no zeros to be added to.
    values = _add_step(builder, row_step, values)
    loop = Loop(builder, constant(1), steps, values)
    totals = loop.close(_add_step(builder, row_step, loop.values))[2:]
    tile = builder.gep(sums, [first_sum])
    for total, place in zip(totals, places_of(builder, tile, I32x8, 2 * PIXELS), strict=True):
        store(builder, total, place, 4)


@instruction
def scale_row(
    builder: ir.IRBuilder,
    sums: ir.Value,
    first_sum: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    first_channel: ir.Value,
    out: ir.Value,
    first_out: ir.Value,
) -> None:
    """out[i] = float32(sums[i]) * scale[i] + bias[i] for 16 consecutive i; three roundings.

    Args:
        builder: of the caller's code.
        sums: int32.
        first_sum: index.
        scale: float32.
        bias: float32.
        first_channel: index into `scale` and `bias`.
        out: float32.
        first_out: index.
    """
    places = [builder.gep(sums, [builder.add(first_sum, constant(i * HALF))]) for i in (0, 1)]
    totals = [load(builder, place, I32x8, 4) for place in places]
    scale, bias = (builder.gep(pointer, [first_channel]) for pointer in (scale, bias))
    store_scaled(builder, totals, scale, bias, [builder.gep(out, [first_out])])


def _add_step(builder: ir.IRBuilder, row_step: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
    """Sixteen terms in all sums; rows and weights behind them, and the new totals."""
    rows, *values = values
    pixels = [builder.gep(rows, [builder.mul(row_step, constant(i))]) for i in range(PIXELS)]
    for pair in range(_STEP // 2):
        values = _add_pair(builder, constant(pair), pixels, values)
    return [builder.gep(rows, [constant(_STEP)]), *values]


def _add_pair(
    builder: ir.IRBuilder, pair: ir.Value, pixels: list[ir.Value], values: list[ir.Value]
) -> list[ir.Value]:
    """One pair of terms in all sums of a tile; the next row of weights, and the new totals."""
    row, *totals = values
    weights = [load(builder, builder.gep(row, [constant(i * LANES)]), I16x16, 2) for i in (0, 1)]
    at = builder.shl(pair, constant(1))
    new = []
    for pixel, start in enumerate(pixels):
        two = load(builder, builder.gep(start, [at]), I32, 2)
        spread = builder.bitcast(broadcast(builder, two, HALF), I16x16)
        for half in (0, 1):
            product = multiply_add_pairs(builder, weights[half], spread)
            new.append(builder.add(totals[2 * pixel + half], product))
    return [builder.gep(row, [constant(2 * LANES)]), *new]
