"""The loops of a register tile over its terms, whatever multiplies them."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from edgesim.quant.kernels.instructions import HALF, I32x8, Loop, constant, element

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


def places_of(builder: ir.IRBuilder, tile: ir.Value, pixels: int) -> list[ir.Value]:
    """Pointers to a tile's sums, vector by vector."""
    return [builder.gep(tile, [constant(i * HALF)]) for i in range(2 * pixels)]


def zeros(pixels: int) -> list[ir.Value]:
    """Sums of a tile before its first term."""
    return [ir.Constant(I32x8, [0] * HALF)] * (2 * pixels)
