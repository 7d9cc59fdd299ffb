"""Activations and gradients as the tall matrices whose outer products make weights' gradients.

Row t of U and V belongs to tile t of m x m outputs: in U its gradient, transformed along both axes,
in V the n x n codes that it sees, so too. One axis at a time: what tiles in a row share is computed
once. The direct way has no transforms: its tiles are single outputs, and its positions the taps.

Symbols:
    U, V, t, position, panel: `outer_products.py`   n, m: `weight_gradient_transforms.py`
    image: a sample's codes with zero points around   line: of numbers that lie `step` apart
"""

from __future__ import annotations

import numpy as np

from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import HALF
from edgesim.quant.kernels.weight_gradient.outer_products import U_PANEL, V_PANEL
from edgesim.quant.kernels.weight_gradient.weight_gradient_transforms import (
    WIDE,
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


@inner
def fill_image(
    codes_NHWC: UInt8, sample: int, padding: int, width: int, step: int, image: UInt8
) -> None:
    """Write a sample into the image; the zero points around it stay as they are.

    Args:
        codes_NHWC: contiguous.
        sample: which.
        padding: pixels above and to the left.
        width: pixels of a row of the image.
        step: entries of the image from a pixel to the next, C at least.
        image: flat.
    """
    _, H, W, C = codes_NHWC.shape
    codes = codes_NHWC.reshape(-1)
    for y in range(H):
        start = (sample * H + y) * W * C
        to = ((padding + y) * width + padding) * step
        if step == C:
            _copy_codes(codes[start : start + W * C], image[to : to + W * C])
            continue
        for x in range(W):
            for c in range(C):
                image[to + x * step + c] = codes[start + x * C + c]


@inner
def _copy_codes(codes: UInt8, run: UInt8) -> None:
    # Assigned as slices they would be copied one by one.
    for i in range(codes.size):
        run[i] = codes[i]


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
    image: UInt8,
    first: int,
    width: int,
    channels: int,
    zero_point: int,
    n: int,
    line: Float32,
    V: Float32,
    v_step: int,
    capacity: int,
    tile: int,
    tiles: int,
) -> None:
    """Rows of V for a row of tiles.

    Args:
        image: flat.
        first: position in it of the first tile's first pixel.
        width: pixels of a row of the image.
        channels: of the image, a multiple of 16.
        zero_point: of the codes.
        n: 6 or 4.
        line: overwritten, n rows of the image.
        V: flat.
        v_step: from a position to the next.
        capacity: rows for which V has room.
        tile: first row of V to write.
        tiles: how many.
    """
    row = width * channels
    for i in range(0, row, WIDE):
        if n == 6:
            codes_line_6(image, first + i, row, zero_point, line, i, row)
        else:
            codes_line_4(image, first + i, row, zero_point, line, i, row)
    for y in range(n):
        for x in range(tiles):
            start = y * row + x * (n - 2) * channels
            to = y * n * v_step + (tile + x) * V_PANEL
            for c in range(start, start + channels, V_PANEL):
                for part in range(0, V_PANEL, WIDE):
                    if n == 6:
                        image_line_6(line, c + part, channels, V, to + part, v_step)
                    else:
                        image_line_4(line, c + part, channels, V, to + part, v_step)
                to += V_PANEL * capacity


@inner
def transform_gradient(
    g: Float32,
    first: int,
    width: int,
    channels: int,
    n: int,
    line: Float32,
    U: Float32,
    u_step: int,
    capacity: int,
    tile: int,
    tiles: int,
) -> None:
    """Rows of U for a row of tiles.

    Args:
        g: flat.
        first: position in it of the first tile's first pixel.
        width: pixels of a row, m for each tile.
        channels: of the gradient, a multiple of 8.
        n: 6 or 4.
        line: overwritten, n rows of the gradient.
        U: flat.
        u_step: from a position to the next.
        capacity: rows for which U has room.
        tile: first row of U to write.
        tiles: how many.
    """
    row = width * channels
    _transform_gradient_run(g, first, row, row, n, line, 0, row)
    for y in range(n):
        for panel in range(0, channels, U_PANEL):
            columns = min(U_PANEL, channels - panel)
            to = y * n * u_step + panel * capacity + tile * columns
            for x in range(tiles):
                start = y * row + x * (n - 2) * channels + panel
                _transform_gradient_run(line, start, columns, channels, n, U, to, u_step)
                to += columns


@inner
def _transform_gradient_run(
    g: Float32, first: int, count: int, step: int, n: int, out: Float32, to: int, out_step: int
) -> None:
    """Transform lines whose first numbers are neighbours; `count` is a multiple of 8."""
    done = 0
    while done + WIDE <= count:
        if n == 6:
            wide_gradient_line_6(g, first + done, step, out, to + done, out_step)
        else:
            wide_gradient_line_4(g, first + done, step, out, to + done, out_step)
        done += WIDE
    while done < count:
        if n == 6:
            gradient_line_6(g, first + done, step, out, to + done, out_step)
        else:
            gradient_line_4(g, first + done, step, out, to + done, out_step)
        done += HALF


@inner
def gather_image(
    image: UInt8,
    first: int,
    width: int,
    channels: int,
    zero_point: int,
    kernel: int,
    stride: int,
    V: Float32,
    v_step: int,
    capacity: int,
    tile: int,
    tiles: int,
) -> None:
    """Rows of V for a row of outputs, tap by tap.

    Args:
        image: flat.
        first: position in it of the first output's first tap.
        width: as in `transform_image`, and so on.
        channels: as there.
        zero_point: as there.
        kernel: taps along an axis.
        stride: pixels from an output to the next.
        V: as there.
        v_step: as there.
        capacity: as there.
        tile: as there.
        tiles: as there.
    """
    for tap in range(kernel * kernel):
        start = first + (tap // kernel * width + tap % kernel) * channels
        for x in range(tiles):
            at = start + x * stride * channels
            to = tap * v_step + (tile + x) * V_PANEL
            for c in range(at, at + channels, V_PANEL):
                for part in range(0, V_PANEL, WIDE):
                    wide_center(image, c + part, 0, zero_point, V, to + part, 0)
                to += V_PANEL * capacity


@inner
def gather_gradient(
    g: Float32, first: int, channels: int, U: Float32, capacity: int, tile: int, tiles: int
) -> None:
    """Rows of U for a row of outputs; arguments as in `transform_gradient`."""
    for panel in range(0, channels, U_PANEL):
        columns = min(U_PANEL, channels - panel)
        to = panel * capacity + tile * columns
        for x in range(tiles):
            start = first + x * channels + panel
            done = 0
            while done + WIDE <= columns:
                wide_copy(g, start + done, 0, U, to + done, 0)
                done += WIDE
            while done < columns:
                copy(g, start + done, 0, U, to + done, 0)
                done += HALF
            to += columns


@inner
def clear_rows(
    U: Float32,
    u_step: int,
    u_columns: int,
    V: Float32,
    v_step: int,
    v_columns: int,
    positions: int,
    capacity: int,
    start: int,
    stop: int,
) -> None:
    """Fill rows of U and V with zeros.

    Args:
        U: flat.
        u_step: from a position to the next.
        u_columns: of U.
        V: flat.
        v_step: from a position to the next.
        v_columns: of V.
        positions: number of pairs U, V.
        capacity: rows for which U and V have room.
        start: first row.
        stop: row behind the last.
    """
    zero = np.float32(0)
    for position in range(positions):
        for t in range(start, stop):
            for o in range(u_columns):
                U[position * u_step + _place(o, u_columns, capacity, t)] = zero
            for c in range(v_columns):
                panel, lane = c // V_PANEL, c % V_PANEL
                V[position * v_step + (panel * capacity + t) * V_PANEL + lane] = zero


@inner
def write_weights(
    M: Float32,
    first_m: int,
    u_panels: tuple[int, int],
    v_panels: tuple[int, int],
    n: int,
    taps: int,
    sums: Float32,
    out_OCT: Float32,
) -> None:
    """The gradient at the weights for a block of channels.

    Args:
        M: of the block, as `add_block` leaves it.
        first_m: position of its first sum.
        u_panels: of U, first and behind the last.
        v_panels: of V.
        n: 6 or 4; 0: M has a position for each tap.
        taps: T, kernel squared.
        sums: overwritten, 16 for each tap.
        out_OCT: written.
    """
    O, C, _ = out_OCT.shape  # noqa: E741
    pairs = (u_panels[1] - u_panels[0]) * (v_panels[1] - v_panels[0])
    step = pairs * U_PANEL * V_PANEL
    at = first_m
    for u_panel in range(u_panels[0], u_panels[1]):
        for v_panel in range(v_panels[0], v_panels[1]):
            o, c = u_panel * U_PANEL, v_panel * V_PANEL
            lanes = min(V_PANEL, C - c)
            for row in range(min(U_PANEL, O - o)):
                for half in range(0, lanes, HALF):
                    start = at + row * V_PANEL + half
                    if n == 6:
                        weights_6(M, start, step, sums, half, V_PANEL)
                    elif n == 4:
                        weights_4(M, start, step, sums, half, V_PANEL)
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
