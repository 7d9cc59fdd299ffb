"""Convolutions in which each channel has a kernel of its own, sixteen channels at a time.

Symbols:
    band: 16 channels; the image and the weights have zeros beyond the last channel
    tap pair: two taps, multiplied by one instruction (`depthwise_taps.py`)
"""

from __future__ import annotations

from itertools import product

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Int8, Int16, Int64, aligned
from edgesim.quant.kernels.convolution.depthwise_taps import (
    INTERLEAVED,
    TAP_PIXELS,
    Taps,
    sum_taps,
)
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import Phase, Tables
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import Operands
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.products.tile_sums import Outputs, Place

_CHUNK = 32 * TAP_PIXELS  # pixels: their image stays in the first-level cache over all bands


class Depthwise:
    """A convolution or an input gradient with as many groups as channels.

    Args:
        tables: of an image of whole bands.

    Raises:
        KernelError: another geometry.
    """

    def __init__(self, tables: Tables) -> None:
        groups, lanes = tables.plan.groups, tables.plan.lanes
        if groups != tables.channels or lanes != 1:
            raise KernelError(
                f"a depthwise convolution has as many groups as channels, not {groups} "
                f"groups of {tables.channels}; choose method direct"
            )
        self._tables = tables
        phases = list(product(tables.rows.phases, tables.columns.phases))
        k = round(tables.plan.group_step**0.5)  # a group's weights are those of its channel, k x k
        self._taps = [
            [r * k + c for r, c in product(row.taps, column.taps)] for row, column in phases
        ]
        self._offsets = np.concatenate([self._offsets_of(row, column) for row, column in phases])
        counts = [-(-len(taps) // 2) for taps in self._taps]
        ends = np.cumsum([0, *counts])
        # First base, pixels of a sample, first and last tap pair.
        self._phases = np.column_stack([tables.plan.phases[:, :2], ends[:-1], ends[1:]])

    def run(self, operands: Operands) -> None:
        """As `Convolution.convolve`."""
        tables, plan = self._tables, self._tables.plan
        scale_C, bias_C = np.zeros((2, tables.step), np.float32)
        scale_C[: tables.channels] = operands.weight_scales * np.float32(operands.scale)
        if operands.bias.size:
            bias_C[: tables.channels] = operands.bias
        block = tables.samples_in_block(len(operands.codes))
        image = np.zeros(block * plan.image_size, np.int16)
        taps = Taps(image, plan.bases, self._offsets, self._pack(operands.weights))
        out = operands.out.reshape(-1)
        outputs = Outputs(np.empty(0, np.int32), scale_C, bias_C, out, plan.targets)
        _run(operands, taps, outputs, self._phases, plan.padded, tables.step, block)

    def _pack(self, weights_CkkI: Int8) -> Int16:
        """Weights, I = 1, as (phase, band, tap pair, channel, tap of the pair)."""
        tables = self._tables
        taps_CT = np.zeros((tables.step, tables.plan.group_step + 1), np.int16)
        taps_CT[: tables.channels, :-1] = weights_CkkI.reshape(tables.channels, -1)
        order = np.array(INTERLEAVED).ravel()
        packed = []
        for taps in self._taps:
            # The last column, of zeros, makes their number even.
            chosen = taps_CT[:, [*taps, *[-1] * (len(taps) % 2)]]
            shape = tables.step // LANES, LANES, len(chosen[0]) // 2, 2
            by_band = chosen.reshape(shape)[:, order]
            packed.append(by_band.transpose(0, 2, 1, 3).ravel())
        weights: Int16 = aligned(2 * len(self._offsets) * tables.step, np.int16)
        np.concatenate(packed, out=weights)
        return weights

    def _offsets_of(self, row: Phase, column: Phase) -> Int64:
        """Offsets of a phase's taps from a pixel's base, shape (tap pairs, 2)."""
        width, step = self._tables.columns.size, self._tables.step
        taps = product(range(len(row.taps)), range(len(column.taps)))
        offsets = np.array([(r * width + c) * step for r, c in taps], np.int64)
        return np.pad(offsets, (0, len(offsets) % 2)).reshape(-1, 2)


@compiled
def _run(
    operands: Operands,
    taps: Taps,
    outputs: Outputs,
    phases: Int64,
    padded: tuple[int, int, int, int],
    step: int,
    block: int,
) -> None:
    codes_NHWC, out = operands.codes, outputs.out
    samples, _, _, C = codes_NHWC.shape
    aside = np.empty(TAP_PIXELS * LANES, np.float32)
    aside_targets = np.arange(0, TAP_PIXELS * LANES, LANES)
    to_aside = Outputs(outputs.initial, outputs.scale, outputs.bias, aside, aside_targets)
    for first in range(0, samples, block):
        count = min(block, samples - first)
        fill_in(codes_NHWC, first, count, padded, step, operands.zero_point, taps.image)
        shift = first * (out.size // samples)
        for phase in range(phases.shape[0]):
            base, sample_pixels, pair, last_pair = phases[phase]
            end = base + count * sample_pixels
            for chunk in range(base, end, _CHUNK):
                for channel in range(0, C, LANES):
                    weight = (pair * step + (last_pair - pair) * channel) * 2
                    for pixel in range(chunk, min(chunk + _CHUNK, end), TAP_PIXELS):
                        place = Place(pixel, channel, pair, last_pair, weight)
                        if channel + LANES <= C and pixel + TAP_PIXELS <= end:
                            sum_taps(taps, place, outputs, channel, shift + channel, pixel)
                            continue
                        sum_taps(taps, place, to_aside, channel, 0, 0)
                        for i in range(min(TAP_PIXELS, end - pixel)):
                            to = outputs.targets[pixel + i] + shift + channel
                            for c in range(min(LANES, C - channel)):
                                out[to + c] = aside[i * LANES + c]
