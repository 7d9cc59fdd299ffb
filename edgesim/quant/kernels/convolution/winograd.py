"""3 x 3 convolutions of stride 1 with 2.25 times fewer products, exactly (arXiv 1509.09308).

Winograd's F(2x2, 3x3) computes the 2 x 2 outputs of a tile from 16 products per channel instead of
36. In floats that costs accuracy; in integers it is exact. Weights are transformed by 2 G instead
of G, so they stay whole. Transformed codes and weights fit 16 bits. Partial sums may overflow 32
bits; they wrap, and the final sum, four times the result, fits 32 bits. Used on processors without
products of bytes (`products/tile.py`).

Symbols:
    tile: 2 x 2 outputs   position: entry of a 4 x 4 transform   panel: 16 output channels
    V, U, M: transformed image, weights, and the sums of their products (`winograd_transforms.py`)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Int8, Int16, Int32, Int64
from edgesim.quant.kernels.convolution.packing import pack_panel
from edgesim.quant.kernels.convolution.winograd_transforms import (
    POSITIONS,
    transform_image,
    transform_sums,
    transform_weights,
)
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import MAX_TERMS, Axis, Tables
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import Operands, biases_of, scales_of, scratch_int16
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.products.tile import PAIRS
from edgesim.quant.kernels.products.tile_sums import Outputs, sum_rows

_IMAGE_BYTES = 192 * 1024  # of a block of samples: second-level cache
# Tiles and panels worked on together. V and M should fit the second-level cache; the weights of
# wide layers don't, and are to be fetched for many tiles at once.
_PIXELS = PAIRS.pixels
_CHUNK, _WIDE_CHUNK, _WIDE = (8 * _PIXELS, 1), (16 * _PIXELS, 4), 256
_WORTH = 0.8  # most of its products, relative to the direct way: transforms take time as well


class _Plan(NamedTuple):
    """Positions and sizes that compiled code reads.

    Attributes:
        block: samples whose image is made at a time.
        padded: zeros above and to the left of a sample, height and width with all zeros.
        image_size: entries of a sample's padded image.
        bases: positions in the image of a block's tiles.
        targets: positions in the output of their 2 x 2 pixels, shape (tiles, 4).
        sample_tiles: tiles of a sample.
        sample_outputs: entries of a sample's output.
        chunk: tiles worked on together.
        group: panels worked on together.
        terms: positions of the weights, as `Plan` has them.
        lanes: output channels.
        lane_step: from a lane's weight to the next lane's.
    """

    block: int
    padded: tuple[int, int, int, int]
    image_size: int
    bases: Int64
    targets: Int64
    sample_tiles: int
    sample_outputs: int
    chunk: int
    group: int
    terms: Int64
    lanes: int
    lane_step: int


class Winograd:
    """A convolution or an input gradient by tiles of 2 x 2.

    Args:
        tables: of a geometry that can be computed so.

    Raises:
        KernelError: another geometry.
    """

    def __init__(self, tables: Tables) -> None:
        if not self.can_compute(tables):
            raise KernelError(
                "Winograd's convolution has a 3 x 3 kernel, stride 1, one group and multiples of "
                "16 channels; choose method direct"
            )
        rows, columns, lanes = tables.rows, tables.columns, tables.plan.lanes
        padded = (rows.before, columns.before, _even(rows), _even(columns))
        image_size = padded[2] * padded[3] * tables.channels
        sample_tiles = -(-rows.out_size // 2) * -(-columns.out_size // 2)
        sample_outputs = rows.out_size * columns.out_size * lanes
        chunk, group = _WIDE_CHUNK if tables.channels >= _WIDE else _CHUNK
        block = max(-(-chunk // sample_tiles), _IMAGE_BYTES // (2 * image_size))
        self._plan = _Plan(
            block,
            padded,
            image_size,
            _for_block(_bases(tables, padded[3]), block, image_size),
            _for_block(_targets(tables), block, sample_outputs),
            sample_tiles,
            sample_outputs,
            chunk,
            group,
            tables.plan.terms,
            lanes,
            tables.plan.lane_step,
        )

    @staticmethod
    def can_compute(tables: Tables) -> bool:
        """Whether Winograd can compute this geometry."""
        rows, columns = tables.rows, tables.columns
        return (
            tables.plan.groups == 1
            and len(rows.phases) == len(columns.phases) == 1
            and rows.phases[0].base_step == columns.phases[0].base_step == 1
            and len(rows.phases[0].taps) == len(columns.phases[0].taps) == 3
            and tables.channels % LANES == tables.plan.lanes % LANES == 0
            and 9 * tables.channels * 4 <= MAX_TERMS
        )

    @staticmethod
    def suits(tables: Tables) -> bool:
        """Whether Winograd can compute this geometry faster than the direct way."""
        height, width = tables.rows.out_size, tables.columns.out_size
        products = POSITIONS * -(-height // 2) * -(-width // 2)
        return Winograd.can_compute(tables) and products <= _WORTH * 9 * height * width

    def run(self, operands: Operands) -> None:
        """As `Convolution.convolve`."""
        _run(operands, self._plan)


def _even(axis: Axis) -> int:
    """Size that also holds the tiles which reach beyond an odd number of outputs."""
    return max(axis.size, axis.phases[0].base_start + 2 * -(-axis.out_size // 2) + 2)


def _for_block(positions: Int64, block: int, sample_step: int) -> Int64:
    """Positions in all samples of a block."""
    steps = np.arange(block, dtype=np.int64).reshape(-1, *[1] * positions.ndim) * sample_step
    in_block: Int64 = (positions + steps).reshape(-1, *positions.shape[1:])
    return in_block


def _bases(tables: Tables, width: int) -> Int64:
    """Positions of the tiles' first pixels in a sample's image."""
    starts = [
        axis.phases[0].base_start + np.arange(0, axis.out_size, 2, dtype=np.int64)
        for axis in (tables.rows, tables.columns)
    ]
    positions: Int64 = np.add.outer(starts[0] * width, starts[1]).ravel() * tables.channels
    return positions


def _targets(tables: Tables) -> Int64:
    """Positions of the tiles' 2 x 2 outputs, shape (tiles, 4).

    An output beyond the edge gets the position of its neighbour inside, which is written later.
    """
    rows, columns = (
        np.minimum(
            np.arange(0, axis.out_size, 2)[:, None] + np.arange(2, dtype=np.int64),
            axis.out_size - 1,
        )
        for axis in (tables.rows, tables.columns)
    )
    pixels = rows[:, None, :, None] * tables.columns.out_size + columns[:, None, :]
    targets: Int64 = pixels.reshape(-1, 4) * tables.plan.lanes
    return targets


@inner
def _pack(weights: Int8, terms: Int64, lane_step: int, direct: Int16, packed: Int16) -> None:
    """U as (panel, position, pair of channels, lane, channel of the pair), panel by panel.

    `direct` holds a panel of weights in between.
    """
    tap_step = direct.size // 9
    for panel in range(packed.size // (POSITIONS * tap_step)):
        pack_panel(weights, panel * LANES * lane_step, LANES, lane_step, terms, direct)
        for i in range(0, tap_step, LANES):
            to = panel * POSITIONS * tap_step + i
            transform_weights(direct, i, tap_step, packed, to, tap_step)


@compiled
def _run(operands: Operands, plan: _Plan) -> None:
    C, lanes = operands.codes.shape[3], plan.lanes
    packed = scratch_int16(lanes * C * POSITIONS)
    direct = scratch_int16(9 * C * LANES)
    _pack(operands.weights, plan.terms, plan.lane_step, direct, packed)
    block = min(plan.block, len(operands.codes))
    outputs = Outputs(
        np.empty(0, np.int32),
        scales_of(operands, lanes),
        biases_of(operands, lanes),
        operands.out.reshape(-1),
        plan.targets.reshape(-1),
    )
    # A cache line more than needed: with steps of whole pages, rows would share the same cache
    # lines.
    V = scratch_int16(POSITIONS * (plan.chunk * C + 32))
    M = np.empty(plan.group * POSITIONS * (plan.chunk * LANES + 16), np.int32)
    image = np.zeros(block * plan.image_size, np.int16)
    for first in range(0, len(operands.codes), block):
        count = min(block, len(operands.codes) - first)
        fill_in(operands.codes, first, count, plan.padded, C, operands.zero_point, image)
        _convolve_block(plan, C, count, image, packed, V, M, outputs, first)


@inner
def _convolve_block(
    plan: _Plan,
    C: int,
    count: int,
    image: Int16,
    packed: Int16,
    V: Int16,
    M: Int32,
    outputs: Outputs,
    first: int,
) -> None:
    """Outputs of `count` samples from the image, which begins with sample `first`."""
    panel_size = POSITIONS * C * LANES
    V_step, M_step = V.size // POSITIONS, plan.chunk * LANES + 16
    group, width = plan.group, plan.padded[3] * C
    out_first = first * plan.sample_outputs
    for start in range(0, count * plan.sample_tiles, plan.chunk):
        tiles = min(plan.chunk, count * plan.sample_tiles - start)
        for i in range(tiles):
            at = plan.bases[start + i]
            for c in range(0, C, LANES):
                transform_image(image, at + c, width, C, V, i * C + c, V_step)
        for panel in range(0, packed.size // panel_size, group):
            panels = min(group, packed.size // panel_size - panel)
            for position in range(POSITIONS):
                for g in range(panels):
                    weight = (panel + g) * panel_size + position * C * LANES
                    for i in range(0, tiles, _PIXELS):
                        row = position * V_step + i * C
                        to = (g * POSITIONS + position) * M_step + i * LANES
                        sum_rows(V, row, C, C // LANES, packed, weight, M, to)
            for g in range(panels):
                channel = (panel + g) * LANES
                for i in range(tiles):
                    at = g * POSITIONS * M_step + i * LANES
                    tile = start + i
                    transform_sums(M, at, M_step, outputs, channel, tile, out_first + channel)
