"""Weights in the order in which the tiles read them, widened to 16 bits.

Symbols:
    panel: 16 output channels   lane: one of them   pair: two consecutive terms of the sums
    I: input channels of a group   O: output channels   k: kernel
Shapes:
    packed: phase by phase (group, panel, pair, lane, term of the pair), int16, flat.
"""

from __future__ import annotations

import numpy as np

from edgesim.quant.kernels.arrays import Int8, Int16, Int64
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import Tables
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.products.packing_tiles import TERMS, pack_lanes, pack_terms


def weights_in_memory_order(weights_OIkk: Int8, shape: tuple[int, int, int, int]) -> Int8:
    """Weights as (O, k, k, I), flat: a view of channels_last memory, a copy of any other.

    Raises:
        KernelError: not int8, or not of this shape.
    """
    if weights_OIkk.dtype != np.int8 or weights_OIkk.shape != shape:
        raise KernelError(
            f"weights are {weights_OIkk.dtype} of shape {weights_OIkk.shape}; the convolution "
            f"takes int8 of shape {shape}"
        )
    return np.ascontiguousarray(weights_OIkk.transpose(0, 2, 3, 1)).reshape(-1)


def packed_size(tables: Tables) -> int:
    """Entries of what `pack` writes."""
    return tables.groups * tables.panels * len(tables.terms) * 2 * LANES


@inner
def pack(
    weights: Int8, phases: Int64, terms: Int64, layout: tuple[int, int, int, int], packed: Int16
) -> None:
    """Weights for the tiles; channels beyond the last are zeros.

    Args:
        weights: as (O, k, k, I), flat, in [-127, 127].
        phases: of the convolution or the input gradient, as `Tables` have them.
        terms: likewise.
        layout: `lanes`, `groups`, `lane_step` and `group_step`, likewise.
        packed: written.
    """
    lanes, groups, lane_step, group_step = layout
    at = 0
    for phase in range(phases.shape[0]):
        pair, pairs = phases[phase, 4], phases[phase, 5]
        for group in range(groups):
            for lane in range(0, lanes, LANES):
                first = group * group_step + lane * lane_step
                count = min(LANES, lanes - lane)
                panel = packed[at : at + pairs * 2 * LANES]
                pack_panel(weights, first, count, lane_step, terms[pair : pair + pairs], panel)
                at += panel.size


@inner
def pack_panel(
    weights: Int8, first: int, lanes: int, lane_step: int, terms: Int64, packed: Int16
) -> None:
    """Pack one panel of at most 16 lanes, 16 terms at a time where they lie so.

    Args:
        weights: flat.
        first: position of lane 0's weights.
        lanes: how many there are; the others get zeros.
        lane_step: from a lane to the next.
        terms: shape (pairs, 2), positions counted from a lane's first weight; -1: zero.
        packed: shape (pairs * 32,), written.
    """
    pair = 0
    while pair < len(terms):
        start, last = terms[pair, 0], pair + TERMS // 2 - 1
        to = pair * 2 * LANES
        # Positions grow along a row of taps: sixteen of them in a span of sixteen are neighbours.
        are_neighbors = last < len(terms) and terms[last, 1] - start == TERMS - 1
        if lanes == LANES and lane_step > 1 and are_neighbors:
            pack_terms(weights, first + start, lane_step, packed, to)
            pair += TERMS // 2
            continue
        if lanes == LANES and lane_step == 1 and terms[pair, 1] >= 0:
            pack_lanes(weights, first + start, first + terms[pair, 1], packed, to)
        else:
            _pack_pair(weights, first, lanes, lane_step, terms[pair], packed[to : to + 2 * LANES])
        pair += 1


@inner
def _pack_pair(
    weights: Int8, first: int, lanes: int, lane_step: int, terms: Int64, packed: Int16
) -> None:
    """One pair of terms, weight by weight."""
    packed[:] = 0
    for term in range(2):
        if terms[term] >= 0:
            for lane in range(lanes):
                position = first + lane * lane_step + terms[term]
                packed[2 * lane + term] = weights[position]
