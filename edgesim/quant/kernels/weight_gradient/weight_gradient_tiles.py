"""Activations and gradients as the tall matrices whose outer products make weights' gradients.

Row t of U and V belongs to tile t of m x m outputs. U holds its gradient, V the n x n codes that
enter it; both are transformed along both axes. Axes are transformed one after the other, so that
values shared by tiles of a row are computed once. The direct way has no transforms: its tiles are
single outputs, and its positions are the taps.

Symbols:
    U, V, t, position, panel: `outer_products.py`   n, m: `weight_gradient_transforms.py`
    image: a sample's codes with zero points around   line: of numbers that lie `step` apart
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import HALF
from edgesim.quant.kernels.padded_image import fill_in
from edgesim.quant.kernels.weight_gradient.outer_products import (
    U_PANEL,
    V_PANEL,
    Block,
    Matrix,
)
from edgesim.quant.kernels.weight_gradient.weight_gradient_transforms import (
    WIDE,
    Line,
    codes_line_4,
    codes_line_6,
    copy,
    gradient_line_4,
    gradient_line_6,
    image_line_4,
    image_line_6,
    weights_4,
    weights_6,
    wide_center,
    wide_copy,
    wide_gradient_line_4,
    wide_gradient_line_6,
)


class Image(NamedTuple):
    """A sample's codes with zero points around them.

    Attributes:
        codes: flat.
        width: pixels of a row.
        channels: C in whole vectors.
        zero_point: of the codes.
    """

    codes: UInt8
    width: int
    channels: int
    zero_point: int


@inner
def fill_image(codes_NHWC: UInt8, sample: int, padding: int, image: Image) -> None:
    """Write a sample into the image, `padding` pixels from its edges.

    The padding is not changed.
    """
    height = image.codes.size // (image.width * image.channels)
    padded = padding, padding, height, image.width
    fill_in(codes_NHWC, sample, 1, padded, image.channels, 0, image.codes)


@inner
def fill_gradient(g_NHWO: Float32, sample: int, width: int, step: int, gradient: Float32) -> None:
    """Write a sample's gradient among zeros, for tiles and vectors that reach beyond the edges.

    Args:
        g_NHWO: contiguous.
        sample: which.
        width: pixels of a row of `gradient`.
        step: entries of `gradient` from a pixel to the next, O at least.
        gradient: flat.
    """
    _, H, W, O = g_NHWO.shape  # noqa: E741 (the symbol of the legend)
    g = g_NHWO.reshape(-1)
    for y in range(H):
        for x in range(W):
            start = ((sample * H + y) * W + x) * O
            to = (y * width + x) * step
            for o in range(O):
                gradient[to + o] = g[start + o]


@inner
def transform_image(
    image: Image, first: int, n: int, line: Float32, V: Matrix, tile: int, tiles: int
) -> None:
    """Rows of V for a row of tiles.

    Args:
        image: read.
        first: position in it of the first tile's first pixel.
        n: 6 or 4.
        line: overwritten, n rows of the image.
        V: written.
        tile: first row of V to write.
        tiles: how many.
    """
    channels, row = image.channels, image.width * image.channels
    for i in range(0, row, WIDE):
        codes, out = Line(image.codes, first + i, row), Line(line, i, row)
        if n == 6:
            codes_line_6(codes, image.zero_point, out)
        else:
            codes_line_4(codes, image.zero_point, out)
    for y in range(n):
        for x in range(tiles):
            start = y * row + x * (n - 2) * channels
            to = y * n * V.step + (tile + x) * V_PANEL
            for c in range(start, start + channels, V_PANEL):
                for part in range(0, V_PANEL, WIDE):
                    read = Line(line, c + part, channels)
                    written = Line(V.numbers, to + part, V.step)
                    if n == 6:
                        image_line_6(read, written)
                    else:
                        image_line_4(read, written)
                to += V_PANEL * V.capacity


@inner
def transform_gradient(
    g: Float32, first: int, width: int, n: int, line: Float32, U: Matrix, tile: int, tiles: int
) -> None:
    """Rows of U for a row of tiles.

    Args:
        g: flat, as many channels as U has columns.
        first: position in it of the first tile's first pixel.
        width: pixels of a row, m for each tile.
        n: 6 or 4.
        line: overwritten, n rows of the gradient.
        U: written.
        tile: first row of U to write.
        tiles: how many.
    """
    channels, row = U.columns, width * U.columns
    _transform_gradient_run(Line(g, first, row), row, n, Line(line, 0, row))
    for y in range(n):
        for panel in range(0, channels, U_PANEL):
            columns = min(U_PANEL, channels - panel)
            to = y * n * U.step + panel * U.capacity + tile * columns
            for x in range(tiles):
                start = y * row + x * (n - 2) * channels + panel
                read, written = Line(line, start, channels), Line(U.numbers, to, U.step)
                _transform_gradient_run(read, columns, n, written)
                to += columns


@inner
def _transform_gradient_run(read: Line, count: int, n: int, written: Line) -> None:
    """Transform lines whose first numbers are neighbours; `count` is a multiple of 8."""
    done = 0
    while done < count:
        x = Line(read.numbers, read.first + done, read.step)
        out = Line(written.numbers, written.first + done, written.step)
        is_wide = done + WIDE <= count
        if n == 6 and is_wide:
            wide_gradient_line_6(x, out)
        elif n == 6:
            gradient_line_6(x, out)
        elif is_wide:
            wide_gradient_line_4(x, out)
        else:
            gradient_line_4(x, out)
        done += WIDE if is_wide else HALF


@inner
def gather_image(
    image: Image, first: int, kernel: int, stride: int, V: Matrix, tile: int, tiles: int
) -> None:
    """Rows of V for a row of outputs, tap by tap.

    Args:
        image: read.
        first: position in it of the first output's first tap.
        kernel: taps along an axis.
        stride: pixels from an output to the next.
        V: written.
        tile: first row of V to write.
        tiles: how many.
    """
    channels = image.channels
    for tap in range(kernel * kernel):
        start = first + (tap // kernel * image.width + tap % kernel) * channels
        for x in range(tiles):
            at = start + x * stride * channels
            to = tap * V.step + (tile + x) * V_PANEL
            for c in range(at, at + channels, V_PANEL):
                for part in range(0, V_PANEL, WIDE):
                    read, written = Line(image.codes, c + part, 0), Line(V.numbers, to + part, 0)
                    wide_center(read, image.zero_point, written)
                to += V_PANEL * V.capacity


@inner
def gather_gradient(g: Float32, first: int, U: Matrix, tile: int, tiles: int) -> None:
    """Rows of U for a row of outputs; arguments as in `transform_gradient`."""
    for panel in range(0, U.columns, U_PANEL):
        columns = min(U_PANEL, U.columns - panel)
        to = panel * U.capacity + tile * columns
        for x in range(tiles):
            start = first + x * U.columns + panel
            done = 0
            while done + WIDE <= columns:
                wide_copy(Line(g, start + done, 0), Line(U.numbers, to + done, 0))
                done += WIDE
            while done < columns:
                copy(Line(g, start + done, 0), Line(U.numbers, to + done, 0))
                done += HALF
            to += columns


@inner
def clear_rows(U: Matrix, V: Matrix, positions: int, start: int, stop: int) -> None:
    """Fill rows of U and V with zeros.

    Args:
        U: written.
        V: written.
        positions: number of pairs U, V.
        start: first row.
        stop: row behind the last.
    """
    zero, u, v = np.float32(0), U.numbers, V.numbers
    for position in range(positions):
        for t in range(start, stop):
            for o in range(U.columns):
                u[position * U.step + _place(o, U.columns, U.capacity, t)] = zero
            for c in range(V.columns):
                panel, lane = c // V_PANEL, c % V_PANEL
                v[position * V.step + (panel * V.capacity + t) * V_PANEL + lane] = zero


@inner
def write_weights(block: Block, n: int, sums: Float32, out_OCT: Float32) -> None:
    """The gradient at the weights for a block of channels.

    Args:
        block: as `add_block` leaves it.
        n: 6 or 4; 0: M has a position for each tap.
        sums: overwritten, 16 for each tap.
        out_OCT: written.
    """
    O, C, taps = out_OCT.shape  # noqa: E741
    us, vs, M = block.u_panels, block.v_panels, block.M
    step = (us[1] - us[0]) * (vs[1] - vs[0]) * U_PANEL * V_PANEL
    at = block.first_m
    for u_panel in range(us[0], us[1]):
        for v_panel in range(vs[0], vs[1]):
            o, c = u_panel * U_PANEL, v_panel * V_PANEL
            lanes = min(V_PANEL, C - c)
            for row in range(min(U_PANEL, O - o)):
                for half in range(0, lanes, HALF):
                    start = at + row * V_PANEL + half
                    if n == 6:
                        weights_6(Line(M, start, step), Line(sums, half, V_PANEL))
                    elif n == 4:
                        weights_4(Line(M, start, step), Line(sums, half, V_PANEL))
                    else:
                        for tap in range(taps):
                            for i in range(HALF):
                                sums[tap * V_PANEL + half + i] = M[start + tap * step + i]
                for lane in range(lanes):
                    for tap in range(taps):
                        out_OCT[o + row, c + lane, tap] = sums[tap * V_PANEL + lane]
            at += U_PANEL * V_PANEL


@inner
def _place(column: int, columns: int, capacity: int, t: int) -> int:
    """Where in U's first position row t has a column; the last panel may be narrower."""
    panel = column // U_PANEL
    width = min(U_PANEL, columns - panel * U_PANEL)
    return panel * U_PANEL * capacity + t * width + column % U_PANEL
