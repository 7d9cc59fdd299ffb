"""Images and gradients as matrix tiles, and the products of such tiles: what compiled code calls.

Symbols:
    line, piece, part: `amx_weight_gradient.py`
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from edgesim.quant.kernels.instructions import (
    I32,
    LANES,
    F32x16,
    I32x16,
    Loop,
    broadcast,
    constant,
    instruction,
    load,
    store,
)
from edgesim.quant.kernels.products.amx import (
    ROW_BYTES,
    ROWS,
    add_bfloat16_products,
    clear_tile,
    load_tile,
    store_tile,
)

PARTS = 3  # of a gradient
TERMS = ROW_BYTES // 2  # of a piece
TILE = ROWS * TERMS  # numbers of a tile of factors
BLOCK_SUMS = ROWS * LANES
TAPS = 3  # that are summed together
_IMAGES, _GRADIENTS = (3, 4, 5), (6, 7)  # tiles of factors; those of sums come first

_BYTES16 = ir.VectorType(ir.IntType(8), 16)
_I16x16 = ir.VectorType(ir.IntType(16), 16)


@instruction
def add_rows(
    builder: ir.IRBuilder, short: ir.Value, rows: ir.Value, sums: ir.Value, first: ir.Value
) -> None:
    """Add rows of 16 numbers.

    Args:
        builder: of the caller's code.
        short: float32, read.
        rows: how many.
        sums: float32, added to.
        first: position of the first row.
    """
    loop = Loop(builder, constant(0), rows, [short, builder.gep(sums, [first])])
    read, to = loop.values
    total = builder.fadd(load(builder, to, F32x16, 4), load(builder, read, F32x16, 4))
    store(builder, total, to, 4)
    loop.close([builder.gep(at, [constant(LANES)]) for at in (read, to)])


@instruction
def copy_lanes(
    builder: ir.IRBuilder,
    g: ir.Value,
    first: ir.Value,
    step: ir.Value,
    pixels: ir.Value,
    line: ir.Value,
    first_out: ir.Value,
) -> None:
    """Copy 16 channels of consecutive pixels.

    Args:
        builder: of the caller's code.
        g: float32.
        first: position of the first pixel's first channel.
        step: from a pixel to the next.
        pixels: how many.
        line: written, 16 numbers a pixel.
        first_out: position of the first.
    """
    start = [builder.gep(g, [first]), builder.gep(line, [first_out])]
    loop = Loop(builder, constant(0), pixels, start)
    read, to = loop.values
    store(builder, load(builder, read, F32x16, 4), to, 4)
    loop.close([builder.gep(read, [step]), builder.gep(to, [constant(LANES)])])


@instruction
def turn(
    builder: ir.IRBuilder,
    image: ir.Value,
    first: ir.Value,
    step: ir.Value,
    zero_point: ir.Value,
    images: ir.Value,
    first_out: ir.Value,
    row: ir.Value,
) -> None:
    """Codes of 16 pixels and 16 channels, less their zero point, channel by channel in bfloat16.

    Args:
        builder: of the caller's code.
        image: bytes.
        first: position of the first pixel's first channel.
        step: from a pixel to the next.
        zero_point: 0 to 255.
        images: 16-bit numbers; 16 runs of 16 are written.
        first_out: position of the first.
        row: from a run to the next.
    """
    start = builder.gep(image, [first])
    pixels = [
        load(builder, builder.gep(start, [builder.mul(step, constant(i))]), _BYTES16, 1)
        for i in range(LANES)
    ]
    for _ in range(4):  # four such shuffles of 16 rows transpose them
        pairs = zip(pixels[:8], pixels[8:], strict=True)
        pixels = [
            builder.shuffle_vector(low, high, _indices(half))
            for low, high in pairs
            for half in (0, 8)
        ]
    zero = broadcast(builder, builder.trunc(zero_point, I32), LANES)
    to = builder.gep(images, [first_out])
    for channel, codes in enumerate(pixels):
        whole = builder.sub(builder.zext(codes, I32x16), zero)
        bits = builder.bitcast(builder.sitofp(whole, F32x16), I32x16)
        numbers = builder.trunc(builder.lshr(bits, _all(16)), _I16x16)
        store(builder, numbers, builder.gep(to, [builder.mul(row, constant(channel))]), 2)


def _indices(first: int) -> ir.Constant:
    """Of a shuffle that takes turns between two vectors, from an entry on."""
    order = [first + i // 2 + i % 2 * 16 for i in range(16)]
    return ir.Constant(ir.VectorType(I32, 16), order)


def _all(value: int) -> ir.Constant:
    return ir.Constant(I32x16, [value] * LANES)


@instruction
def split_line(builder: ir.IRBuilder, line: ir.Value, pieces: ir.Value, parts: ir.Value) -> None:
    """The parts of a line's gradients, as tiles of second factors.

    Args:
        builder: of the caller's code.
        line: float32, 16 channels a pixel.
        pieces: of 32 pixels.
        parts: 16-bit numbers, written: piece by piece three tiles.
    """
    outer = Loop(builder, constant(0), pieces, [line, parts])
    rows = Loop(builder, constant(0), constant(ROWS), outer.values)
    g, to = rows.values
    pair = [
        [builder.bitcast(part, I32x16) for part in _split(builder, load(builder, at, F32x16, 4))]
        for at in (g, builder.gep(g, [constant(LANES)]))
    ]
    for part, (low, high) in enumerate(zip(*pair, strict=True)):
        both = builder.or_(builder.lshr(low, _all(16)), high)
        store(builder, both, builder.gep(to, [constant(part * TILE)]), 2)
    g, to = rows.close([builder.gep(g, [constant(2 * LANES)]), builder.gep(to, [constant(TERMS)])])
    outer.close([g, builder.gep(to, [constant((PARTS - 1) * TILE)])])


def _split(builder: ir.IRBuilder, numbers: ir.Value) -> list[ir.Value]:
    """Numbers whose sum is exact, each with eight significant bits."""
    found = []
    for _ in range(PARTS):
        bits = builder.and_(builder.bitcast(numbers, I32x16), _all(-(1 << 16)))
        found.append(builder.bitcast(bits, F32x16))
        numbers = builder.fsub(numbers, found[-1])
    return found


def _adder(taps: int) -> Callable[..., None]:
    """An instruction that works on so many taps."""

    def add(
        builder: ir.IRBuilder,
        images: ir.Value,
        first: ir.Value,
        second: ir.Value,
        third: ir.Value,
        row: ir.Value,
        pieces: ir.Value,
        parts: ir.Value,
        first_part: ir.Value,
        sums: ir.Value,
    ) -> None:
        for tap in range(taps):
            clear_tile(builder, tap)
        row_bytes = builder.shl(row, constant(1))
        starts = [builder.gep(images, [start]) for start in (first, second, third)[:taps]]
        loop = Loop(builder, constant(0), pieces, [builder.gep(parts, [first_part]), *starts])
        part, *taps_of_images = loop.values
        for image, at in zip(_IMAGES, taps_of_images, strict=False):
            load_tile(builder, image, at, row_bytes)
        for i in range(PARTS):
            gradient = _GRADIENTS[i % len(_GRADIENTS)]
            at = builder.gep(part, [constant(i * TILE)])
            load_tile(builder, gradient, at, constant(ROW_BYTES))
            # A product waits for the one before it in the same sums: taps take turns.
            for tap in range(taps):
                add_bfloat16_products(builder, tap, _IMAGES[tap], gradient)
        after = [builder.gep(at, [constant(TERMS)]) for at in taps_of_images]
        loop.close([builder.gep(part, [constant(PARTS * TILE)]), *after])
        for tap in range(taps):
            store_tile(builder, tap, builder.gep(sums, [constant(tap * BLOCK_SUMS)]))

    add.__doc__ = f"""The sums of {taps} taps over a line: 16 x 16 for each tap.

        Args:
            builder: of the caller's code.
            images: channel by channel.
            first: position of the first tap's first number in the first channel.
            second: of the second tap's.
            third: of the third tap's.
            row: from a channel to the next.
            pieces: how many.
            parts: of the gradients.
            first_part: position of the first.
            sums: written: tap by tap, input channel by input channel.
        """
    return instruction(add)


add_tap, add_taps = _adder(1), _adder(TAPS)
