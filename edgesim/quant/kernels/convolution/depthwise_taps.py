"""Sums over taps for convolutions in which each channel has a kernel of its own.

Two taps are multiplied by one instruction: the numbers of two pixels of the image are interleaved,
channel by channel, as the weights of the two taps are beforehand.

Symbols:
    band: 16 channels   tap pair: two taps; where their number is odd, the last one's second has
    weights of zero
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from edgesim.quant.kernels.arrays import Int16, Int64
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
    zeros,
)
from edgesim.quant.kernels.products.tile_sums import Outputs, Place

TAP_PIXELS = 3  # summed together: the weights are loaded once for them

# Channels in the order in which 256-bit registers are interleaved: within halves of 128 bits.
INTERLEAVED = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


class Taps(NamedTuple):
    """What is multiplied; in an instruction, pointers to it.

    Attributes:
        image: of whole bands.
        bases: positions in the image of pixels' first taps.
        offsets: shape (tap pairs, 2), from a pixel's base.
        weights: 32 for each tap pair of a band, channels `INTERLEAVED`.
    """

    image: Int16
    bases: Int64
    offsets: Int64
    weights: Int16


@instruction
def sum_taps(
    builder: ir.IRBuilder,
    taps: Taps,
    place: Place,
    outputs: Outputs,
    first_channel: ir.Value,
    out_shift: ir.Value,
    first_target: ir.Value,
) -> None:
    """out[target of the pixel + channel] = float32(sum) * scale + bias.

    For three pixels and one band.

    Args:
        builder: of the caller's code.
        taps: as there.
        place: its first and last are tap pairs.
        outputs: as there; the initial sums are not read.
        first_channel: index into `scale` and `bias`.
        out_shift: added to the targets.
        first_target: index of three targets.
    """
    pixels = starts(builder, taps.image, taps.bases, place.pixel, place.shift, TAP_PIXELS)
    row = builder.gep(taps.weights, [place.weight])
    loop = Loop(builder, place.first, place.last, [row, *zeros(I32x8, 2 * TAP_PIXELS)])
    row, *totals = loop.values
    at = builder.shl(loop.index, constant(1))
    offsets = [element(builder, taps.offsets, at, i) for i in (0, 1)]
    factors = [load(builder, builder.gep(row, [constant(i * LANES)]), I16x16, 2) for i in (0, 1)]
    new = []
    for pixel, start in enumerate(pixels):
        two = [load(builder, builder.gep(start, [tap]), I16x16, 2) for tap in offsets]
        for half in (0, 1):
            product = multiply_add_pairs(builder, _interleave(builder, two, half), factors[half])
            new.append(builder.add(totals[2 * pixel + half], product))
    totals = loop.close([builder.gep(row, [constant(2 * LANES)]), *new])[1:]
    scale, bias = (builder.gep(by, [first_channel]) for by in (outputs.scale, outputs.bias))
    places = starts(builder, outputs.out, outputs.targets, first_target, out_shift, TAP_PIXELS)
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
