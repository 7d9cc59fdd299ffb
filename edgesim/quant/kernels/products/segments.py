"""The loops of a register tile over its terms, whatever multiplies them."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from edgesim.quant.kernels.instructions import Loop, constant, element

# Takes the builder, the index of a step within its segment, pointers to the segment's terms by
# pixel, and values: the row of weights and all sums. Returns the next row and the new sums.
AddStep = Callable[[ir.IRBuilder, ir.Value, list[ir.Value], list[ir.Value]], list[ir.Value]]


def add_segments(
    builder: ir.IRBuilder,
    pixels: list[ir.Value],
    segments: ir.Value,
    first_segment: ir.Value,
    last_segment: ir.Value,
    weights: ir.Value,
    totals: list[ir.Value],
    add_step: AddStep,
) -> list[ir.Value]:
    """Totals of a tile after its segments, each an offset and a number of steps."""
    outer = Loop(builder, first_segment, last_segment, [weights, *totals])
    at = builder.shl(outer.index, constant(1))
    offset, steps = (element(builder, segments, at, i) for i in (0, 1))
    moved = [builder.gep(pixel, [offset]) for pixel in pixels]
    inner = Loop(builder, constant(0), steps, outer.values)
    after = inner.close(add_step(builder, inner.index, moved, inner.values))
    return outer.close(after)[1:]


def places_of(
    builder: ir.IRBuilder, tile: ir.Value, kind: ir.VectorType, count: int
) -> list[ir.Value]:
    """Pointers to consecutive vectors of sums."""
    return [builder.gep(tile, [constant(i * kind.count)]) for i in range(count)]


def zeros(kind: ir.VectorType, count: int) -> list[ir.Value]:
    """Sums of a tile before its first term."""
    return [ir.Constant(kind, [0] * kind.count)] * count
