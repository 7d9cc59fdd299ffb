"""Weight gradients of convolutions in float32, on one processor core, where torch is slow.

The gradient at the output is not quantized here, so the sums are sums of floats. They differ from
the exact sums by rounding alone. Equal arguments give equal bits on the same processor, where
the system grants its instructions.

Symbols:
    q: codes, uint8   z: zero point   s: scale   g: gradient at the output, float32
Shapes:
    N: samples   H, W: height, width   C: input channels   O: output channels   k: kernel
    I: input channels that an output channel sees. Activations are NHWC and contiguous.
"""

from __future__ import annotations

import numpy as np
from numba.core.registry import cpu_target

from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.weight_gradient.amx_weight_gradient import AmxWeightGradient
from edgesim.quant.kernels.weight_gradient.depthwise_weight_gradient import DepthwiseWeightGradient
from edgesim.quant.kernels.weight_gradient.tiled_weight_gradient import TiledWeightGradient

# Measured against torch on one core of an AMD Zen 3, layer by layer: smaller layers gain nothing.
_CHANNELS = 16  # of the input; fewer would be padded to as many
_OUT_CHANNELS = 8  # likewise
_POINTWISE_PIXELS = 16  # of the output; with fewer, writing the weights' gradient takes longest

_Way = AmxWeightGradient | DepthwiseWeightGradient | TiledWeightGradient


class WeightGradient:
    """The weights' gradient of a convolution of one shape.

    It holds sizes only, so threads may share it. It takes any number of samples.

    Args:
        shape: sizes; one group, or depthwise with 3 x 3 kernels.

    Raises:
        KernelError: other groups.
    """

    def __init__(self, shape: ConvolutionShape) -> None:
        self.shape = shape
        self._method = _choose(shape)

    @staticmethod
    def suits(shape: ConvolutionShape) -> bool:
        """Whether this class can compute the shape, and faster than torch on this processor."""
        if not has_fused_multiply_add():
            return False
        if DepthwiseWeightGradient.can_compute(shape):
            return True
        pixels = shape.out_height * shape.out_width
        if shape.groups > 1 or pixels == 1:
            return False
        if shape.kernel == 1 and pixels < _POINTWISE_PIXELS:
            return False
        return shape.channels >= _CHANNELS and shape.out_channels >= _OUT_CHANNELS

    def compute(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        scale: float,
        g_NHWO: Float32,
        out_OIkk: Float32,
    ) -> None:
        """Write the sums of g (q - z) over samples and pixels, times s, into `out_OIkk`.

        Their errors are below 1e-5 of the largest sum, mostly below 2e-6, unless the terms of that
        sum are much larger than the sum and cancel.

        Args:
            codes_NHWC: q, shape (N, H, W, C).
            zero_point: z, 0 to 255; padding has this code.
            scale: s, rounded to float32; the sums are rounded before they are multiplied.
            g_NHWO: shape (N, output height, output width, O).
            out_OIkk: written, shape (O, I, k, k).

        Raises:
            KernelError: an array of other type or shape, or not contiguous.
        """
        shape, samples = self.shape, len(codes_NHWC)
        inputs = samples, shape.height, shape.width, shape.channels
        outputs = samples, shape.out_height, shape.out_width, shape.out_channels
        require("codes", codes_NHWC, np.uint8, inputs)
        require("gradient at the output", g_NHWO, np.float32, outputs)
        require("gradient at the weights", out_OIkk, np.float32, shape.weight_shape)
        if not samples:
            out_OIkk.fill(0)
            return
        self._method.run(codes_NHWC, zero_point, scale, g_NHWO, out_OIkk)


def _choose(shape: ConvolutionShape) -> _Way:
    if DepthwiseWeightGradient.can_compute(shape):
        return DepthwiseWeightGradient(shape)
    if shape.groups == 1 and amx.is_native():
        by_tiles = AmxWeightGradient(shape)
        if by_tiles.is_fast:
            return by_tiles
    return TiledWeightGradient(shape)


def has_fused_multiply_add() -> bool:
    """Whether numba compiles for a processor with fused multiply-add on 256 bits."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return {"+avx2", "+fma"} <= set(features)
