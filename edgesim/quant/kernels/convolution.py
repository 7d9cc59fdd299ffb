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

from edgesim.quant.kernels.arrays import Float32, Int8, Int16, UInt8
from edgesim.quant.kernels.depthwise import Depthwise
from edgesim.quant.kernels.direct import Direct
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import (
    ConvolutionShape,
    Tables,
    forward_tables,
    gradient_tables,
)
from edgesim.quant.kernels.instructions import LANES
from edgesim.quant.kernels.packing import weights_in_memory_order
from edgesim.quant.kernels.winograd import Winograd

Method = Literal["direct", "depthwise", "winograd"]


class Convolution:
    """The integer convolution of one shape and its input gradient.

    Holds tables of positions, and neither weights nor activations: make it once for a layer and an
    image size; it may be shared by threads. Any number of samples is taken.

    Args:
        shape: sizes.
        method: how, in both directions; None: the fastest way for each. All give the same bits.

    Raises:
        KernelError: the method can't compute this shape.
    """

    def __init__(self, shape: ConvolutionShape, method: Method | None = None) -> None:
        self.shape = shape
        self._forward = _choose(shape, forward_tables, method)
        self._gradient = _choose(shape, gradient_tables, method)

    def pack_forward(self, weights_OIkk: Int8) -> Int16:
        """Weights for `convolve`.

        Args:
            weights_OIkk: int8 in [-127, 127], shape (O, I, k, k). In channels_last memory nothing
                is copied before packing.

        Raises:
            KernelError: other type or shape.
        """
        return self._forward.pack(weights_in_memory_order(weights_OIkk, self.shape.weight_shape))

    def pack_input_gradient(self, weights_OIkk: Int8) -> Int16:
        """Weights for `input_gradient`; arguments and errors of `pack_forward`."""
        return self._gradient.pack(weights_in_memory_order(weights_OIkk, self.shape.weight_shape))

    def convolve(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        packed: Int16,
        scale_O: Float32,
        bias_O: Float32 | None,
        out_NHWO: Float32,
    ) -> None:
        """Write float32(acc) * scale_O + bias_O, each operation rounded, into `out_NHWO`.

        Args:
            codes_NHWC: q, shape (N, H, W, C).
            zero_point: z, 0 to 255; padding has this code.
            packed: from `pack_forward`.
            scale_O: of the input times that of the weights, shape (O,).
            bias_O: shape (O,), or None.
            out_NHWO: written, shape (N, output height, output width, O).

        Raises:
            KernelError: an array of other type or shape, or not contiguous.
        """
        shape = self.shape
        samples = len(codes_NHWC)
        _check("codes", codes_NHWC, np.uint8, (samples, shape.height, shape.width, shape.channels))
        out_shape = (samples, shape.out_height, shape.out_width, shape.out_channels)
        _check("output", out_NHWO, np.float32, out_shape)
        _check("packed weights", packed, np.int16, (self._forward.packed_size,))
        _check("scales", scale_O, np.float32, (shape.out_channels,))
        # x + 0 is x: one kernel is enough.
        bias = np.zeros_like(scale_O) if bias_O is None else bias_O
        _check("biases", bias, np.float32, (shape.out_channels,))
        if samples:
            out = out_NHWO.reshape(-1)
            self._forward.run(codes_NHWC, zero_point, packed, scale_O, bias, out)

    def input_gradient(
        self,
        codes_NHWO: UInt8,
        zero_point: int,
        packed: Int16,
        scale: float,
        out_NHWC: Float32,
    ) -> None:
        """Write float32(acc) * scale, rounded twice, into `out_NHWC`.

        Here acc sums over all places at which an input was multiplied.

        Args:
            codes_NHWO: q of the gradient at the output, shape (N, output height, output width, O).
            zero_point: z, 0 to 255.
            packed: from `pack_input_gradient`.
            scale: of the gradient times that of the weights; rounded to float32.
            out_NHWC: written, shape (N, H, W, C).

        Raises:
            KernelError: an array of other type or shape, or not contiguous.
        """
        shape = self.shape
        samples = len(codes_NHWO)
        codes_shape = (samples, shape.out_height, shape.out_width, shape.out_channels)
        _check("codes", codes_NHWO, np.uint8, codes_shape)
        out_shape = (samples, shape.height, shape.width, shape.channels)
        _check("output", out_NHWC, np.float32, out_shape)
        _check("packed weights", packed, np.int16, (self._gradient.packed_size,))
        if samples:
            scale_C = np.full(shape.channels, scale, np.float32)
            out = out_NHWC.reshape(-1)
            bias_C = np.zeros_like(scale_C)
            self._gradient.run(codes_NHWO, zero_point, packed, scale_C, bias_C, out)


def _choose(
    shape: ConvolutionShape,
    tables_of: Callable[[ConvolutionShape, int], Tables],
    method: Method | None,
) -> Direct | Depthwise | Winograd:
    if method == "depthwise" or (method is None and shape.is_depthwise):
        return Depthwise(tables_of(shape, LANES))
    tables = tables_of(shape, 1)
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
