"""Whether the processor has the instructions of fast tiles, and they give correct results."""

from __future__ import annotations

from functools import cache

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Int32
from edgesim.quant.kernels.instructions import LANES, has_dot_product, has_native_instruction
from edgesim.quant.kernels.products.tile import PAIRS, QUADS, Tile
from edgesim.quant.kernels.products.tile_sums import (
    Factors,
    Place,
    subtract_zero_point,
    sum_tile,
)


@cache
def multiply_add_is_native() -> bool:
    """Whether tiles of pairs use the processor's own instruction, with correct results."""
    return has_native_instruction() and _is_exact(PAIRS)


@cache
def dot_product_is_native() -> bool:
    """Whether tiles of quads use the processor's own instruction, with correct results."""
    return has_dot_product() and _is_exact(QUADS)


def _is_exact(tile: Tile) -> bool:
    """Compile a small tile and compare it with numpy."""
    steps, zero_point, offset = 3, 131, 2
    terms = steps * tile.terms
    image = (np.arange(80) * 59 % 256).astype(tile.image_type)
    weights = (np.arange(terms * LANES) * 37 % 255 - 127).astype(tile.weight_type)
    bases = np.arange(tile.pixels, dtype=np.int64) * 5
    factors = Factors(image, bases, np.array([[offset, steps]], np.int64), weights)
    sums = np.empty((tile.pixels, LANES), np.int32)
    _sum_one_tile(factors, steps, zero_point, sums)
    read = image[bases[:, None] + offset + np.arange(terms)].astype(np.int64) - zero_point
    by_lane = weights.reshape(steps, LANES, tile.terms).transpose(0, 2, 1).reshape(terms, LANES)
    return bool(np.array_equal(sums, read @ by_lane.astype(np.int64)))


@compiled
def _sum_one_tile(factors: Factors, steps: int, zero_point: int, sums: Int32) -> None:
    initial = np.empty(LANES, np.int32)
    subtract_zero_point(factors.weights, 0, steps, zero_point, initial, 0)
    sum_tile(factors, Place(0, 0, 0, 1, 0), initial, 0, 0, sums, 0)
