"""Codes less their zero point, as 16-bit numbers in an image with zeros around it."""

from __future__ import annotations

import numpy as np
from numba import njit

from edgesim.quant.kernels.arrays import Int16, UInt8


@njit(nogil=True, cache=True)
def widen(
    codes_NHWC: UInt8,
    first: int,
    count: int,
    zero_point: int,
    padded: tuple[int, int, int, int],
    step: int,
    image: Int16,
) -> None:
    """Fill in samples `first` to `first + count`; the zeros around them stay as they are.

    Args:
        codes_NHWC: contiguous.
        first: sample.
        count: of samples.
        zero_point: 0 to 255.
        padded: zeros above and to the left, height and width of a padded sample.
        step: entries of the image from a pixel to the next, C at least.
        image: flat, of `count` padded samples at least.
    """
    top, left, height, width = padded
    _, H, W, C = codes_NHWC.shape
    codes = codes_NHWC.reshape(-1)
    zero = np.int16(zero_point)
    for n in range(count):
        for y in range(H):
            start = ((first + n) * H + y) * W * C
            to = ((n * height + top + y) * width + left) * step
            if step == C:
                _widen_run(codes[start : start + W * C], zero, image[to : to + W * C])
                continue
            for _ in range(W):
                _widen_run(codes[start : start + C], zero, image[to : to + C])
                start += C
                to += step


@njit(nogil=True, cache=True)
def _widen_run(codes: UInt8, zero: np.int16, run: Int16) -> None:
    for i in range(codes.size):
        run[i] = np.int16(codes[i]) - zero
