"""Weights in the order in which the tiles read them, and the tiles' initial sums.

Symbols:
    panel: 16 output channels   lane: one of them
    step: consecutive terms of the sums, two or four; the packed weights' type says how many
    I: input channels of a group   O: output channels   k: kernel
Shapes:
    packed: phase by phase (group, panel, step, lane, term of the step), flat, int16 for pairs of
        terms and int8 for quads.
    initial: phase by phase (group, panel, lane), int32, flat: sums before the first term.
"""

from __future__ import annotations

import numpy as np

from edgesim.quant.kernels.arrays import Int8, Int16, Int32, Int64
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import Plan
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.products.packing_tiles import TERMS, pack_lanes, pack_terms
from edgesim.quant.kernels.products.tile_sums import subtract_zero_point


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


@inner
def pack(
    weights: Int8,
    zero_point: int,
    plan: Plan,
    packed: Int16 | Int8,
    initial: Int32,
) -> None:
    """Weights for the tiles, with their initial sums; channels beyond the last are zeros.

    Args:
        weights: as (O, k, k, I), flat, in [-127, 127].
        zero_point: of the codes.
        plan: of the convolution or the input gradient.
        packed: written.
        initial: written.
    """
    at = panel = 0
    for phase in range(plan.phases.shape[0]):
        step, steps = plan.phases[phase, 4], plan.phases[phase, 5]
        terms = plan.terms[step : step + steps]
        size = terms.size * LANES
        for group in range(plan.groups):
            for lane in range(0, plan.lanes, LANES):
                first = group * plan.group_step + lane * plan.lane_step
                lanes = min(LANES, plan.lanes - lane)
                pack_panel(weights, first, lanes, plan.lane_step, terms, packed[at : at + size])
                subtract_zero_point(packed, at, steps, zero_point, initial, panel * LANES)
                at += size
                panel += 1


@inner
def pack_panel(
    weights: Int8, first: int, lanes: int, lane_step: int, terms: Int64, packed: Int16 | Int8
) -> None:
    """Pack one panel of at most 16 lanes, 16 terms at a time where they lie so.

    Args:
        weights: flat.
        first: position of lane 0's weights.
        lanes: how many there are; the others get zeros.
        lane_step: from a lane to the next.
        terms: shape (steps, terms of a step), positions counted from a lane's first weight; -1:
            zero.
        packed: of 16 lanes, written.
    """
    steps, count = terms.shape
    size, at_a_time = count * LANES, TERMS // count
    step = 0
    while step < steps:
        start, last = terms[step, 0], step + at_a_time - 1
        # Positions grow along a row of taps: sixteen of them in a span of sixteen are neighbours.
        are_neighbors = last < steps and terms[last, count - 1] - start == TERMS - 1
        if lanes == LANES and lane_step > 1 and are_neighbors:
            pack_terms(weights, first + start, lane_step, packed, step * size)
            step += at_a_time
            continue
        if lanes == LANES and lane_step == 1 and terms[step, count - 1] >= 0:
            pack_lanes(weights, first, terms, step, packed, step * size)
        else:
            row = packed[step * size : (step + 1) * size]
            _pack_step(weights, first, lanes, lane_step, terms[step], row)
        step += 1


@inner
def _pack_step(
    weights: Int8, first: int, lanes: int, lane_step: int, terms: Int64, packed: Int16 | Int8
) -> None:
    """One step, weight by weight."""
    packed[:] = 0
    for term in range(len(terms)):
        if terms[term] >= 0:
            for lane in range(lanes):
                packed[len(terms) * lane + term] = weights[first + lane * lane_step + terms[term]]
