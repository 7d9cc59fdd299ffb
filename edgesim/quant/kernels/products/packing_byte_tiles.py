"""Blocks of 8-bit weights, turned into the order in which tiles of bytes read them.

Symbols:
    lane: output channel within a panel of 16   quad: four consecutive terms of the sums
"""

from __future__ import annotations

from llvmlite import ir

from edgesim.quant.kernels.instructions import I32, LANES, constant, instruction, load, store

TERMS = 16  # that `pack_terms` packs at a time

_I8x16 = ir.VectorType(ir.IntType(8), 16)
_I32x4 = ir.VectorType(I32, 4)


@instruction
def pack_lanes(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    second: ir.Value,
    third: ir.Value,
    fourth: ir.Value,
    packed: ir.Value,
    to: ir.Value,
) -> None:
    """One quad of terms of 16 lanes whose weights are neighbours.

    packed[to + 4 lane + h] = weights[(first, second, third, fourth)[h] + lane].

    Args:
        builder: of the caller's code.
        weights: int8.
        first: position of lane 0's weight for the quad's first term.
        second: for its second term.
        third: for its third term.
        fourth: for its fourth term.
        packed: int8.
        to: index.
    """
    terms = [
        load(builder, builder.gep(weights, [at]), _I8x16, 1)
        for at in (first, second, third, fourth)
    ]
    pairs = [
        builder.shuffle_vector(a, b, _order([h * LANES + i for i in range(LANES) for h in (0, 1)]))
        for a, b in (terms[:2], terms[2:])
    ]
    order = [2 * LANES * pair + 2 * i + h for i in range(LANES) for pair in (0, 1) for h in (0, 1)]
    store(builder, builder.shuffle_vector(*pairs, _order(order)), builder.gep(packed, [to]), 1)


@instruction
def pack_terms(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    lane_step: ir.Value,
    packed: ir.Value,
    to: ir.Value,
) -> None:
    """Sixteen terms, four quads, of 16 lanes, where a lane's terms are neighbours.

    packed[to + 64 quad + 4 lane + h] = weights[first + lane_step lane + 4 quad + h].

    Args:
        builder: of the caller's code.
        weights: int8.
        first: position of lane 0's first weight.
        lane_step: from a lane to the next.
        packed: int8.
        to: index.
    """
    weights, packed = builder.gep(weights, [first]), builder.gep(packed, [to])
    for lane in range(0, LANES, 4):
        steps = [builder.mul(lane_step, constant(lane + i)) for i in range(4)]
        rows = [load(builder, builder.gep(weights, [at]), _I32x4, 1) for at in steps]
        for quad, row in enumerate(_transpose(builder, rows)):
            place = builder.gep(packed, [constant(4 * LANES * quad + 4 * lane)])
            store(builder, row, place, 1)


def _transpose(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """4 x 4 quads: blocks of 2 and 1 off the diagonal change places."""
    for size in (2, 1):
        low = [i for i in range(4) if i % (2 * size) < size]
        first = [i if i in low else i - size + 4 for i in range(4)]
        second = [i + size if i in low else i + 4 for i in range(4)]
        for i in low:
            a, b = rows[i], rows[i + size]
            rows[i] = builder.shuffle_vector(a, b, _order(first))
            rows[i + size] = builder.shuffle_vector(a, b, _order(second))
    return rows


def _order(order: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(order)), order)
