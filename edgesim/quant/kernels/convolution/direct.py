"""Convolutions of any geometry: tiles summed directly from the image, without copies of it."""

from __future__ import annotations

import numpy as np
from numba import njit

from edgesim.quant.kernels.arrays import Float32, Int8, Int16, Int32, Int64, UInt8
from edgesim.quant.kernels.convolution.widening import widen
from edgesim.quant.kernels.geometry import Tables
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import biases_of, scales_of, scratch_int16
from edgesim.quant.kernels.products.multiply_add import (
    PIXELS,
    accumulate_tile,
    scale_row,
    sum_tile,
    sum_tile_scaled,
)
from edgesim.quant.kernels.products.packing import pack, packed_size

_CHUNK = 16 * PIXELS  # pixels whose sums wait, 6 KiB, while strips of weights pass


class Direct:
    """A convolution or an input gradient along its tables.

    Args:
        tables: of positions.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._sizes = np.array(
            [
                *(tables.image_size, *tables.padded),
                *(tables.groups, tables.lanes, tables.panels),
                *(tables.lane_step, tables.group_step, packed_size(tables)),
            ],
            np.int64,
        )

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
        tables = self._tables
        _run(
            codes_NHWC,
            zero_point,
            weights_OkkI,
            scale,
            weight_scales,
            bias,
            out_NHWO,
            self._sizes,
            tables.bases,
            tables.targets,
            tables.phases,
            tables.strips,
            tables.segments,
            tables.terms,
            tables.samples_in_block(len(codes_NHWC)),
        )


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
    phases: Int64,
    strips: Int64,
    segments: Int64,
    terms: Int64,
    block: int,
) -> None:
    groups, lanes, panels, lane_step, group_step, packed_size_ = sizes[5:]
    packed = scratch_int16(packed_size_)
    pack(weights_OkkI, phases, terms, (lanes, groups, lane_step, group_step), packed)
    # One more entry: the second factor of the last pair where terms are odd, times zero.
    image = np.zeros(block * sizes[0] + 1, np.int16)
    _convolve(
        codes_NHWC,
        zero_point,
        image,
        (sizes[1], sizes[2], sizes[3], sizes[4]),
        block,
        bases,
        targets,
        phases,
        strips,
        segments,
        packed,
        (groups, lanes, panels),
        scales_of(weight_scales, scale, groups * lanes),
        biases_of(bias, groups * lanes),
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
