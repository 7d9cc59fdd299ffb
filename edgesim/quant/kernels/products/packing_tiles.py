"""Blocks of 8-bit weights, turned into the order in which tiles read them.

Symbols:
    lane: output channel within a panel of 16
    step: consecutive terms of each sum, two or four; the packed weights' type says how many
"""

from __future__ import annotations

from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    I32,
    LANES,
    constant,
    element,
    instruction,
    load,
    store,
)
from edgesim.quant.kernels.products.tile import tile_of

TERMS = 16  # that `pack_terms` packs at a time

_I8x16 = ir.VectorType(ir.IntType(8), 16)


@instruction
def pack_lanes(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    terms: ir.Value,
    step: ir.Value,
    packed: ir.Value,
    to: ir.Value,
) -> None:
    """One step of 16 lanes whose weights are neighbours.

    packed[to + T lane + h] = weights[first + terms[step, h] + lane], T terms of a step.

    Args:
        builder: of the caller's code.
        weights: int8.
        first: position of lane 0's first weight.
        terms: int64, shape (steps, T).
        step: which.
        packed: int16 or int8.
        to: index.
    """
    tile, start = tile_of(packed), builder.gep(weights, [first])
    row = builder.mul(step, constant(tile.terms))
    places = [
        builder.gep(start, [element(builder, terms, row, term)]) for term in range(tile.terms)
    ]
    by_term = [_widened(builder, place, packed) for place in places]
    while len(by_term) > 1:  # lane by lane, the terms' first half with its second
        half = len(by_term) // 2
        by_term = [_interleaved(builder, by_term[i], by_term[i + half]) for i in range(half)]
    store(builder, by_term[0], builder.gep(packed, [to]), tile.entry_bytes)


@instruction
def pack_terms(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    lane_step: ir.Value,
    packed: ir.Value,
    to: ir.Value,
) -> None:
    """Sixteen terms of 16 lanes, where a lane's terms are neighbours.

    packed[to + 16 T step + T lane + h] = weights[first + lane_step lane + T step + h].

    Args:
        builder: of the caller's code.
        weights: int8.
        first: position of lane 0's first weight.
        lane_step: from a lane to the next.
        packed: int16 or int8.
        to: index.
    """
    tile = tile_of(packed)
    steps = ir.VectorType(I32, TERMS // tile.terms)
    weights, packed = builder.gep(weights, [first]), builder.gep(packed, [to])
    for lane in range(0, LANES, steps.count):
        at = [builder.mul(lane_step, constant(lane + i)) for i in range(steps.count)]
        rows = [_widened(builder, builder.gep(weights, [place]), packed) for place in at]
        rows = [builder.bitcast(row, steps) for row in rows]
        for step, row in enumerate(_transposed(builder, rows)):
            place = builder.gep(packed, [constant(tile.terms * (LANES * step + lane))])
            store(builder, row, place, tile.entry_bytes)


def _widened(builder: ir.IRBuilder, weights: ir.Value, packed: ir.Value) -> ir.Value:
    """Sixteen weights, as wide as packed ones."""
    narrow, width = load(builder, weights, _I8x16, 1), packed.type.pointee.width
    return narrow if width == 8 else builder.sext(narrow, ir.VectorType(ir.IntType(width), 16))


def _interleaved(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    count = a.type.count
    return _shuffled(builder, a, b, [part * count + i for i in range(count) for part in (0, 1)])


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """A square of steps: blocks of half its size, a quarter, ... off the diagonal change places."""
    count = size = len(rows)
    while size := size // 2:
        low = [i for i in range(count) if i % (2 * size) < size]
        first = [i if i in low else i - size + count for i in range(count)]
        second = [i + size if i in low else i + count for i in range(count)]
        for i in low:
            a, b = rows[i], rows[i + size]
            rows[i] = _shuffled(builder, a, b, first)
            rows[i + size] = _shuffled(builder, a, b, second)
    return rows


def _shuffled(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, order: list[int]) -> ir.Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(order)), order))
