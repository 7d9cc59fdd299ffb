"""Transforms of tiles for weights' gradients, a vector of channels at a time (arXiv 1509.09308).

Weights of 3 taps meet an image of n = m + 2 numbers and give m sums: the product of two polynomials
is determined by its values at n points. By transposition this also gives each of the two factors
from the other factor and the product. In one dimension, with g the gradient at the m sums,

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
from typing import Any, NamedTuple

from llvmlite import ir

from edgesim.quant.kernels.arrays import Float32, UInt8
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


class Line(NamedTuple):
    """Vectors of channels that lie `step` apart; in an instruction, with a pointer.

    Attributes:
        numbers: float32, or codes.
        first: position of the first vector's first channel.
        step: from a vector to the next.
    """

    numbers: Float32 | UInt8
    first: int
    step: int


def _codes_line(
    transform: Callable[[ir.IRBuilder, _Line], _Line], count: int, channels: int
) -> Any:  # noqa: ANN401
    """An instruction that transforms a line of codes, less their zero point."""

    def codes_line(builder: ir.IRBuilder, codes: Line, zero_point: ir.Value, out: Line) -> None:
        zero = broadcast(builder, builder.sitofp(zero_point, ir.FloatType()), channels)
        line = _read(builder, codes, count, ir.VectorType(ir.IntType(8), channels))
        d = [builder.fsub(builder.uitofp(code, zero.type), zero) for code in line]
        _write(builder, transform(builder, d), out)

    codes_line.__doc__ = f"""Transform {count} codes less their zero point, {channels} channels.

        Args:
            builder: of the caller's code.
            codes: read.
            zero_point: whole number.
            out: written, a vector for each number that comes out.
        """
    return instruction(codes_line)


def _line(transform: Callable[[ir.IRBuilder, _Line], _Line], count: int, channels: int) -> Any:  # noqa: ANN401
    """An instruction that transforms a line of numbers."""

    def line(builder: ir.IRBuilder, x: Line, out: Line) -> None:
        numbers = _read(builder, x, count, ir.VectorType(ir.FloatType(), channels))
        _write(builder, transform(builder, numbers), out)

    line.__doc__ = f"""Transform {count} numbers, {channels} channels.

        Args:
            builder: of the caller's code.
            x: read.
            out: written, a vector for each number that comes out.
        """
    return instruction(line)


def _weights(line: Callable[[ir.IRBuilder, _Line], _Line], n: int) -> Any:  # noqa: ANN401
    """An instruction that makes the gradient of 3 x 3 taps, G^T x G, from n x n vectors x."""

    def weights(builder: ir.IRBuilder, x: Line, out: Line) -> None:
        numbers = _read(builder, x, n * n, F32x8)
        columns = [line(builder, numbers[column::n]) for column in range(n)]
        rows = [line(builder, [column[row] for column in columns]) for row in range(3)]
        _write(builder, [tap for row in rows for tap in row], out)

    weights.__doc__ = f"""G^T x G of {n} x {n} vectors: the gradient of 3 x 3 taps.

        Args:
            builder: of the caller's code.
            x: read.
            out: written, nine vectors.
        """
    return instruction(weights)


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


def _number(like: _Line, value: float) -> ir.Constant:
    kind = like[0].type
    return ir.Constant(kind, [value] * kind.count)


def _places(builder: ir.IRBuilder, line: Line, count: int) -> _Line:
    start = builder.gep(line.numbers, [line.first])
    return [builder.gep(start, [builder.mul(line.step, constant(i))]) for i in range(count)]


def _read(builder: ir.IRBuilder, line: Line, count: int, kind: ir.VectorType) -> _Line:
    align = 1 if isinstance(kind.element, ir.IntType) else 4
    return [load(builder, place, kind, align) for place in _places(builder, line, count)]


def _write(builder: ir.IRBuilder, line: _Line, out: Line) -> None:
    for value, place in zip(line, _places(builder, out, len(line)), strict=True):
        store(builder, value, place, 4)


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
weights_6 = _weights(_weight_line_6, 6)
weights_4 = _weights(_weight_line_4, 4)
