"""Symmetric 8-bit codes of weights on plain arrays, compiled, one thread.

Symbols:
    w: weight   k: its code in [-127, 127]   s: scale   w ~ k s
Shapes:
    O: output channels   I: input channels of a group   T: taps of the kernel
"""

from __future__ import annotations

import numpy as np
from numba import njit

from edgesim.quant.kernels.arrays import Float32, Int8, Int32
from edgesim.quant.kernels.checks import require

_LARGEST_CODE = np.float32(127)
_SMALLEST_SCALE = np.float32(1e-8)  # R§1.1: a constant tensor has no range
_ONE = np.float32(1)
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)


def quantize_weights(weights_OIkk: Float32, *, per_out_channel: bool) -> tuple[Int8, Float32]:
    """Codes rint(w / s), and s = max|w| / 127 of the tensor or of each output channel.

    Args:
        weights_OIkk: contiguous.
        per_out_channel: one scale for each output channel.

    Returns:
        Codes of the weights' shape, channels_last in memory as products want them, and scales of
        shape (1,) or (O,): not finite where weights are not.

    Raises:
        KernelError: an array of another kind.
    """
    require("weights", weights_OIkk, np.float32, weights_OIkk.shape)
    O, I, height, width = weights_OIkk.shape  # noqa: E741 (the legend's)
    largest = np.empty(O, np.int32)
    _largest(weights_OIkk.view(np.int32).reshape(O, -1), largest)
    if not per_out_channel:
        largest = largest.max(keepdims=True)
    scales = np.maximum(largest.view(np.float32) / _LARGEST_CODE, _SMALLEST_SCALE)
    codes_OTI = np.empty((O, height * width, I), np.int8)
    inverses = np.broadcast_to(_ONE / scales, O).copy()
    _quantize(weights_OIkk.reshape(O, I, -1), inverses, codes_OTI)
    return codes_OTI.reshape(O, height, width, I).transpose(0, 3, 1, 2), scales


@njit(nogil=True, cache=True)
def _largest(bits_OL: Int32, largest_O: Int32) -> None:
    """Largest magnitudes, as integers: those of what is not finite are larger than all others."""
    for o in range(bits_OL.shape[0]):
        largest = np.int32(0)
        for i in range(bits_OL.shape[1]):
            largest = max(largest, np.int32(bits_OL[o, i] & _ALL_BUT_SIGN))
        largest_O[o] = largest


@njit(nogil=True, cache=True)
def _quantize(weights_OIT: Float32, inverse_O: Float32, codes_OTI: Int8) -> None:
    for o in range(weights_OIT.shape[0]):
        inverse = inverse_O[o]
        for t in range(weights_OIT.shape[2]):
            for i in range(weights_OIT.shape[1]):
                step = np.rint(weights_OIT[o, i, t] * inverse)
                step = min(max(step, -_LARGEST_CODE), _LARGEST_CODE)
                codes_OTI[o, t, i] = np.int8(np.int32(step))
