"""Maximum pooling of NHWC images in one pass, and its gradient in another.

The bits are those of torch: of equal entries the first in a window is the maximum, NaN is larger
than any number, and gradients are summed in the order of the outputs.

Symbols:
    place: row * kernel + column of an entry in its window
Shapes:
    N: samples   H, W: height, width   O, P: those of the output   C: channels
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import UInt8

Floats = npt.NDArray[np.floating[Any]]
Window = tuple[int, int, int]  # kernel, stride, padding


@compiled
def max_pool(x_NHWC: Floats, window: Window, y_NOPC: Floats, places_NOPC: UInt8) -> None:
    """Write the maximum of each window, and its place.

    Args:
        x_NHWC: contiguous.
        window: each has an entry within the image.
        y_NOPC: written, of the type of x.
        places_NOPC: written.
    """
    kernel, stride, padding = window
    N, H, W, _ = x_NHWC.shape
    for n in range(N):
        for o in range(y_NOPC.shape[1]):
            top = o * stride - padding
            for p in range(y_NOPC.shape[2]):
                left = p * stride - padding
                y, places = y_NOPC[n, o, p], places_NOPC[n, o, p]
                is_first = True
                for row in range(max(top, 0), min(top + kernel, H)):
                    for column in range(max(left, 0), min(left + kernel, W)):
                        place = np.uint8((row - top) * kernel + column - left)
                        _take_larger(x_NHWC[n, row, column], place, is_first, y, places)
                        is_first = False


@compiled
def _take_larger(x: Floats, place: np.uint8, is_first: bool, y: Floats, places: UInt8) -> None:
    # LLVM vectorises this loop only as a separate function on arrays of the channels alone.
    if is_first:
        for c in range(x.size):
            y[c] = x[c]
            places[c] = place
        return
    for c in range(x.size):
        is_larger = not x[c] <= y[c]  # also where one is NaN
        is_larger &= y[c] == y[c] or x[c] != x[c]
        y[c] = x[c] if is_larger else y[c]
        places[c] = place if is_larger else places[c]


@compiled
def max_pool_gradient(g_NOPC: Floats, places_NOPC: UInt8, window: Window, g_NHWC: Floats) -> None:
    """Write the gradient of each input: the sum over the outputs whose maximum it is.

    Args:
        g_NOPC: contiguous.
        places_NOPC: of `max_pool`.
        window: of `max_pool`.
        g_NHWC: written.
    """
    kernel, stride, padding = window
    N, H, W, _ = g_NHWC.shape
    covered = (g_NOPC.shape[1] * kernel, g_NOPC.shape[2] * kernel)
    is_in_one_window = stride == kernel and padding == 0 and covered == (H, W)
    if not is_in_one_window:
        g_NHWC[:] = 0
    for n in range(N):
        for o in range(g_NOPC.shape[1]):
            top = o * stride - padding
            for p in range(g_NOPC.shape[2]):
                left = p * stride - padding
                for row in range(max(top, 0), min(top + kernel, H)):
                    for column in range(max(left, 0), min(left + kernel, W)):
                        place = np.uint8((row - top) * kernel + column - left)
                        g, places = g_NOPC[n, o, p], places_NOPC[n, o, p]
                        if is_in_one_window:
                            _set_where(g, places, place, g_NHWC[n, row, column])
                        else:
                            _add_where(g, places, place, g_NHWC[n, row, column])


@compiled
def _add_where(g: Floats, places: UInt8, place: np.uint8, total: Floats) -> None:
    zero = g.dtype.type(0)
    for c in range(g.size):
        # Zero changes no bit: a sum that begins at 0 never is -0.
        total[c] += g[c] if places[c] == place else zero


@compiled
def _set_where(g: Floats, places: UInt8, place: np.uint8, total: Floats) -> None:
    zero = g.dtype.type(0)
    for c in range(g.size):
        # The sum that begins at 0 makes 0 of -0, as `_add_where` does.
        total[c] = zero + (g[c] if places[c] == place else zero)
