"""Products of matrices of codes, exact in 32 bits, by the register tiles of the convolutions.

Symbols:
    p, q: codes of the factors   y, z: their zero points
    q' = q - 128, as signed bytes or pairs: (p - y) (q - z) = (p - y) q' + (p - y) (128 - z)
Shapes:
    B: products   M: rows of the result   N: its columns   K: terms of a sum
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int8, Int16, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import scratch_bytes
from edgesim.quant.kernels.products import native
from edgesim.quant.kernels.products.tile import PAIRS, QUADS
from edgesim.quant.kernels.products.tile_sums import (
    Factors,
    Place,
    subtract_zero_point,
    sum_tile,
)

Form = Literal["plain", "rows", "columns"]
"""a b; a b^T, rows with rows; a^T b, columns with columns."""

UInt32 = NDArray[np.uint32]

_MIDDLE = 128
_WORD = 4  # bytes
_FIRST_BITS = np.uint32(0x80808080)
_MOST_TERMS = (2**31 - 1) // (255 * 255)


def multiply(
    a: UInt8, b: UInt8, zero_points: tuple[int, int], scale: np.float32, form: Form, out: Float32
) -> None:
    """Write float32(sum of (p - y) (q - z)) * scale, two roundings.

    Args:
        a: p, shape (B, M, K), or (B, K, M) for `columns`.
        b: q, shape (B, K, N), or (B, N, K) for `rows`.
        zero_points: y and z, 0 to 255.
        scale: product of both scales.
        form: which axes are multiplied.
        out: written, shape (B, M, N).

    Raises:
        KernelError: an array of another type or shape, or sums that 32 bits can't hold.
    """
    rows, terms = (a.shape[2], a.shape[1]) if form == "columns" else (a.shape[1], a.shape[2])
    columns = b.shape[1] if form == "rows" else b.shape[2]
    require("the second factor", b, np.uint8, (len(a), *_second(form, terms, columns)))
    require("the first factor", a, np.uint8, a.shape)
    require("the product", out, np.float32, (len(a), rows, columns))
    if terms > _MOST_TERMS:
        raise KernelError(
            f"a product sums {terms} products of 8-bit numbers; 32 bits hold {_MOST_TERMS}; use "
            "fewer tokens or heads of fewer numbers"
        )
    tile = QUADS if native.dot_product_is_native() else PAIRS
    a_steps = (1, rows) if form == "columns" else (terms, 1)  # from a row, from a term to the next
    b_steps = (terms, 1) if form == "rows" else (1, columns)
    steps = -(-terms // tile.terms)
    image = np.empty(0, tile.image_type)
    weights = np.empty(0, tile.weight_type)
    sizes = (len(a), rows, columns, terms)
    _multiply(
        a.reshape(-1), b.reshape(-1), a_steps, b_steps, sizes, zero_points, scale,
        (steps, tile.terms, tile.pixels), image, weights, out.reshape(-1),
    )  # fmt: skip


def _second(form: Form, terms: int, columns: int) -> tuple[int, int]:
    return (columns, terms) if form == "rows" else (terms, columns)


@compiled
def _multiply(
    a: UInt8,
    b: UInt8,
    a_steps: tuple[int, int],
    b_steps: tuple[int, int],
    sizes: tuple[int, int, int, int],
    zero_points: tuple[int, int],
    scale: np.float32,
    tile: tuple[int, int, int],
    image_like: UInt8 | Int16,
    weights_like: Int8 | Int16,
    out: Float32,
) -> None:
    products, rows, columns, terms = sizes
    steps, at_a_time, pixels = tile
    width = steps * at_a_time
    panels = (columns + LANES - 1) // LANES
    padded = (rows + pixels - 1) // pixels * pixels
    image = scratch_bytes(padded * width * image_like.itemsize).view(image_like.dtype)
    packed = scratch_bytes(panels * width * LANES * weights_like.itemsize).view(weights_like.dtype)
    image[:] = 0
    packed[:] = 0
    bases = np.arange(padded, dtype=np.int64) * width
    segments = np.array([[0, steps]], np.int64)
    initial = np.empty(LANES, np.int32)
    sums = np.empty(pixels * LANES, np.int32)
    of_rows = np.empty(rows, np.int32)
    factors = Factors(image, bases, segments, packed)
    for product in range(products):
        _copy(a[product * rows * terms :], a_steps, rows, terms, width, image)
        for row in range(rows):
            total = np.int32(0)
            for entry in image[row * width : row * width + terms]:
                total = np.int32(total + entry)
            of_rows[row] = (total - zero_points[0] * terms) * (_MIDDLE - zero_points[1])
        _pack(b[product * columns * terms :], b_steps, columns, terms, at_a_time, width, packed)
        for panel in range(panels):
            weight = panel * width * LANES
            subtract_zero_point(packed, weight, steps, zero_points[0], initial, 0)
            lanes = min(LANES, columns - panel * LANES)
            for first in range(0, rows, pixels):
                sum_tile(factors, Place(first, 0, 0, 1, weight), initial, 0, 0, sums, 0)
                for pixel in range(min(pixels, rows - first)):
                    row = first + pixel
                    to = (product * rows + row) * columns + panel * LANES
                    for lane in range(lanes):
                        total = np.int32(sums[pixel * LANES + lane] + of_rows[row])
                        out[to + lane] = np.float32(total) * scale


@compiled
def _copy(
    a: UInt8, steps: tuple[int, int], rows: int, terms: int, width: int, image: UInt8 | Int16
) -> None:
    """Rows of the first factor, each as long as whole steps of the tiles; the rest stays zero."""
    row_step, term_step = steps
    if term_step == 1:
        for row in range(rows):
            image[row * width : row * width + terms] = a[row * row_step : row * row_step + terms]
        return
    whole = 0
    if image.itemsize == 1 and width % _WORD == 0:  # four terms at a time, as a word
        words = image.view(np.uint32)
        whole = terms // _WORD * _WORD
        for term in range(0, whole, _WORD):
            start, to, step = term * term_step, term // _WORD, width // _WORD
            for row in range(rows):
                words[row * step + to] = _word(a, start + row, term_step)
    for term in range(whole, terms):
        for row in range(rows):
            image[row * width + term] = a[row * row_step + term * term_step]


@compiled
def _pack(
    b: UInt8,
    steps: tuple[int, int],
    columns: int,
    terms: int,
    at_a_time: int,
    width: int,
    packed: Int8 | Int16,
) -> None:
    """The second factor less 128 as the tiles read it: panel, step, lane, term of the step."""
    lane_step, term_step = steps
    if packed.itemsize == 1 and terms % _WORD == 0:
        _pack_words(b, lane_step, term_step, columns, terms, packed.view(np.uint32))
        return
    for column in range(columns):
        panel, lane = column // LANES, column % LANES
        start = panel * width * LANES + lane * at_a_time
        for term in range(terms):
            to = start + term // at_a_time * (LANES * at_a_time) + term % at_a_time
            packed[to] = np.int32(b[column * lane_step + term * term_step]) - _MIDDLE


@compiled
def _pack_words(
    b: UInt8, lane_step: int, term_step: int, columns: int, terms: int, packed: UInt32
) -> None:
    """As `_pack`, four terms at a time; a byte less 128 is the byte with its first bit changed."""
    steps = terms // _WORD
    for panel in range((columns + LANES - 1) // LANES):
        lanes = min(LANES, columns - panel * LANES)
        first, to = panel * LANES * lane_step, panel * steps * LANES
        if term_step == 1:
            words = b[: columns * terms].view(np.uint32)
            for lane in range(lanes):
                row = (first + lane * lane_step) // _WORD
                for step in range(steps):
                    packed[to + step * LANES + lane] = words[row + step] ^ _FIRST_BITS
            continue
        for step in range(steps):
            start = first + step * _WORD * term_step
            for lane in range(lanes):
                word = _word(b, start + lane, term_step)
                packed[to + step * LANES + lane] = word ^ _FIRST_BITS


@compiled
def _word(codes: UInt8, start: int, step: int) -> np.uint32:
    """Four codes as a word, the first one lowest."""
    low = np.uint32(codes[start]) | np.uint32(codes[start + step]) << np.uint32(8)
    high = np.uint32(codes[start + 2 * step]) | np.uint32(codes[start + 3 * step]) << np.uint32(8)
    return np.uint32(low | high << np.uint32(16))
