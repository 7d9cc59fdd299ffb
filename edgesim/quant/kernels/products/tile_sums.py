"""Sums of register tiles of either form: what compiled functions call.

The image holds codes q; the results are sums of (q - z) w. As sum (q - z) w = sum q w - z sum w,
sums start at - z sum w. Partial sums may leave 32 bits and wrap; the final sums fit (`MAX_TERMS`).

Symbols:
    tile: pixels x LANES sums, int32, pixel after pixel
    step: consecutive terms of each sum, multiplied by one instruction: two or four (`tile.py`)
    segment: a run of steps that are consecutive in the image
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from edgesim.quant.kernels.arrays import Float32, Int8, Int16, Int32, Int64, UInt8
from edgesim.quant.kernels.instructions import (
    HALF,
    I32,
    LANES,
    I32x8,
    Loop,
    broadcast,
    constant,
    element,
    instruction,
    load,
    places_of,
    starts,
    store,
    store_scaled,
    zeros,
)
from edgesim.quant.kernels.products.tile import Tile, tile_of

_ROW_TERMS = 16  # that `sum_rows` adds between two tests for the end


class Factors(NamedTuple):
    """Factors of the products of tiles; in an instruction, pointers to them.

    Attributes:
        image: entries of a block of samples.
        bases: positions in the image of pixels' first terms.
        segments: shape (segments, 2): offset from a base, number of steps.
        weights: packed: 16 lanes for each step, and so many terms for each lane.
    """

    image: Int16 | UInt8
    bases: Int64
    segments: Int64
    weights: Int16 | Int8


class Place(NamedTuple):
    """Indices of the factors of one tile.

    Attributes:
        pixel: into `bases`, the tile's first.
        shift: added to all bases.
        first: into `segments`.
        last: behind the last segment.
        weight: into `weights`, the first one; they follow one another from segment to segment.
    """

    pixel: int
    shift: int
    first: int
    last: int
    weight: int


class Outputs(NamedTuple):
    """Initial values, scales and targets of sums; in an instruction, pointers to them.

    Attributes:
        initial: sums before their first term, lane by lane.
        scale: by channel.
        bias: by channel.
        out: written.
        targets: positions in `out` of pixels.
    """

    initial: Int32
    scale: Float32
    bias: Float32
    out: Float32
    targets: Int64


@instruction
def subtract_zero_point(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first_weight: ir.Value,
    steps: ir.Value,
    zero_point: ir.Value,
    initial: ir.Value,
    first_initial: ir.Value,
) -> None:
    """The initial sums of a panel: initial[lane] = - zero_point * sum of the lane's weights.

    Args:
        builder: of the caller's code.
        weights: packed, from `first_weight`.
        first_weight: index.
        steps: number of them.
        zero_point: 0 to 255.
        initial: int32; 16 of them, from `first_initial`, are written.
        first_initial: index.
    """
    tile = tile_of(weights)
    ones = sum(1 << 8 * tile.entry_bytes * term for term in range(tile.terms))
    step = builder.trunc(builder.mul(zero_point, constant(ones)), I32)
    spread = broadcast(builder, step, tile.sums.count)
    start = [builder.gep(weights, [first_weight]), *zeros(tile.sums, tile.parts)]
    loop = Loop(builder, constant(0), steps, start)
    row, *totals = loop.values
    totals = [
        tile.add_products(builder, total, spread, part)
        for total, part in zip(totals, _row(builder, tile, row), strict=True)
    ]
    totals = loop.close([_next_row(builder, tile, row), *totals])[1:]
    places = places_of(builder, initial, first_initial, tile.sums, tile.parts)
    _store(builder, [builder.neg(total) for total in totals], places)


@instruction
def sum_tile(
    builder: ir.IRBuilder,
    factors: Factors,
    place: Place,
    before: ir.Value,
    first_before: ir.Value,
    before_step: ir.Value,
    sums: ir.Value,
    first_sum: ir.Value,
) -> None:
    """The sums of one tile over a range of segments.

    sums[pixel, lane] = before[before_step * pixel + lane] +
    sum of image[bases[pixel] + shift + offset + T p + h] * weights[p, lane, h]
    over the segments (offset, number of steps), p over their steps, h over the T terms of a step.

    Args:
        builder: of the caller's code.
        factors: as there.
        place: as there.
        before: int32; may be `sums`.
        first_before: index.
        before_step: from a pixel to the next; 0: all begin with the same sums.
        sums: int32; a tile, from `first_sum`, is written.
        first_sum: index.
    """
    tile = tile_of(factors.image)
    start = builder.gep(before, [first_before])
    totals = []
    for pixel in range(tile.pixels):
        first = builder.mul(before_step, constant(pixel))
        places = places_of(builder, start, first, tile.sums, tile.parts)
        totals += [load(builder, place, tile.sums, 4) for place in places]
    places = places_of(builder, sums, first_sum, tile.sums, tile.parts * tile.pixels)
    _store(builder, _totals(builder, factors, place, totals), places)


@instruction
def sum_tile_scaled(
    builder: ir.IRBuilder,
    factors: Factors,
    place: Place,
    outputs: Outputs,
    first_initial: ir.Value,
    first_channel: ir.Value,
    out_shift: ir.Value,
) -> None:
    """Write float32(sum) * scale + bias of one tile to its targets; three roundings.

    The sums are those of `sum_tile`, from initial ones on.

    Args:
        builder: of the caller's code.
        factors: as there.
        place: as there; its pixel is also an index into the targets.
        outputs: as there.
        first_initial: index; the 16 initial sums from it on hold for every pixel.
        first_channel: index into `scale` and `bias`.
        out_shift: added to the targets.
    """
    tile = tile_of(factors.image)
    places = places_of(builder, outputs.initial, first_initial, tile.sums, tile.parts)
    before = [load(builder, place, tile.sums, 4) for place in places * tile.pixels]
    totals = _totals(builder, factors, place, before)
    scale, bias = (builder.gep(by, [first_channel]) for by in (outputs.scale, outputs.bias))
    to = starts(builder, outputs.out, outputs.targets, place.pixel, out_shift, tile.pixels)
    store_scaled(builder, totals, scale, bias, to)


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
    """The sums of one tile whose pixels are rows of a matrix; faster for few terms.

    Args:
        builder: of the caller's code.
        rows: entries as of an image.
        first_row: position of the first of a tile's rows.
        row_step: from a row to the next.
        steps: number of terms / 16; at least one.
        weights: packed, read from `first_weight`.
        first_weight: index.
        sums: int32; a tile, from `first_sum`, is written.
        first_sum: index.
    """
    tile = tile_of(rows)

    def add(values: list[ir.Value]) -> list[ir.Value]:
        row, *values = values
        pixels = [
            builder.gep(row, [builder.mul(row_step, constant(i))]) for i in range(tile.pixels)
        ]
        for step in range(_ROW_TERMS // tile.terms):
            values = _add_step(builder, tile, constant(step), pixels, values)
        return [builder.gep(row, [constant(_ROW_TERMS)]), *values]

    start = [builder.gep(rows, [first_row]), builder.gep(weights, [first_weight])]
    # The first terms are outside of the loop: the first step needs no zeros to be added to.
    values = add([*start, *zeros(tile.sums, tile.parts * tile.pixels)])
    loop = Loop(builder, constant(1), steps, values)
    totals = loop.close(add(loop.values))[2:]
    places = places_of(builder, sums, first_sum, tile.sums, tile.parts * tile.pixels)
    _store(builder, totals, places)


@instruction
def scale_row(
    builder: ir.IRBuilder,
    sums: ir.Value,
    first_sum: ir.Value,
    outputs: Outputs,
    first_channel: ir.Value,
    first_out: ir.Value,
) -> None:
    """out[i] = float32(sums[i]) * scale[i] + bias[i] for 16 consecutive i; three roundings.

    Args:
        builder: of the caller's code.
        sums: int32.
        first_sum: index.
        outputs: as there.
        first_channel: index into `scale` and `bias`.
        first_out: index.
    """
    places = places_of(builder, sums, first_sum, I32x8, LANES // HALF)
    totals = [load(builder, place, I32x8, 4) for place in places]
    scale, bias = (builder.gep(by, [first_channel]) for by in (outputs.scale, outputs.bias))
    store_scaled(builder, totals, scale, bias, [builder.gep(outputs.out, [first_out])])


def _totals(
    builder: ir.IRBuilder, factors: Factors, place: Place, before: list[ir.Value]
) -> list[ir.Value]:
    """Sums of a tile after its segments."""
    tile = tile_of(factors.image)
    pixels = starts(builder, factors.image, factors.bases, place.pixel, place.shift, tile.pixels)
    weights = builder.gep(factors.weights, [place.weight])
    outer = Loop(builder, place.first, place.last, [weights, *before])
    at = builder.shl(outer.index, constant(1))
    offset, steps = (element(builder, factors.segments, at, i) for i in (0, 1))
    moved = [builder.gep(pixel, [offset]) for pixel in pixels]
    inner = Loop(builder, constant(0), steps, outer.values)
    after = inner.close(_add_step(builder, tile, inner.index, moved, inner.values))
    return outer.close(after)[1:]


def _add_step(
    builder: ir.IRBuilder,
    tile: Tile,
    step: ir.Value,
    pixels: list[ir.Value],
    values: list[ir.Value],
) -> list[ir.Value]:
    """One step of all sums of a tile; the next row of weights, and the new totals."""
    row, *totals = values
    weights = _row(builder, tile, row)
    at = builder.mul(step, constant(tile.terms))
    new = []
    for pixel, start in enumerate(pixels):
        entries = load(builder, builder.gep(start, [at]), I32, tile.entry_bytes)
        spread = broadcast(builder, entries, tile.sums.count)
        new += [
            tile.add_products(builder, totals[tile.parts * pixel + part], spread, weights[part])
            for part in range(tile.parts)
        ]
    return [_next_row(builder, tile, row), *new]


def _row(builder: ir.IRBuilder, tile: Tile, row: ir.Value) -> list[ir.Value]:
    """The weights of a step: vectors as those of the sums."""
    size = tile.terms * tile.sums.count
    parts = [builder.gep(row, [constant(size * part)]) for part in range(tile.parts)]
    return [load(builder, part, tile.sums, tile.entry_bytes) for part in parts]


def _next_row(builder: ir.IRBuilder, tile: Tile, row: ir.Value) -> ir.Value:
    return builder.gep(row, [constant(tile.terms * LANES)])


def _store(builder: ir.IRBuilder, totals: list[ir.Value], places: list[ir.Value]) -> None:
    for total, place in zip(totals, places, strict=True):
        store(builder, total, place, 4)
