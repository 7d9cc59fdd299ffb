"""Transforms of tiles for weights' gradients, a vector of channels at a time (arXiv 1509.09308).

Weights of 3 taps meet an image of n = m + 2 numbers and give m sums: the product of two polynomials
is known by its values at n points, and by transposition so is each of the three from the other two.
In one dimension, with g the gradient at the m sums,

    gradient at the weights = G^T ((B^T d) . (A g))

and in two the same along both axes. n = 6 uses the points 0, 1, -1, 2, -1/2 and infinity, whose
matrices have small numbers: float32 loses about two bits more than by the direct sum. n = 4 uses 0,
1, -1 and infinity. B^T d has whole numbers and halves of them: it is exact.

Symbols:
    d: image less zero point, n   g: gradient, m   x: sums of products at the n points
    q(p) = p^2 - 3/2 p - 1 has the roots 2 and -1/2; t, s: d multiplied by p^2 - 1, and by q
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    HALF,
    LANES,
    F32x8,
    broadcast,
    constant,
    has_wide_vectors,
    instruction,
    load,
    store,
)
from edgesim.quant.kernels.weight_gradient.outer_products import fused

WIDE = LANES if has_wide_vectors() else HALF  # channels at a time, where so many are left

_Line = list[ir.Value]


def _codes_line(
    transform: Callable[[ir.IRBuilder, _Line], _Line], count: int, channels: int
) -> Any:  # noqa: ANN401
    """An instruction that transforms a line of codes, less their zero point."""

    def codes_line(
        builder: ir.IRBuilder,
        codes: ir.Value,
        first: ir.Value,
        step: ir.Value,
        zero_point: ir.Value,
        out: ir.Value,
        first_out: ir.Value,
        out_step: ir.Value,
    ) -> None:
        zero = broadcast(builder, builder.sitofp(zero_point, ir.FloatType()), channels)
        of_codes = ir.VectorType(ir.IntType(8), channels)
        line = _read(builder, codes, first, step, count, of_codes, 1)
        d = [builder.fsub(builder.uitofp(code, zero.type), zero) for code in line]
        _write(builder, transform(builder, d), out, first_out, out_step)

    codes_line.__doc__ = f"""Transform {count} codes less their zero point, {channels} channels.

        Args:
            builder: of the caller's code.
            codes: uint8.
            first: position of the first code's first channel.
            step: from a code to the next.
            zero_point: whole number.
            out: float32; a vector is written for each number that comes out.
            first_out: position of the first.
            out_step: from one to the next.
        """
    return instruction(codes_line)


def _line(transform: Callable[[ir.IRBuilder, _Line], _Line], count: int, channels: int) -> Any:  # noqa: ANN401
    """An instruction that transforms a line of numbers."""
    kind = ir.VectorType(ir.FloatType(), channels)

    def line(
        builder: ir.IRBuilder,
        x: ir.Value,
        first: ir.Value,
        step: ir.Value,
        out: ir.Value,
        first_out: ir.Value,
        out_step: ir.Value,
    ) -> None:
        numbers = transform(builder, _read(builder, x, first, step, count, kind, 4))
        _write(builder, numbers, out, first_out, out_step)

    line.__doc__ = f"""Transform {count} numbers, {channels} channels.

        Args:
            builder: of the caller's code.
            x: float32.
            first: position of the first number's first channel.
            step: from a number to the next.
            out: float32; a vector is written for each number that comes out.
            first_out: position of the first.
            out_step: from one to the next.
        """
    return instruction(line)


@instruction
def weights_6(
    builder: ir.IRBuilder,
    x: ir.Value,
    first: ir.Value,
    step: ir.Value,
    out: ir.Value,
    first_out: ir.Value,
    out_step: ir.Value,
) -> None:
    """G^T x G of 6 x 6 vectors: the gradient of 3 x 3 taps.

    Args:
        builder: of the caller's code.
        x: float32.
        first: position of the first vector.
        step: from one to the next.
        out: float32; nine vectors are written.
        first_out: position of the first.
        out_step: from one to the next.
    """
    _write(builder, _weights(builder, x, first, step, 6), out, first_out, out_step)


@instruction
def weights_4(
    builder: ir.IRBuilder,
    x: ir.Value,
    first: ir.Value,
    step: ir.Value,
    out: ir.Value,
    first_out: ir.Value,
    out_step: ir.Value,
) -> None:
    """As `weights_6`, of 4 x 4 vectors."""
    _write(builder, _weights(builder, x, first, step, 4), out, first_out, out_step)


def _image_6(builder: ir.IRBuilder, d: _Line) -> _Line:
    """N(p) / (p - point) with N = p (p^2 - 1) q, at 2 and -1/2 times whatever leaves 1 in front."""
    t = [builder.fsub(d[i + 2], d[i]) for i in range(4)]
    s = [fused(builder, _number(d, -1.5), d[i + 1], t[i]) for i in range(4)]
    return [
        builder.fsub(s[2], s[0]),
        builder.fadd(s[2], s[1]),
        builder.fsub(s[2], s[1]),
        fused(builder, _number(d, 0.5), t[1], t[2]),
        fused(builder, _number(d, -2.0), t[1], t[2]),
        builder.fsub(s[3], s[1]),
    ]


def _image_4(builder: ir.IRBuilder, d: _Line) -> _Line:
    """N(p) / (p - point) with N = p (p^2 - 1)."""
    return [
        builder.fsub(d[2], d[0]),
        builder.fadd(d[2], d[1]),
        builder.fsub(d[2], d[1]),
        builder.fsub(d[3], d[1]),
    ]


def _gradient_6(builder: ir.IRBuilder, g: _Line) -> _Line:
    """The values of g0 + g1 p + g2 p^2 + g3 p^3 at the points, even and odd powers apart."""
    even, odd = builder.fadd(g[0], g[2]), builder.fadd(g[1], g[3])
    even_2, odd_2 = (fused(builder, _number(g, 4.0), g[i + 2], g[i]) for i in (0, 1))
    even_half, odd_half = (fused(builder, _number(g, 0.25), g[i + 2], g[i]) for i in (0, 1))
    return [
        g[0],
        builder.fadd(even, odd),
        builder.fsub(even, odd),
        fused(builder, _number(g, 2.0), odd_2, even_2),
        fused(builder, _number(g, -0.5), odd_half, even_half),
        g[3],
    ]


def _gradient_4(builder: ir.IRBuilder, g: _Line) -> _Line:
    """The values of g0 + g1 p at the points."""
    return [g[0], builder.fadd(g[0], g[1]), builder.fsub(g[0], g[1]), g[1]]


def _same(_builder: ir.IRBuilder, x: _Line) -> _Line:
    return x


def _weight_line_6(builder: ir.IRBuilder, x: _Line) -> _Line:
    """Sums of x[i] (1, point, point^2) / N'(point), N' = 1, -3, 3, 15, -15/16; infinity: (0, 0, 1).

    The factor in front of `_image_6` is 1.
    """
    third, fifteenth = _number(x, 1 / 3), _number(x, 1 / 15)
    difference = builder.fmul(third, builder.fsub(x[2], x[1]))
    total = builder.fmul(third, builder.fadd(x[1], x[2]))
    two = builder.fmul(fifteenth, x[3])
    half = builder.fmul(_number(x, 16 / 15), x[4])
    constant_term = builder.fadd(builder.fsub(two, half), builder.fadd(x[0], difference))
    linear = fused(
        builder, _number(x, 2.0), two, builder.fsub(builder.fmul(_number(x, 0.5), half), total)
    )
    square = fused(builder, _number(x, -0.25), half, builder.fadd(x[5], difference))
    return [constant_term, linear, fused(builder, _number(x, 4.0), two, square)]


def _weight_line_4(builder: ir.IRBuilder, x: _Line) -> _Line:
    """The same with N' = -1, 2, 2."""
    total = builder.fmul(_number(x, 0.5), builder.fadd(x[1], x[2]))
    linear = builder.fmul(_number(x, 0.5), builder.fsub(x[1], x[2]))
    return [builder.fsub(total, x[0]), linear, builder.fadd(total, x[3])]


def _weights(builder: ir.IRBuilder, x: ir.Value, first: ir.Value, step: ir.Value, n: int) -> _Line:
    line = _weight_line_6 if n == 6 else _weight_line_4
    start = builder.gep(x, [first])
    columns = []
    for column in range(n):
        at = [builder.mul(step, constant(row * n + column)) for row in range(n)]
        columns.append(
            line(builder, [load(builder, builder.gep(start, [i]), F32x8, 4) for i in at])
        )
    return [tap for row in range(3) for tap in line(builder, [column[row] for column in columns])]


def _number(like: _Line, value: float) -> ir.Constant:
    kind = like[0].type
    return ir.Constant(kind, [value] * kind.count)


def _read(
    builder: ir.IRBuilder,
    array: ir.Value,
    first: ir.Value,
    step: ir.Value,
    count: int,
    kind: ir.VectorType,
    align: int,
) -> _Line:
    start = builder.gep(array, [first])
    at = [builder.gep(start, [builder.mul(step, constant(i))]) for i in range(count)]
    return [load(builder, place, kind, align) for place in at]


def _write(
    builder: ir.IRBuilder, line: _Line, out: ir.Value, first: ir.Value, step: ir.Value
) -> None:
    start = builder.gep(out, [first])
    for i, value in enumerate(line):
        store(builder, value, builder.gep(start, [builder.mul(step, constant(i))]), 4)


codes_line_6 = _codes_line(_image_6, 6, WIDE)
codes_line_4 = _codes_line(_image_4, 4, WIDE)
wide_center = _codes_line(_same, 1, WIDE)
center = _codes_line(_same, 1, HALF)
image_line_6 = _line(_image_6, 6, WIDE)
image_line_4 = _line(_image_4, 4, WIDE)
wide_gradient_line_6 = _line(_gradient_6, 4, WIDE)
wide_gradient_line_4 = _line(_gradient_4, 2, WIDE)
wide_copy = _line(_same, 1, WIDE)
gradient_line_6 = _line(_gradient_6, 4, HALF)
gradient_line_4 = _line(_gradient_4, 2, HALF)
copy = _line(_same, 1, HALF)
