"""Convolutions of any geometry: tiles summed directly from the image, without copies of it."""

from __future__ import annotations

import numpy as np
from numba import njit

from edgesim.quant.kernels.arrays import Float32, Int8, Int16, Int32, Int64, UInt8
from edgesim.quant.kernels.geometry import Tables
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.multiply_add import (
    PIXELS,
    accumulate_tile,
    scale_row,
    sum_tile,
    sum_tile_scaled,
)
from edgesim.quant.kernels.packing import pack, packed_size
from edgesim.quant.kernels.widening import widen

_CHUNK = 16 * PIXELS  # pixels whose sums wait, 6 KiB, while strips of weights pass


class Direct:
    """A convolution or an input gradient along its tables.

    Args:
        tables: of positions.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @property
    def packed_size(self) -> int:
        """Entries of packed weights."""
        return packed_size(self._tables)

    def pack(self, weights_OkkI: Int8) -> Int16:
        """Weights, flat and in memory order, as `run` reads them."""
        return pack(weights_OkkI, self._tables)

    def run(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        packed: Int16,
        scale: Float32,
        bias: Float32,
        out: Float32,
    ) -> None:
        """Write float32(sums) * scale + bias, both per output channel, into `out`, flat."""
        tables = self._tables
        # The last tile may be filled up with pixels of one sample more.
        block = min(tables.block, len(codes_NHWC) + 1)
        # One more entry: the second factor of the last pair where terms are odd, times zero.
        image = np.zeros(block * tables.image_size + 1, np.int16)
        _run(
            codes_NHWC,
            zero_point,
            image,
            tables.padded,
            block,
            tables.bases,
            tables.targets,
            tables.phases,
            tables.strips,
            tables.segments,
            packed,
            (tables.groups, tables.lanes, tables.panels),
            scale,
            bias,
            out,
        )


@njit(nogil=True, cache=True)
def _run(
    codes_NHWC: UInt8,
    zero_point: int,
    image: Int16,
    padded: tuple[int, int, int, int],
    block: int,
    bases: Int64,
    targets: Int64,
    phases: Int64,
    strips: Int64,
    segments: Int64,
    packed: Int16,
    split: tuple[int, int, int],
    scale: Float32,
    bias: Float32,
    out: Float32,
) -> None:
    samples, _, _, channels = codes_NHWC.shape
    groups, lanes, panels = split
    sums = np.empty(_CHUNK * LANES, np.int32)
    for first in range(0, samples, block):
        count = min(block, samples - first)
        widen(codes_NHWC, first, count, zero_point, padded, channels, image)
        shift = first * (out.size // samples)
        for phase in range(phases.shape[0]):
            base, sample_pixels, strip, strips_end, pair, pairs = phases[phase]
            for panel in range(groups * panels):
                group, lane = panel // panels, panel % panels * LANES
                row = pair * groups * panels + panel * pairs
                here = group * lanes + lane
                done = base
                if strips_end - strip == 1 and lane + LANES <= lanes:
                    done += count * sample_pixels // PIXELS * PIXELS
                    for pixel in range(base, done, PIXELS):
                        sum_tile_scaled(
                            image, bases, pixel, group * (channels // groups), segments,
                            strips[strip, 0], strips[strip, 1], packed, row * 2 * LANES,
                            scale, bias, here, out, shift + here, targets,
                        )  # fmt: skip
                for pixel in range(done, base + count * sample_pixels, _CHUNK):
                    pixels = min(_CHUNK, base + count * sample_pixels - pixel)
                    _sum_strips(
                        image, bases, pixel, pixels, group * (channels // groups), segments,
                        strips, strip, strips_end, packed, row, sums,
                    )  # fmt: skip
                    write_sums(
                        sums, pixels, scale, bias, here, min(LANES, lanes - lane),
                        targets, pixel, shift, out,
                    )  # fmt: skip


@njit(nogil=True, cache=True)
def _sum_strips(
    image: Int16,
    bases: Int64,
    pixel: int,
    pixels: int,
    shift: int,
    segments: Int64,
    strips: Int64,
    strip: int,
    strips_end: int,
    packed: Int16,
    row: int,
    sums: Int32,
) -> None:
    """Sums of a chunk of pixels, tile by tile for each strip of weights."""
    for i in range(0, pixels, PIXELS):
        sum_tile(
            image, bases, pixel + i, shift, segments, strips[strip, 0], strips[strip, 1],
            packed, row * 2 * LANES, sums, i * LANES,
        )  # fmt: skip
    for s in range(strip + 1, strips_end):
        weight = (row + strips[s, 2]) * 2 * LANES
        for i in range(0, pixels, PIXELS):
            accumulate_tile(
                image, bases, pixel + i, shift, segments, strips[s, 0], strips[s, 1],
                packed, weight, sums, i * LANES,
            )  # fmt: skip


@njit(nogil=True, cache=True)
def write_sums(
    sums: Int32,
    pixels: int,
    scale: Float32,
    bias: Float32,
    channel: int,
    lanes: int,
    targets: Int64,
    pixel: int,
    shift: int,
    out: Float32,
) -> None:
    """Scaled sums of a chunk of pixels; of a panel that is not full, those that are meant."""
    for i in range(pixels):
        to = targets[pixel + i] + shift + channel
        if lanes == LANES:
            scale_row(sums, i * LANES, scale, bias, channel, out, to)
        else:
            for lane in range(lanes):
                value = np.float32(sums[i * LANES + lane])
                out[to + lane] = value * scale[channel + lane] + bias[channel + lane]
