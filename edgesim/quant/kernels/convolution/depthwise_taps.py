"""Sums over taps for convolutions in which each channel has a kernel of its own.

Two taps are multiplied by one instruction: the numbers of two pixels of the image are interleaved,
channel by channel, as the weights of the two taps are beforehand.

Symbols:
    band: 16 channels   tap pair: two taps; where their number is odd, the last one's second has
    weights of zero
"""

from __future__ import annotations

from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    HALF,
    I32,
    LANES,
    I16x16,
    I32x8,
    Loop,
    constant,
    element,
    instruction,
    load,
    multiply_add_pairs,
    starts,
    store_scaled,
)

TAP_PIXELS = 3  # summed together: the weights are loaded once for them

# Channels in the order in which 256-bit registers are interleaved: within halves of 128 bits.
INTERLEAVED = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


@instruction
def sum_taps(
    builder: ir.IRBuilder,
    image: ir.Value,
    bases: ir.Value,
    first_base: ir.Value,
    shift: ir.Value,
    offsets: ir.Value,
    first_pair: ir.Value,
    last_pair: ir.Value,
    weights: ir.Value,
    first_weight: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    first_channel: ir.Value,
    out: ir.Value,
    out_shift: ir.Value,
    targets: ir.Value,
    first_target: ir.Value,
) -> None:
    """out[target of the pixel + channel] = float32(sum) * scale + bias.

    Of three pixels and one band.

    Args:
        builder: of the caller's code.
        image: int16.
        bases: int64; three of them, from `first_base`, are read.
        first_base: index.
        shift: added to all bases.
        offsets: int64, shape (tap pairs, 2), from a pixel's base.
        first_pair: index.
        last_pair: index behind the last.
        weights: int16, 32 for each tap pair, channels `INTERLEAVED`.
        first_weight: index.
        scale: float32.
        bias: float32.
        first_channel: index into `scale` and `bias`.
        out: float32.
        out_shift: added to the targets.
        targets: int64; three of them, from `first_target`, are read.
        first_target: index.
    """
    pixels = starts(builder, image, bases, first_base, shift, TAP_PIXELS)
    row = builder.gep(weights, [first_weight])
    zero = ir.Constant(I32x8, [0] * HALF)
    loop = Loop(builder, first_pair, last_pair, [row, *[zero] * (2 * TAP_PIXELS)])
    row, *totals = loop.values
    at = builder.shl(loop.index, constant(1))
    taps = [element(builder, offsets, at, i) for i in (0, 1)]
    factors = [load(builder, builder.gep(row, [constant(i * LANES)]), I16x16, 2) for i in (0, 1)]
    new = []
    for pixel, start in enumerate(pixels):
        two = [load(builder, builder.gep(start, [tap]), I16x16, 2) for tap in taps]
        for half in (0, 1):
            product = multiply_add_pairs(builder, _interleave(builder, two, half), factors[half])
            new.append(builder.add(totals[2 * pixel + half], product))
    totals = loop.close([builder.gep(row, [constant(2 * LANES)]), *new])[1:]
    scale, bias = (builder.gep(pointer, [first_channel]) for pointer in (scale, bias))
    places = starts(builder, out, targets, first_target, out_shift, TAP_PIXELS)
    store_scaled(builder, _in_order(builder, totals), scale, bias, places)


def _interleave(builder: ir.IRBuilder, two: list[ir.Value], half: int) -> ir.Value:
    order = [part * LANES + channel for channel in INTERLEAVED[half] for part in (0, 1)]
    return builder.shuffle_vector(*two, ir.Constant(ir.VectorType(I32, LANES), order))


def _in_order(builder: ir.IRBuilder, totals: list[ir.Value]) -> list[ir.Value]:
    """Sums of each pixel's channels 0 to 7 and 8 to 15."""
    where = [*INTERLEAVED[0], *INTERLEAVED[1]]
    orders = [[where.index(half * HALF + i) for i in range(HALF)] for half in (0, 1)]
    return [
        builder.shuffle_vector(totals[pixel], totals[pixel + 1], ir.Constant(I32x8, order))
        for pixel in range(0, len(totals), 2)
        for order in orders
    ]
