"""Convolutions of any geometry: tiles summed directly from the image, without copies of it.

The terms of the sums are pairs of 16-bit numbers or quads of bytes (`products/tile.py`). Compiled
code chooses between them by the dtype of the image and of the packed weights.
"""

from __future__ import annotations

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Int32
from edgesim.quant.kernels.convolution.packing import pack
from edgesim.quant.kernels.geometry import Plan, Tables
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import Operands, biases_of, scales_of, scratch_bytes
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.products.tile import STEP_BYTES
from edgesim.quant.kernels.products.tile_sums import (
    Factors,
    Outputs,
    Place,
    scale_row,
    sum_tile,
    sum_tile_scaled,
)

_CHUNK_TILES = 16  # tiles of a chunk, whose sums (6 or 12 KiB) stay in the cache


class Direct:
    """A convolution or an input gradient along its tables.

    Args:
        tables: of plan.

    Attributes:
        tile: the form of its tiles.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.tile = tables.tile

    def run(self, operands: Operands) -> None:
        """As `Convolution.convolve`."""
        block = self._tables.samples_in_block(len(operands.codes))
        _run(operands, self._tables.plan, block)


@compiled
def _run(operands: Operands, plan: Plan, block: int) -> None:
    channels, panels = plan.groups * plan.lanes, plan.groups * plan.panels
    steps, terms = plan.terms.shape
    packed = scratch_bytes(panels * steps * LANES * STEP_BYTES).view(plan.packed.dtype)
    initial = np.empty(len(plan.phases) * panels * LANES, np.int32)
    pack(operands.weights, operands.zero_point, plan, packed, initial)
    # The last step of a run may read entries behind the image; their weights are zero.
    size = block * plan.image_size + terms - 1
    image = scratch_bytes(size * plan.image.itemsize).view(plan.image.dtype)
    image[:] = operands.zero_point
    _convolve(
        operands,
        Factors(image, plan.bases, plan.segments, packed),
        Outputs(
            initial,
            scales_of(operands, channels),
            biases_of(operands, channels),
            operands.out.reshape(-1),
            plan.targets,
        ),
        plan,
        block,
    )


@inner
def _convolve(
    operands: Operands,
    factors: Factors,
    outputs: Outputs,
    plan: Plan,
    block: int,
) -> None:
    codes_NHWC, strips = operands.codes, plan.strips
    samples, channels = len(codes_NHWC), codes_NHWC.shape[3]
    panels, row_size = plan.groups * plan.panels, LANES * plan.terms.shape[1]
    chunk = _CHUNK_TILES * plan.pixels
    sums = np.empty(chunk * LANES, np.int32)
    for first in range(0, samples, block):
        count = min(block, samples - first)
        fill_in(codes_NHWC, first, count, plan.padded, channels, 0, factors.image)
        out_first = first * (outputs.out.size // samples)
        for phase in range(len(plan.phases)):
            base, sample_pixels, strip, strips_end, step, steps = plan.phases[phase]
            end = base + count * sample_pixels
            for panel in range(panels):
                group, lane = panel // plan.panels, panel % plan.panels * LANES
                lanes = min(LANES, plan.lanes - lane)
                channel = group * plan.lanes + lane
                shift = group * (channels // plan.groups)
                weight = (step * panels + panel * steps) * row_size
                initial = (phase * panels + panel) * LANES
                done = base
                if strips_end - strip == 1 and lanes == LANES:
                    done += (end - base) // plan.pixels * plan.pixels
                    for pixel in range(base, done, plan.pixels):
                        place = Place(pixel, shift, strips[strip, 0], strips[strip, 1], weight)
                        sum_tile_scaled(
                            factors, place, outputs, initial, channel, out_first + channel
                        )
                for pixel in range(done, end, chunk):
                    pixels = min(chunk, end - pixel)
                    for s in range(strip, strips_end):
                        row = weight + strips[s, 2] * row_size
                        begins = s == strip
                        before = outputs.initial if begins else sums
                        for i in range(0, pixels, plan.pixels):
                            place = Place(pixel + i, shift, strips[s, 0], strips[s, 1], row)
                            first_before = initial if begins else i * LANES
                            before_step = 0 if begins else LANES
                            sum_tile(
                                factors, place, before, first_before, before_step, sums, i * LANES
                            )
                    write_sums(sums, pixels, outputs, pixel, channel, lanes, out_first + channel)


@inner
def write_sums(
    sums: Int32,
    pixels: int,
    outputs: Outputs,
    pixel: int,
    channel: int,
    lanes: int,
    out_shift: int,
) -> None:
    """Write the scaled sums of a chunk of pixels.

    Of a panel that is not full, its `lanes` lanes.
    """
    scale, bias, out = outputs.scale, outputs.bias, outputs.out
    for i in range(pixels):
        to = outputs.targets[pixel + i] + out_shift
        if lanes == LANES:
            scale_row(sums, i * LANES, outputs, channel, to)
            continue
        for lane in range(lanes):
            value = np.float32(sums[i * LANES + lane])
            out[to + lane] = value * scale[channel + lane] + bias[channel + lane]
