"""Copies codes into an image with padding, converted to the type of the image."""

from __future__ import annotations

from edgesim.quant.kernels.arrays import Int16, UInt8
from edgesim.quant.kernels.inner import inner


@inner
def fill_in(
    codes_NHWC: UInt8,
    first: int,
    count: int,
    padded: tuple[int, int, int, int],
    step: int,
    less: int,
    image: Int16 | UInt8,
) -> None:
    """Fill in samples `first` to `first + count`; the padding is not changed.

    Args:
        codes_NHWC: contiguous.
        first: sample.
        count: of samples.
        padded: rows above and columns to the left, height and width of a padded sample.
        step: entries of the image from a pixel to the next, C at least.
        less: subtracted from every code.
        image: flat, of `count` padded samples at least.
    """
    top, left, height, width = padded
    _, H, W, C = codes_NHWC.shape
    codes = codes_NHWC.reshape(-1)
    for n in range(count):
        for y in range(H):
            start = ((first + n) * H + y) * W * C
            to = ((n * height + top + y) * width + left) * step
            if step == C:
                _fill_run(codes[start : start + W * C], less, image[to : to + W * C])
                continue
            for _ in range(W):
                _fill_run(codes[start : start + C], less, image[to : to + C])
                start += C
                to += step


@inner
def _fill_run(codes: UInt8, less: int, run: Int16 | UInt8) -> None:
    # LLVM vectorises this loop only as a separate function on arrays of the run alone.
    for i in range(codes.size):
        run[i] = codes[i] - less
