"""Sums of outer products of float32 rows: U^T V for several pairs of tall matrices, in blocks.

A tile of 6 x 16 sums stays in twelve registers over all rows; each row of U gives six numbers, each
row of V two vectors. With vectors of 512 bits a tile is 12 x 16. In both cases a sum takes its
terms in the same order. Multiply and add are fused where the processor can.

Symbols:
    U, V: tall matrices, pair by pair ("position")   t: row of both   M: sums, U^T V
    panel: columns that lie together, row after row: 24 of U (the last: fewer), 16 of V
    block: panels of U and V whose M are worked on together
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from edgesim.quant.kernels.arrays import Float32
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import (
    LANES,
    F32x8,
    F32x16,
    Loop,
    broadcast,
    constant,
    has_wide_vectors,
    instruction,
    load,
    places_of,
    store,
    zeros,
)

U_PANEL = 24  # columns: a multiple of 6 and of 8
V_PANEL = LANES
PANEL_SUMS = U_PANEL * V_PANEL
UNROLLED = 4  # rows between two tests for the end: their number must be a multiple

_SUMS = F32x16 if has_wide_vectors() else F32x8
_PARTS = LANES // _SUMS.count  # vectors of a column's sums
# Columns of U at a time; any multiple of 8 is a sum of these.
_MANY, _FEW = (12, 8) if _PARTS == 1 else (6, 4)


class Matrix(NamedTuple):
    """U or V of all positions.

    Attributes:
        numbers: flat.
        step: from a position to the next; 0: all have the same matrix.
        columns: a multiple of 8.
        capacity: rows for which there is room.
    """

    numbers: Float32
    step: int
    columns: int
    capacity: int


class Block(NamedTuple):
    """Panels that are worked on together, and their sums.

    Attributes:
        u_panels: of U, first and behind the last.
        v_panels: of V, likewise.
        positions: number of pairs U, V.
        M: position by position the 24 x 16 sums of each pair of panels.
        first_m: position of the first.
    """

    u_panels: tuple[int, int]
    v_panels: tuple[int, int]
    positions: int
    M: Float32
    first_m: int


def fused(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """A * b + c, rounded once where the processor can and twice where not."""
    name = f"llvm.fmuladd.v{c.type.count}f32"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(c.type, [c.type] * 3), name
    )
    return builder.call(function, [a, b, c])


def _adder(columns: int) -> Callable[..., None]:
    """An instruction that works on so many columns of U and a panel of V."""

    def add_outer_products(
        builder: ir.IRBuilder,
        U: ir.Value,
        first_u: ir.Value,
        u_step: ir.Value,
        V: ir.Value,
        first_v: ir.Value,
        steps: ir.Value,
        M: ir.Value,
        first_m: ir.Value,
        is_sum: ir.Value,
    ) -> None:
        places = places_of(builder, M, first_m, _SUMS, _PARTS * columns)
        none = zeros(_SUMS, _PARTS * columns)
        start = [builder.gep(U, [first_u]), builder.gep(V, [first_v]), *none]
        loop = Loop(builder, constant(0), steps, start)
        values = loop.values
        for _ in range(UNROLLED):
            values = _add_row(builder, u_step, values)
        totals = loop.close(values)[2:]
        is_new = builder.icmp_signed("==", is_sum, constant(0))
        for total, place in zip(totals, places, strict=True):
            # Short sums are added to M only here: sums of short sums have smaller rounding errors.
            before = builder.select(is_new, none[0], load(builder, place, _SUMS, 4))
            store(builder, builder.fadd(before, total), place, 4)

    add_outer_products.__doc__ = f"""M (+)= the sum of rows' outer products: {columns} x 16 sums.

        Args:
            builder: of the caller's code.
            U: float32.
            first_u: position of the first row's first column.
            u_step: from a row to the next.
            V: float32, rows of 16 that follow each other.
            first_v: position of the first row.
            steps: number of rows / 4.
            M: float32, {columns} rows of 16 that follow each other.
            first_m: position of the first.
            is_sum: 0: M is written; any other number: it is added to.
        """
    return instruction(add_outer_products)


def _add_row(builder: ir.IRBuilder, u_step: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
    """Pointers behind one row of U and V, and the new sums."""
    u, v, *sums = values
    row = [
        load(builder, place, _SUMS, 4)
        for place in places_of(builder, v, constant(0), _SUMS, _PARTS)
    ]
    new = []
    for i in range(len(sums) // _PARTS):
        factor = broadcast(builder, builder.load(builder.gep(u, [constant(i)])), _SUMS.count)
        new += [
            fused(builder, factor, row[part], sums[_PARTS * i + part]) for part in range(_PARTS)
        ]
    return [builder.gep(u, [u_step]), builder.gep(v, [constant(V_PANEL)]), *new]


_add_many = _adder(_MANY)
_add_few = _adder(_FEW)


@inner
def add_block(U: Matrix, V: Matrix, block: Block, rows: int, is_sum: int) -> None:
    """M of a block: position by position, panel of U by panel, panel of V by panel.

    Args:
        U: read.
        V: read.
        block: its M is written.
        rows: to sum over, a multiple of `UNROLLED`.
        is_sum: 0: M is written; any other number: it is added to.
    """
    steps, M, to = rows // UNROLLED, block.M, block.first_m
    for position in range(block.positions):
        for u_panel in range(block.u_panels[0], block.u_panels[1]):
            width = min(U_PANEL, U.columns - u_panel * U_PANEL)
            u = position * U.step + u_panel * U_PANEL * U.capacity
            for v_panel in range(block.v_panels[0], block.v_panels[1]):
                v = position * V.step + v_panel * V_PANEL * V.capacity
                column = 0
                while column < width:
                    at = to + column * V_PANEL
                    left = width - column
                    if left % _FEW == 0 and left % _MANY != 0 and left < 2 * _MANY:
                        _add_few(U.numbers, u + column, width, V.numbers, v, steps, M, at, is_sum)
                        column += _FEW
                    else:
                        _add_many(U.numbers, u + column, width, V.numbers, v, steps, M, at, is_sum)
                        column += _MANY
                to += PANEL_SUMS


def padded_to(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple
