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

from typing import NamedTuple

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int16, Int64, UInt8
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import scratch_bytes, scratch_float32, scratch_int16
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.products.amx import MOST_GROUPS, ROWS, configure, release, tile_sizes
from edgesim.quant.kernels.weight_gradient.amx_factors import (
    BLOCK_SUMS,
    PARTS,
    TAPS,
    TERMS,
    TILE,
    add_rows,
    add_tap,
    add_taps,
    copy_lanes,
    split_line,
    turn,
)

_CHUNK_BYTES = 1024 * 1024  # in the second-level cache
_RUN = 8  # pieces, whose parts stay in the first-level cache for all taps and channels
_MOST_ZEROS = 3  # times as many terms as outputs, at most
_LEAST_PRODUCTS = 40  # of other ways, for each number of image and gradient
_SIZES = tile_sizes(MOST_GROUPS)


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
        spare = (k - 1) // s * (width + 1) + TERMS
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
            row=(met * met * line // (2 * TERMS) + 1) * 2 * TERMS + TERMS,
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


@compiled
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
    most_pieces = (plan.chunk * frame + TERMS - 1) // TERMS
    images = scratch_int16(C * plan.row)
    line = scratch_float32(most_pieces * TERMS * LANES)
    line[:] = 0
    parts = scratch_int16(most_pieces * PARTS * TILE)
    panels = (O + LANES - 1) // LANES
    panel_sums = C // LANES * taps * BLOCK_SUMS
    has_one_chunk = plan.chunk == samples
    M = scratch_float32(panel_sums * (1 if has_one_chunk else panels))
    short = scratch_float32(TAPS * BLOCK_SUMS)
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
        pieces = (count * frame + TERMS - 1) // TERMS
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
        count, part = min(_RUN, pieces - piece), piece * PARTS * TILE
        for channel in range(0, plan.channels, LANES):
            at = channel * plan.row + piece * TERMS
            tap = 0
            while tap < taps:
                together = TAPS if tap + TAPS <= taps else 1
                one = at + plan.shifts[tap]
                if together == TAPS:
                    two, three = at + plan.shifts[tap + 1], at + plan.shifts[tap + 2]
                    add_taps(images, one, two, three, plan.row, count, parts, part, short)
                else:
                    add_tap(images, one, one, one, plan.row, count, parts, part, short)
                to = (channel // LANES * taps + tap) * BLOCK_SUMS
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
