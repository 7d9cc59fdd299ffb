"""Convolutions of one group by matrix tiles (`products/amx.py`).

The terms of 32 pixels, two tiles of first factors, are copied out of the image; the tiles of second
factors are the packed weights as they are. The copies of a chunk of pixels serve all channels.

Symbols:
    group, piece: `products/amx.py`   panel, step, segment: `products/tile_sums.py`
    pair: 32 pixels
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd

import numpy as np
from llvmlite import ir

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Int64, UInt8
from edgesim.quant.kernels.convolution.direct import write_sums
from edgesim.quant.kernels.convolution.packing import pack
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import Plan, Tables
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import (
    LANES,
    Loop,
    constant,
    instruction,
    load,
    starts,
    store,
)
from edgesim.quant.kernels.operands import Operands, biases_of, scales_of, scratch_bytes
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.products.amx import (
    FIRST_FACTORS,
    MOST_GROUPS,
    ROW_BYTES,
    ROWS,
    SECOND_FACTORS,
    SUMS,
    add_byte_products,
    configure,
    load_tile,
    release,
    store_tile,
    tile_sizes,
)
from edgesim.quant.kernels.products.tile import QUADS, STEP_BYTES
from edgesim.quant.kernels.products.tile_sums import Factors, Outputs

PAIR = len(FIRST_FACTORS) * ROWS
TILE = replace(QUADS, pixels=PAIR)

_PIECE_BYTES = PAIR * ROW_BYTES  # of a pair's terms
_CHUNK_BYTES = 512 * 1024  # of terms: they stay in the second-level cache
_LEAST_GROUPS = 6  # of a piece; an instruction takes as long for few as for many
_ROW = ir.VectorType(ir.IntType(8), ROW_BYTES)


class AmxTiles:
    """A convolution or an input gradient along its tables, of one group.

    Args:
        tables: of plan, in the form `TILE`.

    Attributes:
        tile: the form of its tiles.

    Raises:
        KernelError: several groups, or a process without matrix tiles.
    """

    def __init__(self, tables: Tables) -> None:
        if not amx.is_native():
            raise KernelError("this process has no matrix tiles; let Convolution choose the way")
        if tables.plan.groups != 1:
            raise KernelError(f"matrix tiles take one group, not {tables.plan.groups}")
        self._tables = tables
        self.tile = tables.tile
        phases = range(len(tables.plan.phases))
        self._groups = np.array([_groups(tables.plan, phase) for phase in phases], np.int64)
        self._sizes = np.stack([tile_sizes(int(groups)) for groups in self._groups])

    @staticmethod
    def suits(tables: Tables) -> bool:
        """Whether tiles are faster than dot products: no piece has few groups."""
        phases = [i for i, phase in enumerate(tables.plan.phases) if phase[5]]
        least = min((_groups(tables.plan, phase) for phase in phases), default=0)
        return least >= _LEAST_GROUPS

    def run(self, operands: Operands) -> None:
        """As `Convolution.convolve`."""
        block = self._tables.samples_in_block(len(operands.codes))
        _run(operands, self._tables.plan, block, self._groups, self._sizes)


def _groups(plan: Plan, phase: int) -> int:
    """Groups of each piece of a phase: the most that divide all its segments."""
    strips = plan.strips[plan.phases[phase, 2] : plan.phases[phase, 3]]
    steps = gcd(*(int(count) for count in plan.segments[strips[0, 0] : strips[-1, 1], 1]))
    return max(groups for groups in range(1, MOST_GROUPS + 1) if steps % groups == 0)


@compiled
def _run(operands: Operands, plan: Plan, block: int, groups: Int64, sizes: UInt8) -> None:
    panels, steps = plan.panels, len(plan.terms)
    packed = scratch_bytes(panels * steps * LANES * STEP_BYTES).view(plan.packed.dtype)
    initial = np.empty(len(plan.phases) * panels * LANES, np.int32)
    pack(operands.weights, operands.zero_point, plan, packed, initial)
    # Whole rows of tiles are copied, so the last may end behind the image.
    image = scratch_bytes(block * plan.image_size + ROW_BYTES)
    image[:] = operands.zero_point
    factors = Factors(image, plan.bases, plan.segments, packed)
    channels = plan.lanes
    outputs = Outputs(
        initial,
        scales_of(operands, channels),
        biases_of(operands, channels),
        operands.out.reshape(-1),
        plan.targets,
    )
    most = 0
    for phase in range(len(plan.phases)):
        most = max(most, plan.phases[phase, 5] // groups[phase])
    pairs = max(1, min(_CHUNK_BYTES // (max(most, 1) * _PIECE_BYTES), len(plan.bases) // PAIR))
    terms = scratch_bytes(pairs * most * _PIECE_BYTES)
    samples = len(operands.codes)
    for first in range(0, samples, block):
        count = min(block, samples - first)
        codes_channels = operands.codes.shape[3]
        fill_in(operands.codes, first, count, plan.padded, codes_channels, 0, image)
        out_shift = first * (outputs.out.size // samples)
        for phase in range(len(plan.phases)):
            configure(sizes[phase])
            _convolve_phase(
                factors, outputs, plan, phase, groups[phase], count, pairs, terms, out_shift
            )
            release()


@inner
def _convolve_phase(
    factors: Factors,
    outputs: Outputs,
    plan: Plan,
    phase: int,
    groups: int,
    samples: int,
    pairs: int,
    terms: UInt8,
    out_shift: int,
) -> None:
    """One phase of a block, a chunk of so many pairs at a time."""
    base, sample_pixels, strip, strips_end, step, steps = plan.phases[phase]
    panels, step_size = plan.panels, LANES * STEP_BYTES
    pieces, end = steps // groups, base + samples * sample_pixels
    segments = plan.strips[strip, 0], plan.strips[strips_end - 1, 1]
    sums = np.empty(len(SECOND_FACTORS) * PAIR * LANES, np.int32)
    for chunk in range(base, end, pairs * PAIR):
        chunk_end = min(chunk + pairs * PAIR, end)
        for pixel in range(chunk, chunk_end, PAIR):
            at = (pixel - chunk) // PAIR * pieces * _PIECE_BYTES
            for segment in range(segments[0], segments[1]):
                offset, count = factors.segments[segment]
                count //= groups
                copy_terms(
                    factors.image,
                    factors.bases,
                    pixel,
                    offset,
                    count,
                    groups * STEP_BYTES,
                    terms,
                    at,
                )
                at += count * _PIECE_BYTES
        panel = 0
        while panel < panels:
            weight = (step * panels + panel * steps) * step_size
            initial = (phase * panels + panel) * LANES
            both = min(len(SECOND_FACTORS), panels - panel)
            for pixel in range(chunk, chunk_end, PAIR):
                at = (pixel - chunk) // PAIR * pieces * _PIECE_BYTES
                multiply = factors.weights, weight, steps * step_size, groups * step_size
                if both > 1:
                    add_two(terms, at, pieces, *multiply, outputs.initial, initial, sums)
                else:
                    add_one(terms, at, pieces, *multiply, outputs.initial, initial, sums)
                for part in range(both):
                    channel = (panel + part) * LANES
                    lanes = min(LANES, plan.lanes - channel)
                    of_panel = sums[part * PAIR * LANES :]
                    pixels = min(PAIR, chunk_end - pixel)
                    write_sums(
                        of_panel, pixels, outputs, pixel, channel, lanes, out_shift + channel
                    )
            panel += both


@instruction
def copy_terms(
    builder: ir.IRBuilder,
    image: ir.Value,
    bases: ir.Value,
    pixel: ir.Value,
    offset: ir.Value,
    pieces: ir.Value,
    piece_bytes: ir.Value,
    terms: ir.Value,
    first_term: ir.Value,
) -> None:
    """Copy a segment's terms of 32 pixels, as tiles of first factors: row by row of 64 bytes.

    Args:
        builder: of the caller's code.
        image: bytes.
        bases: positions of pixels' first terms.
        pixel: index into `bases`.
        offset: of the segment from a base.
        pieces: how many the segment has.
        piece_bytes: from one to the next, in the image.
        terms: written: piece by piece, pixel by pixel.
        first_term: index.
    """
    pixels = starts(builder, image, bases, pixel, offset, PAIR)
    loop = Loop(builder, constant(0), pieces, [builder.gep(terms, [first_term])])
    (to,) = loop.values
    shift = builder.mul(loop.index, piece_bytes)
    for row, start in enumerate(pixels):
        read = load(builder, builder.gep(start, [shift]), _ROW, 1)
        store(builder, read, builder.gep(to, [constant(row * ROW_BYTES)]), 1)
    loop.close([builder.gep(to, [constant(_PIECE_BYTES)])])


def _adder(panels: int) -> Callable[..., None]:
    """An instruction that multiplies 32 pixels by so many panels."""

    def add(
        builder: ir.IRBuilder,
        terms: ir.Value,
        first_term: ir.Value,
        pieces: ir.Value,
        weights: ir.Value,
        first_weight: ir.Value,
        panel_step: ir.Value,
        piece_step: ir.Value,
        initial: ir.Value,
        first_initial: ir.Value,
        sums: ir.Value,
    ) -> None:
        tiles = [
            (tile, panel, SUMS[panel * len(FIRST_FACTORS) + tile])
            for panel in range(panels)
            for tile in range(len(FIRST_FACTORS))
        ]
        before = builder.gep(initial, [first_initial])
        for _, panel, number in tiles:
            load_tile(builder, number, builder.gep(before, [constant(panel * LANES)]), constant(0))
        start = [builder.gep(terms, [first_term]), builder.gep(weights, [first_weight])]
        loop = Loop(builder, constant(0), pieces, start)
        row, weight = loop.values
        for tile, number in enumerate(FIRST_FACTORS):
            part = builder.gep(row, [constant(tile * ROWS * ROW_BYTES)])
            load_tile(builder, number, part, constant(ROW_BYTES))
        for panel in range(panels):
            part = builder.gep(weight, [builder.mul(panel_step, constant(panel))])
            load_tile(builder, SECOND_FACTORS[panel], part, constant(ROW_BYTES))
        for tile, panel, number in tiles:
            add_byte_products(builder, number, FIRST_FACTORS[tile], SECOND_FACTORS[panel])
        next_row = builder.gep(row, [constant(_PIECE_BYTES)])
        loop.close([next_row, builder.gep(weight, [piece_step])])
        for place, (_, _, number) in enumerate(tiles):
            store_tile(builder, number, builder.gep(sums, [constant(place * ROWS * LANES)]))

    add.__doc__ = f"""The sums of 32 pixels and {panels} x 16 channels over all terms.

        Args:
            builder: of the caller's code.
            terms: of `copy_terms`.
            first_term: index.
            pieces: how many.
            weights: packed.
            first_weight: index.
            panel_step: from a panel to the next.
            piece_step: from a piece to the next.
            initial: sums before the first term, lane by lane.
            first_initial: index.
            sums: written: panel by panel, pixel by pixel, lane by lane.
        """
    return instruction(add)


add_one, add_two = _adder(1), _adder(2)
