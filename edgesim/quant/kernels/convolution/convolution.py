"""Exact convolutions of 8-bit codes, and their input gradients, on one processor core.

A fully connected layer is a convolution with kernel 1 of images of one pixel.

Symbols:
    q: codes, uint8   z: zero point   w: weights, int8   acc: sums of (q - z) w, int32, exact
Shapes:
    N: samples   H, W: height, width   C: input channels   O: output channels   k: kernel
    I: input channels that an output channel sees. Activations are NHWC and contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from edgesim.quant.kernels.arrays import Float32, Int8, UInt8
from edgesim.quant.kernels.convolution import amx_tiles
from edgesim.quant.kernels.convolution.amx_tiles import AmxTiles
from edgesim.quant.kernels.convolution.depthwise import Depthwise
from edgesim.quant.kernels.convolution.direct import Direct
from edgesim.quant.kernels.convolution.packing import weights_in_memory_order
from edgesim.quant.kernels.convolution.winograd import Winograd
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import (
    ConvolutionShape,
    Tables,
    forward_tables,
    gradient_tables,
)
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.operands import Operands
from edgesim.quant.kernels.products import amx, native
from edgesim.quant.kernels.products.tile import PAIRS, QUADS

Method = Literal["direct", "direct_bytes", "depthwise", "winograd"]

_Way = Direct | AmxTiles | Depthwise | Winograd

_NO_BIAS = np.empty(0, np.float32)


class Convolution:
    """The integer convolution of one shape and its input gradient.

    It holds tables of positions, but no weights or activations. Make it once for each layer and
    image size; threads may share it. It takes any number of samples.

    Args:
        shape: sizes.
        method: algorithm for both directions; None chooses the fastest for each. All give equal
            bits.

    Raises:
        KernelError: the method can't compute this shape.
    """

    def __init__(self, shape: ConvolutionShape, method: Method | None = None) -> None:
        self.shape = shape
        self._forward = _choose(shape, forward_tables, method)
        self._gradient = _choose(shape, gradient_tables, method)

    def convolve(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        scale: float,
        weights_OIkk: Int8,
        weight_scales: Float32,
        bias_O: Float32 | None,
        out_NHWO: Float32,
    ) -> None:
        """Write float32(acc) * (weight_scales * scale) + bias_O into `out_NHWO`.

        Each operation is rounded.

        Args:
            codes_NHWC: q, shape (N, H, W, C).
            zero_point: z, 0 to 255; padding has this code.
            scale: of the codes; rounded to float32.
            weights_OIkk: int8 in [-127, 127], shape (O, I, k, k). In channels_last memory they are
                not copied.
            weight_scales: shape (O,), or (1,).
            bias_O: shape (O,), or None.
            out_NHWO: written, shape (N, output height, output width, O).

        Raises:
            KernelError: an array of other type or shape, or not contiguous.
        """
        bias = _NO_BIAS
        if bias_O is not None:
            _check("biases", bias_O, np.float32, (self.shape.out_channels,))
            bias = bias_O
        weights = weights_in_memory_order(weights_OIkk, self.shape.weight_shape)
        self._run(
            self._forward,
            Operands(codes_NHWC, zero_point, weights, scale, weight_scales, bias, out_NHWO),
        )

    def input_gradient(
        self,
        codes_NHWO: UInt8,
        zero_point: int,
        scale: float,
        weights_OIkk: Int8,
        weight_scales: Float32,
        out_NHWC: Float32,
    ) -> None:
        """Write float32(acc) * (weight_scales * scale), rounded thrice, into `out_NHWC`.

        Here acc sums over all places at which an input was multiplied.

        Args:
            codes_NHWO: q of the gradient at the output, shape (N, output height, output width, O).
            zero_point: z, 0 to 255.
            scale: of the gradient; rounded to float32.
            weights_OIkk: of `convolve`.
            weight_scales: shape (1,), or (C,).
            out_NHWC: written, shape (N, H, W, C).

        Raises:
            KernelError: an array of other type or shape, or not contiguous.
        """
        weights = weights_in_memory_order(weights_OIkk, self.shape.weight_shape)
        self._run(
            self._gradient,
            Operands(codes_NHWO, zero_point, weights, scale, weight_scales, _NO_BIAS, out_NHWC),
        )

    def _run(self, method: _Way, operands: Operands) -> None:
        shape, samples = self.shape, len(operands.codes)
        inputs = samples, shape.height, shape.width, shape.channels
        outputs = samples, shape.out_height, shape.out_width, shape.out_channels
        if method is self._gradient:
            inputs, outputs = outputs, inputs
        scales = operands.weight_scales
        _check("codes", operands.codes, np.uint8, inputs)
        _check("output", operands.out, np.float32, outputs)
        _check("scales", scales, np.float32, (1 if len(scales) == 1 else outputs[3],))
        if samples:
            method.run(operands)


def _choose(
    shape: ConvolutionShape,
    tables_of: Callable[..., Tables],
    method: Method | None,
) -> _Way:
    if method == "depthwise" or (method is None and shape.is_depthwise):
        return Depthwise(tables_of(shape, PAIRS, LANES))
    if method is None and shape.groups == 1 and amx.is_native():
        tables = tables_of(shape, amx_tiles.TILE)
        if AmxTiles.suits(tables):
            return AmxTiles(tables)
    # With products twice as fast, transforms take as long as the products that they save.
    if method == "direct_bytes" or (method is None and native.dot_product_is_native()):
        return Direct(tables_of(shape, QUADS))
    tables = tables_of(shape, PAIRS)
    if method == "winograd" or (method is None and Winograd.suits(tables)):
        return Winograd(tables)
    return Direct(tables)


def _check(
    what: str,
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    kind: type[np.generic],
    shape: tuple[int, ...],
) -> None:
    if array.dtype.type is not kind or array.shape != shape:
        raise KernelError(
            f"{what} of a convolution are {array.dtype} of shape {array.shape}; must be "
            f"{np.dtype(kind)} of shape {shape}"
        )
    if not array.flags.c_contiguous:
        raise KernelError(f"{what} of a convolution are not contiguous; give a contiguous copy")
