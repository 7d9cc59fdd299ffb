"""Weights' gradients of convolutions by matrix tiles (`products/amx.py`), with float32's precision.

Codes less their zero point are whole numbers of at most eight bits: bfloat16 holds them exactly. A
gradient has 24 significant bits, so it is the exact sum of three bfloat16 numbers, its parts. Every
product of a code and a part is exact; their sums are rounded as in float32. Parts below 2^-126
count as zeros, so gradients below 1e-33 lose digits.

The gradient at a tap is the product of two matrices, image^T g, whose terms are the pixels of the
samples in their order. The image lies channel by channel with its padding, g has zeros where there
is no output. Then a tap is a shift of the image's rows, which costs nothing. The padding to the
left of a row is also that to the right of the row before, and likewise above and below.

Symbols:
    q, z, g: `weight_gradient.py`   s: stride   k: kernel
    phase: pixels of the padded image with equal remainders of row and column modulo s
    frame: a phase of one sample, and the outputs of that sample with zeros around them
    line: frames one after the other   piece: 32 of its numbers, for one instruction
    part: of a gradient, the upper, middle or lower eight bits
    block: 16 input by 16 output channels   panel: 16 output channels
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit

from edgesim.quant.kernels.arrays import Float32, Int16, Int64, UInt8
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.inner import inner
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
from edgesim.quant.kernels.operands import scratch_bytes, scratch_float32, scratch_int16
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.products.amx import (
    MOST_GROUPS,
    ROW_BYTES,
    ROWS,
    add_bfloat16_products,
    clear_tile,
    configure,
    load_tile,
    release,
    store_tile,
    tile_sizes,
)

PARTS = 3  # of a gradient
_TERMS = ROW_BYTES // 2  # of a piece
_TILE = ROWS * _TERMS  # numbers of a tile of factors
_BLOCK_SUMS = ROWS * LANES
_TAPS = 3  # that are summed together
_IMAGES, _GRADIENTS = (3, 4, 5), (6, 7)  # tiles of factors; those of sums come first
_CHUNK_BYTES = 1024 * 1024  # in the second-level cache
_RUN = 8  # pieces, whose parts stay in the first-level cache for all taps and channels
_MOST_ZEROS = 3  # times as many terms as outputs, at most
_LEAST_PRODUCTS = 40  # of other ways, for each number of image and gradient
_SIZES = tile_sizes(MOST_GROUPS)

_BYTES16 = ir.VectorType(ir.IntType(8), 16)
_I16x16 = ir.VectorType(ir.IntType(16), 16)


class _Plan(NamedTuple):
    """Sizes that compiled code reads, for one number of samples.

    Attributes:
        stride: s.
        met: phases along an axis that taps meet; a kernel smaller than the stride leaves some out.
        padded: padding above and to the left, height and width of the image with its padding.
        frame: height and width of a frame.
        channels: input channels in whole tiles.
        chunk: samples that are worked on together.
        spare: numbers behind a line that a tap or a whole piece may read.
        line: numbers from a phase's line to the next.
        row: numbers from a channel's lines to the next channel's.
        shifts: of the taps, from a channel's first number.
    """

    stride: int
    met: int
    padded: tuple[int, int, int, int]
    frame: tuple[int, int]
    channels: int
    chunk: int
    spare: int
    line: int
    row: int
    shifts: Int64


class AmxWeightGradient:
    """The weights' gradient of a convolution with one group.

    Args:
        shape: of the convolution.

    Raises:
        KernelError: several groups, or a process without matrix tiles.
    """

    def __init__(self, shape: ConvolutionShape) -> None:
        if shape.groups != 1:
            raise KernelError(
                f"this weight gradient has one group, not {shape.groups}; leave it to torch"
            )
        if not amx.is_native():
            raise KernelError("this process has no matrix tiles; let WeightGradient choose the way")
        self._shape = shape
        self._frame = (
            _frame_size(shape.height, shape.out_height, shape),
            _frame_size(shape.width, shape.out_width, shape),
        )

    @property
    def is_fast(self) -> bool:
        """Whether other ways are slower: products take longer than bringing factors into tiles."""
        shape, (height, width) = self._shape, self._frame
        if height * width > _MOST_ZEROS * shape.out_height * shape.out_width:
            return False
        transforms = shape.kernel == 3 and shape.stride == 1  # of `tiled_weight_gradient.py`
        products = 36 / 16 if transforms else shape.kernel**2  # for a pixel and pair of channels
        C, O = shape.channels, shape.out_channels  # noqa: E741
        return products * C * O >= _LEAST_PRODUCTS * (C + O)

    def run(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        scale: float,
        g_NHWO: Float32,
        out_OIkk: Float32,
    ) -> None:
        """Write the gradient; other arguments as in `WeightGradient.compute`, one sample at least.

        The sums are taken in an order that depends on the shape and the number of samples alone.
        """
        _run(codes_NHWC, zero_point, scale, g_NHWO, self._plan(len(codes_NHWC)), _SIZES, out_OIkk)

    def _plan(self, samples: int) -> _Plan:
        shape, (height, width), k = self._shape, self._frame, self._shape.kernel
        s, frame, met = shape.stride, height * width, min(shape.stride, k)
        C = -(-shape.channels // LANES) * LANES
        sample_bytes = frame * (2 * met * met * C + (2 * PARTS + 4) * LANES)
        chunk = min(samples, max(1, _CHUNK_BYTES // sample_bytes))
        spare = (k - 1) // s * (width + 1) + _TERMS
        line = chunk * frame + spare
        taps = [(tap // k, tap % k) for tap in range(k * k)]
        shifts = [(r % s * met + c % s) * line + r // s * width + c // s for r, c in taps]
        return _Plan(
            stride=s,
            met=met,
            padded=(shape.padding, shape.padding, s * height, s * width),
            frame=self._frame,
            channels=C,
            chunk=chunk,
            spare=spare,
            line=line,
            # An odd number of cache lines: at steps of whole pages, rows would share them.
            row=(met * met * line // (2 * _TERMS) + 1) * 2 * _TERMS + _TERMS,
            shifts=np.array(shifts, np.int64),
        )


def _frame_size(size: int, out_size: int, shape: ConvolutionShape) -> int:
    """Height or width of a frame.

    It has room for the outputs, and for the image with the padding before it, even where no output
    sees an input. The last taps may only reach the padding before the next frame or row.
    """
    s, p = shape.stride, shape.padding
    last_tap = (out_size - 1) * s + shape.kernel - p
    return max(out_size, -(-(size + p) // s), -(-last_tap // s))


@njit(nogil=True, cache=True)
def _run(
    codes_NHWC: UInt8,
    zero_point: int,
    scale: float,
    g_NHWO: Float32,
    plan: _Plan,
    sizes: UInt8,
    out_OIkk: Float32,
) -> None:
    samples, taps, C = len(codes_NHWC), len(plan.shifts), plan.channels
    out_OCT = out_OIkk.reshape(out_OIkk.shape[0], out_OIkk.shape[1], -1)
    O = out_OCT.shape[0]  # noqa: E741 (the symbol of the legend)
    frame = plan.frame[0] * plan.frame[1]
    most_pieces = (plan.chunk * frame + _TERMS - 1) // _TERMS
    images = scratch_int16(C * plan.row)
    line = scratch_float32(most_pieces * _TERMS * LANES)
    line[:] = 0
    parts = scratch_int16(most_pieces * PARTS * _TILE)
    panels = (O + LANES - 1) // LANES
    panel_sums = C // LANES * taps * _BLOCK_SUMS
    has_one_chunk = plan.chunk == samples
    M = scratch_float32(panel_sums * (1 if has_one_chunk else panels))
    short = scratch_float32(_TAPS * _BLOCK_SUMS)
    # The last run of pixels reaches behind the image.
    image = scratch_bytes((plan.padded[2] * plan.padded[3] + LANES * plan.stride) * C)
    image[:] = zero_point
    for first in range(0, samples, plan.chunk):
        count = min(plan.chunk, samples - first)
        for n in range(count):
            fill_in(codes_NHWC, first + n, 1, plan.padded, C, 0, image)
            _turn_image(image, zero_point, plan, n, images)
        _clear_spare(plan, count, images)
        line[count * frame * LANES :] = 0
        pieces = (count * frame + _TERMS - 1) // _TERMS
        configure(sizes)
        for panel in range(panels):
            _fill_line(g_NHWO, first, count, panel * LANES, plan.frame, line)
            split_line(line, pieces, parts)
            at = 0 if has_one_chunk else panel * panel_sums
            sums = M[at : at + panel_sums]
            if first == 0:
                sums[:] = 0
            _add_panel(images, parts, pieces, plan, short, sums)
            if first + count == samples:
                _write(sums, panel * LANES, np.float32(scale), out_OCT)
        release()


@inner
def _turn_image(image: UInt8, zero_point: int, plan: _Plan, n: int, images: Int16) -> None:
    """A padded image, channel by channel and phase by phase, as frame n of the lines.

    Runs of 16 pixels may end behind their row. What they write there is overwritten by the next
    row, by the next frame, or by `_clear_spare`.
    """
    s, (height, width) = plan.stride, plan.frame
    C, row_step = plan.channels, plan.padded[3] * plan.channels
    # With stride 1 all rows are one.
    rows, columns = (1, height * width) if s == 1 else (height, width)
    for channel in range(0, C, LANES):
        for phase in range(plan.met * plan.met):
            start = phase // plan.met * row_step + phase % plan.met * C + channel
            to = channel * plan.row + phase * plan.line + n * height * width
            for y in range(rows):
                read = start + y * s * row_step
                for x in range(0, columns, LANES):
                    turn(image, read + x * s * C, s * C, zero_point, images, to + x, plan.row)
                to += columns


@inner
def _clear_spare(plan: _Plan, samples: int, images: Int16) -> None:
    """Padding behind the last frame of each line."""
    end = samples * plan.frame[0] * plan.frame[1]
    for channel in range(plan.channels):
        for phase in range(plan.met * plan.met):
            start = channel * plan.row + phase * plan.line + end
            images[start : start + plan.spare] = 0


@inner
def _fill_line(
    g_NHWO: Float32, first: int, samples: int, channel: int, frame: tuple[int, int], line: Float32
) -> None:
    """Gradients of 16 channels, pixel by pixel; what has no output stays zero."""
    _, H, W, O = g_NHWO.shape  # noqa: E741
    g, lanes = g_NHWO.reshape(-1), min(LANES, O - channel)
    if lanes < LANES:
        line[:] = 0
    for n in range(samples):
        for y in range(H):
            read = ((first + n) * H + y) * W * O + channel
            to = (n * frame[0] + y) * frame[1] * LANES
            if lanes == LANES:
                copy_lanes(g, read, O, W, line, to)
                continue
            for x in range(W):
                for lane in range(lanes):
                    line[to + x * LANES + lane] = g[read + x * O + lane]


@inner
def _add_panel(
    images: Int16, parts: Int16, pieces: int, plan: _Plan, short: Float32, sums: Float32
) -> None:
    """Add a chunk to the sums of a panel: 16 input channels at a time, tap by tap.

    Sums of short sums have smaller rounding errors.
    """
    taps = len(plan.shifts)
    for piece in range(0, pieces, _RUN):
        count, part = min(_RUN, pieces - piece), piece * PARTS * _TILE
        for channel in range(0, plan.channels, LANES):
            at = channel * plan.row + piece * _TERMS
            tap = 0
            while tap < taps:
                together = _TAPS if tap + _TAPS <= taps else 1
                one = at + plan.shifts[tap]
                if together == _TAPS:
                    two, three = at + plan.shifts[tap + 1], at + plan.shifts[tap + 2]
                    add_taps(images, one, two, three, plan.row, count, parts, part, short)
                else:
                    add_tap(images, one, one, one, plan.row, count, parts, part, short)
                to = (channel // LANES * taps + tap) * _BLOCK_SUMS
                add_rows(short, together * ROWS, sums, to)
                tap += together


@inner
def _write(sums: Float32, o: int, scale: np.float32, out_OCT: Float32) -> None:
    """A panel's gradients at the weights."""
    O, C, taps = out_OCT.shape  # noqa: E741
    for block in range(0, C, LANES):
        at = block * taps * LANES
        for lane in range(min(LANES, O - o)):
            for row in range(min(ROWS, C - block)):
                for tap in range(taps):
                    total = sums[at + (tap * ROWS + row) * LANES + lane]
                    out_OCT[o + lane, block + row, tap] = total * scale


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
    for _ in range(4):  # the i-th bits of the two numbers of a byte change places
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
        store(builder, both, builder.gep(to, [constant(part * _TILE)]), 2)
    g, to = rows.close([builder.gep(g, [constant(2 * LANES)]), builder.gep(to, [constant(_TERMS)])])
    outer.close([g, builder.gep(to, [constant((PARTS - 1) * _TILE)])])


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
            at = builder.gep(part, [constant(i * _TILE)])
            load_tile(builder, gradient, at, constant(ROW_BYTES))
            # A product waits for the one before it in the same sums: taps take turns.
            for tap in range(taps):
                add_bfloat16_products(builder, tap, _IMAGES[tap], gradient)
        after = [builder.gep(at, [constant(_TERMS)]) for at in taps_of_images]
        loop.close([builder.gep(part, [constant(PARTS * _TILE)]), *after])
        for tap in range(taps):
            store_tile(builder, tap, builder.gep(sums, [constant(tap * _BLOCK_SUMS)]))

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


add_tap, add_taps = _adder(1), _adder(_TAPS)
