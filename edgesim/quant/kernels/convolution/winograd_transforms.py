"""Transforms of Winograd's F(2x2, 3x3) in integers, sixteen channels at a time.

Symbols:
    d: 4 x 4 pixels of the image   V = B^T d B   g: 3 x 3 weights   U = 4 G g G^T
    M: sums over input channels of U V, 4 x 4   Y = A^T M A / 4: 2 x 2 outputs
"""

from __future__ import annotations

from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    HALF,
    LANES,
    I16x16,
    I32x8,
    constant,
    instruction,
    load,
    scaled,
    starts,
    store,
)
from edgesim.quant.kernels.products.tile_sums import Outputs

POSITIONS = 16  # of V, U and M


@instruction
def transform_image(
    builder: ir.IRBuilder,
    image: ir.Value,
    first: ir.Value,
    row_step: ir.Value,
    column_step: ir.Value,
    out: ir.Value,
    first_out: ir.Value,
    position_step: ir.Value,
) -> None:
    """V of 16 channels: out[first_out + position_step * position + channel].

    |V| <= 4 * 255 where |d| <= 255.

    Args:
        builder: of the caller's code.
        image: int16.
        first: position of the first pixel's first channel.
        row_step: from a row to the next.
        column_step: from a pixel to the next.
        out: int16.
        first_out: index.
        position_step: from an entry of V to the next.
    """
    pixel = builder.gep(image, [first])
    half = []  # B^T d, column by column
    for column in range(4):
        down = []
        for row in range(4):
            at = builder.add(
                builder.mul(row_step, constant(row)), builder.mul(column_step, constant(column))
            )
            down.append(load(builder, builder.gep(pixel, [at]), I16x16, 2))
        half.append(_image_line(builder, down))
    to = builder.gep(out, [first_out])
    for row in range(4):
        for column, value in enumerate(_image_line(builder, [line[row] for line in half])):
            at = builder.mul(position_step, constant(4 * row + column))
            store(builder, value, builder.gep(to, [at]), 2)


def _image_line(builder: ir.IRBuilder, d: list[ir.Value]) -> list[ir.Value]:
    """B^T d: (d0 - d2, d1 + d2, d2 - d1, d1 - d3)."""
    return [
        builder.sub(d[0], d[2]),
        builder.add(d[1], d[2]),
        builder.sub(d[2], d[1]),
        builder.sub(d[1], d[3]),
    ]


@instruction
def transform_weights(
    builder: ir.IRBuilder,
    weights: ir.Value,
    first: ir.Value,
    tap_step: ir.Value,
    out: ir.Value,
    first_out: ir.Value,
    position_step: ir.Value,
) -> None:
    """U of 16 weights: out[first_out + position_step * position + weight].

    |U| <= 9 * 127 where |g| <= 127.

    Args:
        builder: of the caller's code.
        weights: int16.
        first: position of the first tap's first weight.
        tap_step: from a tap to the next of the nine.
        out: int16.
        first_out: index.
        position_step: from an entry of U to the next.
    """
    start = builder.gep(weights, [first])
    half = []  # 2 G g, column by column
    for column in range(3):
        steps = [builder.mul(tap_step, constant(3 * row + column)) for row in range(3)]
        half.append(
            _weight_line(
                builder, [load(builder, builder.gep(start, [at]), I16x16, 2) for at in steps]
            )
        )
    to = builder.gep(out, [first_out])
    for row in range(4):
        for column, value in enumerate(_weight_line(builder, [line[row] for line in half])):
            at = builder.mul(position_step, constant(4 * row + column))
            store(builder, value, builder.gep(to, [at]), 2)


def _weight_line(builder: ir.IRBuilder, g: list[ir.Value]) -> list[ir.Value]:
    """2 G g: (2 g0, g0 + g1 + g2, g0 - g1 + g2, 2 g2)."""
    outer = builder.add(g[0], g[2])
    return [
        builder.add(g[0], g[0]),
        builder.add(outer, g[1]),
        builder.sub(outer, g[1]),
        builder.add(g[2], g[2]),
    ]


@instruction
def transform_sums(
    builder: ir.IRBuilder,
    sums: ir.Value,
    first: ir.Value,
    position_step: ir.Value,
    outputs: Outputs,
    first_channel: ir.Value,
    tile: ir.Value,
    out_shift: ir.Value,
) -> None:
    """float32(Y) * scale + bias of 16 channels, written for a tile's 2 x 2 pixels.

    Pixels are written last to first: a pixel beyond the edge has the position of one inside, which
    then overwrites it.

    Args:
        builder: of the caller's code.
        sums: int32.
        first: position of M's first entry.
        position_step: from an entry of M to the next.
        outputs: as there, four targets for each tile; the initial sums are not read.
        first_channel: index into `scale` and `bias`.
        tile: which.
        out_shift: added to the targets.
    """
    scale, bias = (builder.gep(by, [first_channel]) for by in (outputs.scale, outputs.bias))
    pixel = builder.shl(tile, constant(2))
    places = starts(builder, outputs.out, outputs.targets, pixel, out_shift, 4)
    start = builder.gep(sums, [first])
    two = ir.Constant(I32x8, [2] * HALF)
    for part in range(LANES // HALF):
        lines = []  # M A, row by row
        for row in range(4):
            steps = [
                builder.add(
                    builder.mul(position_step, constant(4 * row + column)), constant(part * HALF)
                )
                for column in range(4)
            ]
            line = [load(builder, builder.gep(start, [at]), I32x8, 4) for at in steps]
            lines.append(_sum_line(builder, line))
        columns = [_sum_line(builder, [line[column] for line in lines]) for column in (0, 1)]
        for pixel in (3, 2, 1, 0):
            exact = builder.ashr(columns[pixel % 2][pixel // 2], two)
            value = scaled(builder, exact, scale, bias, part * HALF)
            store(builder, value, builder.gep(places[pixel], [constant(part * HALF)]), 4)


def _sum_line(builder: ir.IRBuilder, m: list[ir.Value]) -> list[ir.Value]:
    """A^T m: (m0 + m1 + m2, m1 - m2 - m3)."""
    return [
        builder.add(m[0], builder.add(m[1], m[2])),
        builder.sub(builder.sub(m[1], m[2]), m[3]),
    ]
