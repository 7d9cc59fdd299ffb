"""What compiled kernels make of their operands before they start; all of it in their own code.

Between two layers the caches hold tensors: a call from Python then waits for memory many times, a
compiled one hardly.
"""

from __future__ import annotations

import numpy as np

from edgesim.quant.kernels.arrays import Float32, Int16, UInt8
from edgesim.quant.kernels.inner import inner

_LINE = 64  # bytes of a cache line


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
def scales_of(weight_scales: Float32, scale: float, channels: int) -> Float32:
    """Scales of products by channel: those of the weights, one or one a channel, times `scale`."""
    scales = np.empty(channels, np.float32)
    factor = np.float32(scale)
    for i in range(channels):
        scales[i] = factor * weight_scales[i if len(weight_scales) > 1 else 0]
    return scales


@inner
def biases_of(bias: Float32, channels: int) -> Float32:
    """Biases by channel; zeros of none, for x + 0 is x and one kernel is enough."""
    if len(bias):
        return bias
    return np.zeros(channels, np.float32)
