"""3 x 3 convolutions of stride 1 with 2.25 times fewer products, exactly (arXiv 1509.09308).

Winograd's F(2x2, 3x3) makes the 2 x 2 outputs of a tile from 16 products a channel where 36 are
asked for. In floats that costs accuracy, in integers nothing: transformed by 2 G and not by G, the
weights stay whole; transformed codes and weights fit 16 bits; and that sums overflow 32 bits on the
way does no harm, because what they come to, four times the result, does not. For processors
without products of bytes (`direct_bytes.py`).

Symbols:
    tile: 2 x 2 outputs   position: entry of a 4 x 4 transform   panel: 16 output channels
    V, U, M: transformed image, weights, and the sums of their products (`winograd_transforms.py`)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from edgesim.quant.kernels.arrays import Float32, Int8, Int16, Int64, UInt8
from edgesim.quant.kernels.convolution.widening import widen
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
from edgesim.quant.kernels.operands import biases_of, scales_of, scratch_int16
from edgesim.quant.kernels.products.multiply_add import PIXELS, sum_rows
from edgesim.quant.kernels.products.packing import pack_panel

_IMAGE_BYTES = 192 * 1024  # of a block of samples: second-level cache
# Tiles and panels worked on together. V and M should fit the second-level cache; the weights of
# wide layers don't, and are to be fetched for many tiles at once.
_CHUNK, _WIDE_CHUNK, _WIDE = (8 * PIXELS, 1), (16 * PIXELS, 4), 256
_WORTH = 0.8  # of the products of the direct way at most: transforms cost as well


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
        self._tables = tables
        rows, columns = tables.rows, tables.columns
        padded = (rows.before, columns.before, _even(rows), _even(columns))
        image_size = padded[2] * padded[3] * tables.channels
        sample_tiles = -(-rows.out_size // 2) * -(-columns.out_size // 2)
        chunk, group = _WIDE_CHUNK if tables.channels >= _WIDE else _CHUNK
        block = max(-(-chunk // sample_tiles), _IMAGE_BYTES // (2 * image_size))
        self._bases = _for_block(_bases(tables, padded[3]), block, image_size)
        out_size = rows.out_size * columns.out_size * tables.lanes
        self._targets = _for_block(_targets(tables), block, out_size)
        of_image = block, *padded, image_size
        of_weights = tables.lanes, tables.lane_step
        self._sizes = np.array([*of_image, *of_weights, sample_tiles, chunk, group], np.int64)

    @staticmethod
    def can_compute(tables: Tables) -> bool:
        """Whether this way can be taken."""
        rows, columns = tables.rows, tables.columns
        return (
            tables.groups == 1
            and len(rows.phases) == len(columns.phases) == 1
            and rows.phases[0].base_step == columns.phases[0].base_step == 1
            and len(rows.phases[0].taps) == len(columns.phases[0].taps) == 3
            and tables.channels % LANES == tables.lanes % LANES == 0
            and 9 * tables.channels * 4 <= MAX_TERMS
        )

    @staticmethod
    def suits(tables: Tables) -> bool:
        """Whether it can be taken, and is shorter than the direct way."""
        height, width, _ = tables.out_shape
        products = POSITIONS * -(-height // 2) * -(-width // 2)
        return Winograd.can_compute(tables) and products <= _WORTH * 9 * height * width

    def run(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        weights_OkkI: Int8,
        scale: float,
        weight_scales: Float32,
        bias: Float32,
        out_NHWO: Float32,
    ) -> None:
        """As `Convolution.convolve`; weights are flat, and no biases are an empty array."""
        _run(
            codes_NHWC,
            zero_point,
            weights_OkkI,
            scale,
            weight_scales,
            bias,
            out_NHWO,
            self._sizes,
            self._bases,
            self._targets,
            self._tables.terms,
        )


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

    An output beyond the edge has the place of its neighbour within, which is written after it.
    """
    rows, columns = (
        np.minimum(
            np.arange(0, axis.out_size, 2)[:, None] + np.arange(2, dtype=np.int64),
            axis.out_size - 1,
        )
        for axis in (tables.rows, tables.columns)
    )
    pixels = rows[:, None, :, None] * tables.columns.out_size + columns[:, None, :]
    targets: Int64 = pixels.reshape(-1, 4) * tables.lanes
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


@njit(nogil=True, cache=True)
def _run(
    codes_NHWC: UInt8,
    zero_point: int,
    weights_OkkI: Int8,
    scale: float,
    weight_scales: Float32,
    bias: Float32,
    out_NHWO: Float32,
    sizes: Int64,
    bases: Int64,
    targets: Int64,
    terms: Int64,
) -> None:
    image_size, lanes, lane_step, sample_tiles, chunk, group = sizes[5:]
    C = codes_NHWC.shape[3]
    packed = scratch_int16(lanes * C * POSITIONS)
    _pack(weights_OkkI, terms, lane_step, scratch_int16(9 * C * LANES), packed)
    block = min(sizes[0], len(codes_NHWC))
    _convolve(
        codes_NHWC,
        zero_point,
        np.zeros(block * image_size, np.int16),
        (sizes[1], sizes[2], sizes[3], sizes[4]),
        block,
        bases,
        targets,
        sample_tiles,
        chunk,
        group,
        # A cache line more than needed: steps of whole pages would compete for the same lines.
        scratch_int16(POSITIONS * (chunk * C + 32)),
        packed,
        scales_of(weight_scales, scale, lanes),
        biases_of(bias, lanes),
        out_NHWO.reshape(-1),
    )


@inner
def _convolve(
    codes_NHWC: UInt8,
    zero_point: int,
    image: Int16,
    padded: tuple[int, int, int, int],
    block: int,
    bases: Int64,
    targets: Int64,
    sample_tiles: int,
    chunk: int,
    group: int,
    V: Int16,
    packed: Int16,
    scale: Float32,
    bias: Float32,
    out: Float32,
) -> None:
    samples, _, _, C = codes_NHWC.shape
    panel_size = POSITIONS * C * LANES
    V_step, M_step = V.size // POSITIONS, chunk * LANES + 16
    M = np.empty(group * POSITIONS * M_step, np.int32)
    out_size = out.size // samples
    for first in range(0, samples, block):
        count = min(block, samples - first)
        widen(codes_NHWC, first, count, zero_point, padded, C, image)
        for start in range(0, count * sample_tiles, chunk):
            tiles = min(chunk, count * sample_tiles - start)
            for i in range(tiles):
                at = bases[start + i]
                for c in range(0, C, LANES):
                    transform_image(image, at + c, padded[3] * C, C, V, i * C + c, V_step)
            for panel in range(0, packed.size // panel_size, group):
                panels = min(group, packed.size // panel_size - panel)
                for position in range(POSITIONS):
                    for g in range(panels):
                        weight = (panel + g) * panel_size + position * C * LANES
                        for i in range(0, tiles, PIXELS):
                            row = position * V_step + i * C
                            to = (g * POSITIONS + position) * M_step + i * LANES
                            sum_rows(V, row, C, C // LANES, packed, weight, M, to)
                for g in range(panels):
                    channel = (panel + g) * LANES
                    for i in range(tiles):
                        transform_sums(
                            M, g * POSITIONS * M_step + i * LANES, M_step, scale, bias,
                            channel, out, targets, start + i, first * out_size + channel,
                        )  # fmt: skip
