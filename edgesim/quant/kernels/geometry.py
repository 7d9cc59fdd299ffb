"""Tables of the positions of the terms of a convolution; the kernels only read them.

A convolution and its input gradient are the same sum, out[pixel, lane] = sum over terms of
image[base(pixel) + offset(term)] * weight[term, lane], with other tables. The input gradient of a
convolution with stride s consists of s x s phases: inputs with equal remainders of row and column
modulo s meet the same taps of the kernel. So no zeros are multiplied.

Symbols:
    image: codes of a block of samples with padding around them, or codes minus zero point
    base: position in the image of the first term of a pixel   target: of the pixel in the output
    term: tap and channel, in the order of the image   lane: output channel within a panel of 16
    step: consecutive terms that one instruction multiplies, two or four (`Tile`)
    segment: steps that are consecutive in the image
    k: kernel   s: stride   p: padding
Shapes:
    N: samples   H, W: height, width   C: input channels   O: output channels   G: groups
    I: C / G, input channels that an output channel sees
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.products.tile import Tile

Table = npt.NDArray[np.int64]

# |code - zero point| <= 255 and |weight| <= 127: so the sum of fewer terms fits 32 bits.
MAX_TERMS = (2**31 - 1) // (255 * 127)

_SEGMENT_STEPS = 256  # 16 KiB of weights
_STRIP_STEPS = 384  # 24 KiB of weights: they stay in the first-level cache over many tiles
_BLOCK_BYTES = 256 * 1024  # of image and output: they stay in the second-level cache
_BLOCK_PIXELS = 192  # least of a block, so that a load of weights serves many pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionShape:
    """Sizes of a convolution with a square kernel, as in `torch.nn.Conv2d`; checked.

    A fully connected layer is a convolution with kernel 1 of images of one pixel.

    Attributes:
        channels: C.
        out_channels: O.
        height: H of the input.
        width: W of the input.
        kernel: k.
        stride: s.
        padding: p, zeros around the input (codes: the zero point).
        groups: G.

    Raises:
        KernelError: a size is not positive (padding: negative), channels can't be divided into the
            groups, the kernel doesn't fit, or 32 bits can't hold the sums.
    """

    channels: int
    out_channels: int
    height: int
    width: int
    kernel: int
    stride: int
    padding: int
    groups: int

    def __post_init__(self) -> None:
        for name in ("channels", "out_channels", "height", "width", "kernel", "stride", "groups"):
            if getattr(self, name) < 1:
                raise KernelError(f"{name} of a convolution is {getattr(self, name)}; must be > 0")
        if self.padding < 0:
            raise KernelError(f"padding of a convolution is {self.padding}; must be >= 0")
        for name in ("channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise KernelError(
                    f"{name} of a convolution are {getattr(self, name)}, which can't be divided "
                    f"into {self.groups} groups; use a multiple"
                )
        if min(self.out_height, self.out_width) < 1:
            raise KernelError(
                f"a kernel of {self.kernel} doesn't fit into an image of {self.height} x "
                f"{self.width} with padding {self.padding}; use a smaller kernel or larger images"
            )
        terms = self.kernel**2 * max(self.channels, self.out_channels) // self.groups
        if terms > MAX_TERMS:
            raise KernelError(
                f"a convolution sums {terms} products of 8-bit numbers; 32 bits hold {MAX_TERMS}; "
                "use fewer channels or a smaller kernel"
            )

    @property
    def out_height(self) -> int:
        """Height of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Width of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel is computed from one channel of its own."""
        return self.groups == self.channels == self.out_channels

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(O, I, k, k)."""
        return self.out_channels, self.channels // self.groups, self.kernel, self.kernel


@dataclass(frozen=True, slots=True)
class Phase:
    """Along one axis, outputs that meet the same taps.

    Attributes:
        out_start: the first of them.
        out_step: from one to the next.
        count: how many.
        base_start: position in the padded image of the first one's first tap.
        base_step: from one to the next.
        taps: indices into the kernel, in the order of their positions in the image.
    """

    out_start: int
    out_step: int
    count: int
    base_start: int
    base_step: int
    taps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the padded image, and the outputs along it.

    Attributes:
        before: zeros before the image.
        size: of the image with zeros on both sides.
        out_size: number of outputs.
        phases: a partition of the outputs.
    """

    before: int
    size: int
    out_size: int
    phases: tuple[Phase, ...]


def forward_axis(size: int, out_size: int, shape: ConvolutionShape) -> Axis:
    """The axis of a convolution: one phase, all taps."""
    k, s, p = shape.kernel, shape.stride, shape.padding
    padded = max(p + size, (out_size - 1) * s + k)
    return Axis(p, padded, out_size, (Phase(0, 1, out_size, 0, s, tuple(range(k))),))


def gradient_axis(size: int, out_size: int, shape: ConvolutionShape) -> Axis:
    """The axis of an input gradient: y = s o - p + tap, so o = (y + p - tap) / s where whole."""
    k, s, p = shape.kernel, shape.stride, shape.padding
    found = []
    for y in range(min(s, size)):
        taps = tuple(tap for tap in reversed(range(k)) if (y + p - tap) % s == 0)
        first = (y + p - taps[0]) // s if taps else 0
        found.append((y, -(-(size - y) // s), first, taps))
    before = max(0, *(-first for _, _, first, _ in found))
    ends = (first + count - 1 + max(len(taps), 1) for _, count, first, taps in found)
    padded = before + max(out_size, *ends)
    phases = (Phase(y, s, count, before + first, 1, taps) for y, count, first, taps in found)
    return Axis(before, padded, size, tuple(phases))


class Plan(NamedTuple):
    """Positions, counts and sizes that compiled code reads.

    Attributes:
        bases: positions in the image of a block, phase by phase, each filled up to whole tiles.
        targets: positions in the output of a block.
        phases: shape (phases, 6): first base, pixels of a sample, first and last strip, first step,
            number of steps.
        strips: shape (strips, 3): first and last segment, first step counted from its phase's.
        segments: shape (segments, 2): offset from a base, number of steps.
        terms: shape (steps, 2 or 4): position of a term's weight for lane 0 of group 0; -1: zero.
        image: empty, of the type of the image's entries.
        packed: empty, of the type of packed weights.
        pixels: of a tile.
        image_size: entries of a sample's padded image.
        padded: zeros above and to the left of a sample, height and width with all zeros.
        groups: G.
        lanes: output channels of a group.
        panels: of lanes, of a group.
        lane_step: from a lane's weight to the next lane's.
        group_step: from a group's weight to the next group's.
    """

    bases: Table
    targets: Table
    phases: Table
    strips: Table
    segments: Table
    terms: Table
    image: npt.NDArray[np.generic]
    packed: npt.NDArray[np.generic]
    pixels: int
    image_size: int
    padded: tuple[int, int, int, int]
    groups: int
    lanes: int
    panels: int
    lane_step: int
    group_step: int


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Tables from which a kernel computes a convolution or an input gradient.

    Attributes:
        tile: form of the register tiles.
        channels: of the image.
        step: from a pixel of the image to the next; `channels` in whole bands.
        rows: the axis of height.
        columns: the axis of width.
        block: samples in a block.
        spare: samples behind the last whose image its last tile may need.
        plan: the part for compiled code.
    """

    tile: Tile
    channels: int
    step: int
    rows: Axis
    columns: Axis
    block: int
    spare: int
    plan: Plan

    def samples_in_block(self, samples: int) -> int:
        """Number of samples whose image is needed to compute a block.

        The last tile of a phase may be filled up with pixels of samples that follow the last.
        """
        return min(self.block, samples + self.spare)


def forward_tables(shape: ConvolutionShape, tile: Tile, band: int = 1) -> Tables:
    """Tables of a convolution; the image has whole bands of so many channels."""
    rows = forward_axis(shape.height, shape.out_height, shape)
    columns = forward_axis(shape.width, shape.out_width, shape)
    k, I = shape.kernel, shape.weight_shape[1]  # noqa: E741 (the symbol of the legend)
    # The weight of tap (r, c), channel i and output channel o is at ((o k + r) k + c) I + i.
    return _tables(
        shape, tile, band, rows, columns, shape.channels, shape.out_channels, 1, k * k * I
    )


def gradient_tables(shape: ConvolutionShape, tile: Tile, band: int = 1) -> Tables:
    """Tables of an input gradient; the image has whole bands of so many channels."""
    rows = gradient_axis(shape.height, shape.out_height, shape)
    columns = gradient_axis(shape.width, shape.out_width, shape)
    k, I = shape.kernel, shape.weight_shape[1]  # noqa: E741
    return _tables(
        shape, tile, band, rows, columns, shape.out_channels, shape.channels, k * k * I, 1
    )


def _tables(
    shape: ConvolutionShape,
    tile: Tile,
    band: int,
    rows: Axis,
    columns: Axis,
    channels: int,
    out_channels: int,
    channel_step: int,
    lane_step: int,
) -> Tables:
    O, I, k, _ = shape.weight_shape  # noqa: E741
    step = -(-channels // band) * band
    image_size = rows.size * columns.size * step
    out_pixels = rows.out_size * columns.out_size
    sample_bytes = tile.entry_bytes * image_size + 4 * out_pixels * out_channels
    block = max(_BLOCK_BYTES // sample_bytes, -(-_BLOCK_PIXELS // out_pixels))
    bases, targets, phases = [], [], []
    strips: list[tuple[int, int, int]] = []
    segments: list[tuple[int, int]] = []
    terms: list[Table] = []
    steps_before = bases_before = 0
    for row, column in product(rows.phases, columns.phases):
        new_bases = _positions(row, column, "base", columns.size * step, step)
        new_targets = _positions(row, column, "out", columns.out_size * out_channels, out_channels)
        bases.append(_for_block(new_bases, block, image_size, tile))
        targets.append(_for_block(new_targets, block, out_pixels * out_channels, tile))
        first_strip, first_segment = len(strips), len(segments)
        for offset, run in _runs(shape, row, column, columns.size, channels, channel_step):
            terms.append(_steps(run, tile.terms))
            segments += _segments(offset, *terms[-1].shape)
        strips += _strips(segments, first_segment)
        steps = sum(count for _, count in segments[first_segment:])
        phases.append((bases_before, len(new_bases), first_strip, len(strips), steps_before, steps))
        bases_before += len(bases[-1])
        steps_before += steps
    lanes = out_channels // shape.groups
    plan = Plan(
        bases=np.concatenate(bases),
        targets=np.concatenate(targets),
        phases=np.array(phases, np.int64),
        strips=np.array(strips, np.int64).reshape(-1, 3),
        segments=np.array(segments, np.int64).reshape(-1, 2),
        terms=np.concatenate([np.empty((0, tile.terms), np.int64), *terms]),
        image=np.empty(0, tile.image_type),
        packed=np.empty(0, tile.weight_type),
        pixels=tile.pixels,
        image_size=image_size,
        padded=(rows.before, columns.before, rows.size, columns.size),
        groups=shape.groups,
        lanes=lanes,
        panels=-(-lanes // LANES),
        lane_step=lane_step,
        group_step=O // shape.groups * k * k * I,
    )
    spare = -(-(tile.pixels - 1) // min(pixels for _, pixels, *_ in phases))
    return Tables(tile, channels, step, rows, columns, block, spare, plan)


def _positions(row: Phase, column: Phase, of: str, row_step: int, column_step: int) -> Table:
    """Positions of a phase's pixels in one sample: of their bases, or in the output."""
    lines = [
        (getattr(phase, f"{of}_start") + getattr(phase, f"{of}_step") * np.arange(phase.count))
        for phase in (row, column)
    ]
    positions: Table = np.add.outer(lines[0] * row_step, lines[1] * column_step).ravel()
    return positions


def _for_block(positions: Table, block: int, sample_step: int, tile: Tile) -> Table:
    """Positions in a block of samples, filled up to whole tiles with the last one."""
    all_positions = np.add.outer(np.arange(block) * sample_step, positions).ravel()
    return np.pad(all_positions, (0, -len(all_positions) % tile.pixels), mode="edge")


def _runs(
    shape: ConvolutionShape, row: Phase, column: Phase, width: int, channels: int, step: int
) -> list[tuple[int, Table]]:
    """Terms that are consecutive in the image: offset from the base, positions of their weights.

    A row of taps is one run, unless each tap sees only a group of the channels.
    """
    k, I = shape.kernel, shape.weight_shape[1]  # noqa: E741
    group = np.arange(channels // shape.groups) * step
    found = []
    for r, tap in enumerate(row.taps):
        by_column = [(tap * k + other) * I + group for other in column.taps]
        if shape.groups == 1 and by_column:
            found.append((r * width * channels, np.concatenate(by_column)))
        else:
            found += [((r * width + c) * channels, run) for c, run in enumerate(by_column)]
    return found


def _steps(run: Table, terms: int) -> Table:
    """Groups of `terms` terms; the last group is filled up with weights of zero."""
    return np.pad(run, (0, -len(run) % terms), constant_values=-1).reshape(-1, terms)


def _segments(offset: int, steps: int, terms: int) -> list[tuple[int, int]]:
    """A run cut into segments of at most `_SEGMENT_STEPS` steps."""
    return [
        (offset + terms * first, min(_SEGMENT_STEPS, steps - first))
        for first in range(0, steps, _SEGMENT_STEPS)
    ]


def _strips(segments: list[tuple[int, int]], first: int) -> list[tuple[int, int, int]]:
    """Group segments from `first` on into strips whose weights fit the cache."""
    strips: list[tuple[int, int, int]] = []
    start, steps, before = first, 0, 0
    for index in range(first, len(segments)):
        if steps and steps + segments[index][1] > _STRIP_STEPS:
            strips.append((start, index, before))
            start, before, steps = index, before + steps, 0
        steps += segments[index][1]
    return [*strips, (start, len(segments), before)]
