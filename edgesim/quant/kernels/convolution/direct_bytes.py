"""Convolutions of any geometry in products of bytes, for processors with VNNI.

As `direct.py`, but the image is the codes as they are, with the zero point around them; the sums'
initial values subtract it again (`dot_product.py`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from edgesim.quant.kernels.arrays import Float32, Int8, Int32, Int64, UInt8
from edgesim.quant.kernels.convolution.direct import write_sums
from edgesim.quant.kernels.geometry import Tables
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import biases_of, scales_of, scratch_bytes
from edgesim.quant.kernels.products.dot_product import (
    PIXELS,
    TILE,
    accumulate_tile,
    sum_tile,
    sum_tile_scaled,
)
from edgesim.quant.kernels.products.packing_bytes import pack_bytes

_CHUNK = 16 * PIXELS  # pixels whose sums wait, 6 or 12 KiB, while strips of weights pass
_OVERHANG = TILE.terms - 1  # entries behind a run that its last quad reads, times zero


class DirectBytes:
    """A convolution or an input gradient along its tables.

    Args:
        tables: of positions, for this tile.
    """

    def __init__(self, tables: Tables) -> None:
        assert tables.tile == TILE
        self._tables = tables
        of_image = tables.image_size, *tables.padded
        of_weights = tables.groups, tables.lanes, tables.panels
        steps = tables.lane_step, tables.group_step
        self._sizes = np.array([*of_image, *of_weights, *steps], np.int64)

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
    groups, lanes, panels, lane_step, group_step = sizes[5:]
    packed = scratch_bytes(groups * panels * terms.size * LANES).view(np.int8)
    initial = np.empty(len(phases) * groups * panels * LANES, np.int32)
    layout = lanes, groups, lane_step, group_step
    pack_bytes(weights_OkkI, phases, terms, layout, zero_point, packed, initial)
    image = scratch_bytes(block * sizes[0] + _OVERHANG)
    image[:] = zero_point
    _convolve(
        codes_NHWC,
        image,
        (sizes[1], sizes[2], sizes[3], sizes[4]),
        block,
        bases,
        targets,
        phases,
        strips,
        segments,
        packed,
        initial,
        (groups, lanes, panels),
        scales_of(weight_scales, scale, groups * lanes),
        biases_of(bias, groups * lanes),
        out_NHWO.reshape(-1),
    )


@inner
def _convolve(
    codes_NHWC: UInt8,
    image: UInt8,
    padded: tuple[int, int, int, int],
    block: int,
    bases: Int64,
    targets: Int64,
    phases: Int64,
    strips: Int64,
    segments: Int64,
    packed: Int8,
    initial: Int32,
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
        _fill_in(codes_NHWC, first, count, padded, image)
        shift = first * (out.size // samples)
        for phase in range(phases.shape[0]):
            base, sample_pixels, strip, strips_end, quad, quads = phases[phase]
            end = base + count * sample_pixels
            for panel in range(groups * panels):
                group, lane = panel // panels, panel % panels * LANES
                row = quad * groups * panels + panel * quads
                begin = (phase * groups * panels + panel) * LANES
                here = group * lanes + lane
                done = base
                if strips_end - strip == 1 and lane + LANES <= lanes:
                    done += (end - base) // PIXELS * PIXELS
                    for pixel in range(base, done, PIXELS):
                        sum_tile_scaled(
                            image, bases, pixel, group * (channels // groups), segments,
                            strips[strip, 0], strips[strip, 1], packed, row * 4 * LANES,
                            initial, begin, scale, bias, here, out, shift + here, targets,
                        )  # fmt: skip
                for pixel in range(done, end, _CHUNK):
                    pixels = min(_CHUNK, end - pixel)
                    _sum_strips(
                        image, bases, pixel, pixels, group * (channels // groups), segments,
                        strips, strip, strips_end, packed, row, initial, begin, sums,
                    )  # fmt: skip
                    write_sums(
                        sums, pixels, scale, bias, here, min(LANES, lanes - lane),
                        targets, pixel, shift, out,
                    )  # fmt: skip


@njit(nogil=True, cache=True)
def _fill_in(
    codes_NHWC: UInt8, first: int, count: int, padded: tuple[int, int, int, int], image: UInt8
) -> None:
    """Copy samples `first` to `first + count` into the image; what is around them stays."""
    top, left, height, width = padded
    _, H, W, C = codes_NHWC.shape
    codes = codes_NHWC.reshape(-1)
    for n in range(count):
        for y in range(H):
            start = ((first + n) * H + y) * W * C
            to = ((n * height + top + y) * width + left) * C
            _copy(codes[start : start + W * C], image[to : to + W * C])


@njit(nogil=True, cache=True)
def _copy(codes: UInt8, run: UInt8) -> None:
    # A call of its own, on arrays of the run alone, is what LLVM makes vectors of.
    for i in range(codes.size):
        run[i] = codes[i]


@njit(nogil=True, cache=True)
def _sum_strips(
    image: UInt8,
    bases: Int64,
    pixel: int,
    pixels: int,
    shift: int,
    segments: Int64,
    strips: Int64,
    strip: int,
    strips_end: int,
    packed: Int8,
    row: int,
    initial: Int32,
    begin: int,
    sums: Int32,
) -> None:
    """Sums of a chunk of pixels, tile by tile for each strip of weights."""
    for i in range(0, pixels, PIXELS):
        sum_tile(
            image, bases, pixel + i, shift, segments, strips[strip, 0], strips[strip, 1],
            packed, row * 4 * LANES, initial, begin, sums, i * LANES,
        )  # fmt: skip
    for s in range(strip + 1, strips_end):
        weight = (row + strips[s, 2]) * 4 * LANES
        for i in range(0, pixels, PIXELS):
            accumulate_tile(
                image, bases, pixel + i, shift, segments, strips[s, 0], strips[s, 1],
                packed, weight, sums, i * LANES,
            )  # fmt: skip
