"""Preparation of operands, in compiled code.

Between two layers the caches are full of tensors. Preparation in Python would then wait for memory
many times; compiled code hardly waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgesim.quant.kernels.arrays import Float32, Int8, Int16, UInt8
from edgesim.quant.kernels.inner import inner

_LINE = 64  # bytes of a cache line


class Operands(NamedTuple):
    """Inputs and output of a convolution or an input gradient; all arrays are contiguous.

    Attributes:
        codes: of the image, NHWC.
        zero_point: of the codes.
        weights: as (O, k, k, I), flat.
        scale: of the codes.
        weight_scales: one, or one a channel of the output.
        bias: of the output's channels, or empty.
        out: written, NHWC.
    """

    codes: UInt8
    zero_point: int
    weights: Int8
    scale: float
    weight_scales: Float32
    bias: Float32
    out: Float32


@inner
def scratch_bytes(size: int) -> UInt8:
    """Uninitialised memory from the start of a cache line: no vector load straddles two."""
    memory = np.empty(size + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size]


@inner
def scratch_int16(size: int) -> Int16:
    """As `scratch_bytes`, so many numbers."""
    numbers: Int16 = scratch_bytes(2 * size).view(np.int16)
    return numbers


@inner
def scratch_float32(size: int) -> Float32:
    """As `scratch_bytes`, so many numbers."""
    numbers: Float32 = scratch_bytes(4 * size).view(np.float32)
    return numbers


@inner
def scales_of(operands: Operands, channels: int) -> Float32:
    """Scales of products by channel: scales of the weights times the scale of the codes."""
    scales = np.empty(channels, np.float32)
    factor, weight_scales = np.float32(operands.scale), operands.weight_scales
    for i in range(channels):
        scales[i] = factor * weight_scales[i if len(weight_scales) > 1 else 0]
    return scales


@inner
def biases_of(operands: Operands, channels: int) -> Float32:
    """Biases by channel; zeros if there is none, so that one kernel serves both cases."""
    if len(operands.bias):
        return operands.bias
    return np.zeros(channels, np.float32)
