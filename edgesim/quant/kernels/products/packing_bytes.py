"""Weights as bytes in the order in which the tiles of `dot_product.py` read them.

Symbols:
    panel: 16 output channels   lane: one of them   quad: four consecutive terms of the sums
Shapes:
    packed: phase by phase (group, panel, quad, lane, term of the quad), int8, flat.
    initial: phase by phase (group, panel, lane), int32, flat: sums before the first term.
"""

from __future__ import annotations

from edgesim.quant.kernels.arrays import Int8, Int32, Int64
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.products.dot_product import subtract_zero_point
from edgesim.quant.kernels.products.packing_byte_tiles import TERMS, pack_lanes, pack_terms

_QUADS = TERMS // 4


@inner
def pack_bytes(
    weights: Int8,
    phases: Int64,
    terms: Int64,
    layout: tuple[int, int, int, int],
    zero_point: int,
    packed: Int8,
    initial: Int32,
) -> None:
    """Weights for the tiles, with their initial sums; channels beyond the last are zeros.

    Args:
        weights: as (O, k, k, I), flat, in [-127, 127].
        phases: of the convolution or the input gradient, as `Tables` have them.
        terms: likewise.
        layout: `lanes`, `groups`, `lane_step` and `group_step`, likewise.
        zero_point: of the codes.
        packed: written.
        initial: written.
    """
    lanes, groups, lane_step, group_step = layout
    at = panel = 0
    for phase in range(phases.shape[0]):
        quad, quads = phases[phase, 4], phases[phase, 5]
        for group in range(groups):
            for lane in range(0, lanes, LANES):
                first = group * group_step + lane * lane_step
                count = min(LANES, lanes - lane)
                _pack_panel(
                    weights, first, count, lane_step, terms[quad : quad + quads], packed, at
                )
                subtract_zero_point(packed, at, quads, zero_point, initial, panel * LANES)
                at += quads * 4 * LANES
                panel += 1


@inner
def _pack_panel(
    weights: Int8, first: int, lanes: int, lane_step: int, terms: Int64, packed: Int8, at: int
) -> None:
    """One panel of at most 16 lanes, 16 terms at a time where they lie so.

    Args:
        weights: flat.
        first: position of lane 0's weights.
        lanes: how many there are; the others get zeros.
        lane_step: from a lane to the next.
        terms: shape (quads, 4), positions counted from a lane's first weight; -1: zero.
        packed: written from `at`.
        at: index.
    """
    quad = 0
    while quad < len(terms):
        start, last = terms[quad, 0], quad + _QUADS - 1
        to = at + quad * 4 * LANES
        # Positions grow along a row of taps: sixteen of them in a span of sixteen are neighbours.
        are_neighbors = last < len(terms) and terms[last, 3] - start == TERMS - 1
        if lanes == LANES and lane_step > 1 and are_neighbors:
            pack_terms(weights, first + start, lane_step, packed, to)
            quad += _QUADS
            continue
        if lanes == LANES and lane_step == 1 and terms[quad, 3] >= 0:
            second, third, fourth = terms[quad, 1], terms[quad, 2], terms[quad, 3]
            pack_lanes(
                weights, first + start, first + second, first + third, first + fourth, packed, to
            )
        else:
            _pack_quad(weights, first, lanes, lane_step, terms[quad], packed[to : to + 4 * LANES])
        quad += 1


@inner
def _pack_quad(
    weights: Int8, first: int, lanes: int, lane_step: int, terms: Int64, packed: Int8
) -> None:
    """One quad of terms, weight by weight."""
    packed[:] = 0
    for term in range(4):
        if terms[term] >= 0:
            for lane in range(lanes):
                packed[4 * lane + term] = weights[first + lane * lane_step + terms[term]]
