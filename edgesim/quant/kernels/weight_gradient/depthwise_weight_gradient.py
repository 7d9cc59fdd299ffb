"""Weights' gradients where each channel has a 3 x 3 kernel of its own, eight channels at a time.

Nine sums stay in registers for all outputs of a row. The rows of the image that enter them are held
as floats; each row is converted once.

Symbols:
    band: eight channels; arrays have zeros beyond the last channel
    strip: three rows of the image, row y in slot y modulo 3; band after band, in each slot after
    slot, so that what the sums read lies together
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, UInt8, aligned
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.instructions import (
    HALF,
    F32x8,
    Loop,
    constant,
    instruction,
    load,
    store,
)
from edgesim.quant.kernels.weight_gradient.outer_products import fused, padded_to
from edgesim.quant.kernels.weight_gradient.weight_gradient_tiles import (
    Image,
    fill_gradient,
    fill_image,
)
from edgesim.quant.kernels.weight_gradient.weight_gradient_transforms import Line, center

_KERNEL = 3


class DepthwiseWeightGradient:
    """The weights' gradient of a depthwise convolution with 3 x 3 kernels.

    Args:
        shape: of the convolution.

    Raises:
        KernelError: another geometry.
    """

    def __init__(self, shape: ConvolutionShape) -> None:
        if not self.can_compute(shape):
            raise KernelError(
                f"a depthwise weight gradient has a kernel of 3 and as many groups as channels, "
                f"not {shape.kernel} and {shape.groups} for {shape.channels}; leave it to torch"
            )
        self._shape = shape
        self._channels = padded_to(shape.channels, HALF)

    @staticmethod
    def can_compute(shape: ConvolutionShape) -> bool:
        """Whether this way can be taken."""
        return shape.is_depthwise and shape.kernel == _KERNEL

    def run(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        scale: float,
        g_NHWO: Float32,
        out_OIkk: Float32,
    ) -> None:
        """Write the gradient; arguments as in `WeightGradient.compute`."""
        shape, C = self._shape, self._channels
        height, width = (size + 2 * shape.padding for size in (shape.height, shape.width))
        copied = 0 if shape.channels == C else shape.out_height * shape.out_width * C
        image = np.full(height * width * C, zero_point, np.uint8)
        _run(
            codes_NHWC,
            g_NHWO,
            Image(image, width, C, zero_point),
            shape.stride,
            shape.padding,
            np.zeros(copied, np.float32),
            aligned(_KERNEL * width * C, np.float32),
            np.zeros(_KERNEL**2 * C, np.float32),
            out_OIkk.reshape(shape.channels, 1, -1),
        )
        out_OIkk *= np.float32(scale)


@instruction
def _add_row(
    builder: ir.IRBuilder,
    g: Line,
    strip: ir.Value,
    row_0: ir.Value,
    row_1: ir.Value,
    row_2: ir.Value,
    stride: ir.Value,
    count: ir.Value,
    sums: Line,
) -> None:
    """Add the products of a row of outputs with what its taps see, of one band.

    Args:
        builder: of the caller's code.
        g: read, a vector for each output.
        strip: float32, pixels of eight channels.
        row_0: position of the first tap's first pixel.
        row_1: the same one row below.
        row_2: two rows below.
        stride: pixels from an output to the next.
        count: of outputs.
        sums: nine vectors are added to.
    """
    rows = [builder.gep(strip, [row]) for row in (row_0, row_1, row_2)]
    start = builder.gep(sums.numbers, [sums.first])
    places = [builder.gep(start, [builder.mul(sums.step, constant(i))]) for i in range(9)]
    zero = ir.Constant(F32x8, [0.0] * HALF)
    loop = Loop(
        builder, constant(0), count, [builder.gep(g.numbers, [g.first]), *rows, *[zero] * 9]
    )
    at, *values = loop.values
    rows, totals = values[:3], values[3:]
    factor = load(builder, at, F32x8, 4)
    new = []
    for tap, total in enumerate(totals):
        place = builder.gep(rows[tap // _KERNEL], [constant(tap % _KERNEL * HALF)])
        new.append(fused(builder, factor, load(builder, place, F32x8, 4), total))
    step = builder.mul(stride, constant(HALF))
    moved = [builder.gep(row, [step]) for row in rows]
    totals = loop.close([builder.gep(at, [g.step]), *moved, *new])[4:]
    for place, total in zip(places, totals, strict=True):
        store(builder, builder.fadd(load(builder, place, F32x8, 4), total), place, 4)


@compiled
def _run(
    codes_NHWC: UInt8,
    g_NHWO: Float32,
    image: Image,
    stride: int,
    padding: int,
    gradient: Float32,
    strip: Float32,
    sums: Float32,
    out_OCT: Float32,
) -> None:
    width, channels = image.width, image.channels
    samples, out_height, out_width, C = g_NHWO.shape
    g = gradient if gradient.size else g_NHWO.reshape(-1)
    row_size = width * HALF
    for sample in range(samples):
        fill_image(codes_NHWC, sample, padding, image)
        first = sample * out_height * out_width * channels
        if gradient.size:
            fill_gradient(g_NHWO, sample, out_width, channels, gradient)
            first = 0
        known = 0
        for y in range(out_height):
            for row in range(max(known, y * stride), y * stride + _KERNEL):
                _convert_row(image, row, strip)
            known = y * stride + _KERNEL
            slots = y * stride % _KERNEL, (y * stride + 1) % _KERNEL, (y * stride + 2) % _KERNEL
            at = first + y * out_width * channels
            for c in range(0, channels, HALF):
                band = c * _KERNEL * width
                rows = (
                    band + slots[0] * row_size,
                    band + slots[1] * row_size,
                    band + slots[2] * row_size,
                )
                seen, to = Line(g, at + c, channels), Line(sums, c, channels)
                _add_row(seen, strip, rows[0], rows[1], rows[2], stride, out_width, to)
    for c in range(C):
        for tap in range(_KERNEL * _KERNEL):
            out_OCT[c, 0, tap] = sums[tap * channels + c]


@compiled
def _convert_row(image: Image, row: int, strip: Float32) -> None:
    """Write a row of the image into its slot of the strip."""
    width, channels = image.width, image.channels
    slot = row % _KERNEL * width * HALF
    for c in range(0, channels, HALF):
        start = row * width * channels + c
        to = c * _KERNEL * width + slot
        for x in range(width):
            read = Line(image.codes, start + x * channels, 0)
            center(read, image.zero_point, Line(strip, to + x * HALF, 0))
