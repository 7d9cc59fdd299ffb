"""Blocks of 8-bit weights, widened and turned into the order in which tiles read them.

Symbols:
    lane: output channel within a panel of 16   pair: two consecutive terms of the sums
"""

from __future__ import annotations

from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    HALF,
    I32,
    LANES,
    I16x16,
    I32x8,
    constant,
    instruction,
    load,
    store,
)

TERMS = 16  # that `pack_terms` packs at a time

_I8x16 = ir.VectorType(ir.IntType(8), 16)


@instruction
def pack_lanes(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    second: ir.Value,
    packed: ir.Value,
    to: ir.Value,
) -> None:
    """One pair of terms of 16 lanes whose weights are neighbours.

    packed[to + 2 lane + h] = weights[(first, second)[h] + lane].

    Args:
        builder: of the caller's code.
        weights: int8.
        first: position of lane 0's weight for the pair's first term.
        second: for its second term.
        packed: int16.
        to: index.
    """
    terms = [
        builder.sext(load(builder, builder.gep(weights, [at]), _I8x16, 1), I16x16)
        for at in (first, second)
    ]
    packed = builder.gep(packed, [to])
    for half in (0, 1):
        lanes = range(half * HALF, (half + 1) * HALF)
        order = [part * LANES + lane for lane in lanes for part in (0, 1)]
        mixed = builder.shuffle_vector(*terms, ir.Constant(ir.VectorType(I32, LANES), order))
        store(builder, mixed, builder.gep(packed, [constant(half * LANES)]), 2)


@instruction
def pack_terms(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    lane_step: ir.Value,
    packed: ir.Value,
    to: ir.Value,
) -> None:
    """Sixteen terms, eight pairs, of 16 lanes, where a lane's terms are neighbours.

    packed[to + 32 pair + 2 lane + h] = weights[first + lane_step lane + 2 pair + h].

    Args:
        builder: of the caller's code.
        weights: int8.
        first: position of lane 0's first weight.
        lane_step: from a lane to the next.
        packed: int16.
        to: index.
    """
    weights, packed = builder.gep(weights, [first]), builder.gep(packed, [to])
    for half in (0, 1):
        rows = []
        for lane in range(half * HALF, (half + 1) * HALF):
            at = builder.mul(lane_step, constant(lane))
            narrow = load(builder, builder.gep(weights, [at]), _I8x16, 1)
            rows.append(builder.bitcast(builder.sext(narrow, I16x16), I32x8))
        for pair, row in enumerate(_transpose(builder, rows)):
            place = builder.gep(packed, [constant(2 * LANES * pair + LANES * half)])
            store(builder, row, place, 2)


def _transpose(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """8 x 8 pairs: blocks of 4, 2 and 1 off the diagonal change places."""
    for size in (4, 2, 1):
        low = [i for i in range(HALF) if i % (2 * size) < size]
        first = [i if i in low else i - size + HALF for i in range(HALF)]
        second = [i + size if i in low else i + HALF for i in range(HALF)]
        for i in low:
            a, b = rows[i], rows[i + size]
            rows[i] = builder.shuffle_vector(a, b, ir.Constant(I32x8, first))
            rows[i + size] = builder.shuffle_vector(a, b, ir.Constant(I32x8, second))
    return rows
