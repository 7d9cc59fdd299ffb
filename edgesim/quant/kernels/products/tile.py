"""Register tiles: their two forms, and the integer products of each.

A tile is a rectangle of sums that stay in registers, some pixels by 16 output channels. One step
takes 32 bits of the image for each pixel and 32 bits of the weights for each channel:

- `PAIRS`: two 16-bit integers. vpmaddwd of AVX2 multiplies sixteen pairs and adds the products two
  by two, exactly: twice what a fused multiply-add of 32-bit floats does in the same time. LLVM
  itself makes vpdpwssd of it where the processor has VNNI.
- `QUADS`: four bytes, unsigned codes and signed weights. vpdpbusd of VNNI multiplies 32 of each,
  or 64 where vectors have 512 bits, and adds the products four by four to sums of 32 bits: twice,
  or four times, as many as with pairs.

If the processor lacks the instruction, plain vector operations compute the same products exactly,
but more slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    LANES,
    I16x16,
    I32x8,
    I32x16,
    add_dot_products,
    has_wide_dot_product,
    multiply_add_pairs,
)

STEP_BYTES = 4  # of the image for each pixel, and of the weights for each channel

# Takes the builder, a vector of sums, and as wide the image's entries and the weights of a step.
AddProducts = Callable[[ir.IRBuilder, ir.Value, ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True, slots=True)
class Tile:
    """A form of register tiles.

    Attributes:
        pixels: of a tile.
        terms: consecutive terms of each sum that one instruction multiplies.
        image_type: of an entry of the image.
        weight_type: of a packed weight.
        sums: kind of the vectors that hold the sums.
        add_products: emits a step of such a vector; returns the new sums.
    """

    pixels: int
    terms: int
    image_type: type[np.generic]
    weight_type: type[np.generic]
    sums: ir.VectorType
    add_products: AddProducts

    @property
    def entry_bytes(self) -> int:
        """Of an entry of the image, or a packed weight."""
        return STEP_BYTES // self.terms

    @property
    def parts(self) -> int:
        """Vectors of a pixel's sums."""
        count: int = self.sums.count
        return LANES // count


def _add_pairs(
    builder: ir.IRBuilder, totals: ir.Value, image: ir.Value, weights: ir.Value
) -> ir.Value:
    pairs = [builder.bitcast(factor, I16x16) for factor in (weights, image)]
    return builder.add(totals, multiply_add_pairs(builder, *pairs))


# A sum can take a term only every few cycles, so about ten sums must be in work at a time: 12
# vectors in each form, of 16 registers (vectors of 512 bits: of 32).
PAIRS = Tile(6, 2, np.int16, np.int16, I32x8, _add_pairs)
_WIDE = has_wide_dot_product()
QUADS = Tile(12 if _WIDE else 6, 4, np.uint8, np.int8, I32x16 if _WIDE else I32x8, add_dot_products)


def tile_of(entries: ir.Value) -> Tile:
    """The form of tiles for the type of an image or of packed weights."""
    return PAIRS if entries.type.pointee.width == 8 * PAIRS.entry_bytes else QUADS
