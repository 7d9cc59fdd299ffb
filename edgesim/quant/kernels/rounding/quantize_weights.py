"""Symmetric 8-bit codes of weights on plain arrays, compiled, one thread.

Symbols:
    w: weight   k: its code in [-127, 127]   s: scale   w ~ k s
Shapes:
    O: output channels   I: input channels of a group   T: taps of the kernel
"""

from __future__ import annotations

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int8, Int32
from edgesim.quant.kernels.checks import require

_LARGEST_CODE = np.float32(127)
_SMALLEST_SCALE = np.float32(1e-8)  # docs/reference.md, section 1.1: a constant tensor has no range
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
    scales = np.empty(O if per_out_channel else 1, np.float32)
    codes_OTI = np.empty((O, height * width, I), np.int8)
    _quantize(weights_OIkk.reshape(O, I, -1), scales, codes_OTI)
    return codes_OTI.reshape(O, height, width, I).transpose(0, 3, 1, 2), scales


@compiled
def _quantize(weights_OIT: Float32, scales: Float32, codes_OTI: Int8) -> None:
    O, I, T = weights_OIT.shape  # noqa: E741 (the legend's)
    channels = O // len(scales)  # that share a scale
    weights_OL, bits_OL = weights_OIT.reshape(O, -1), weights_OIT.view(np.int32).reshape(O, -1)
    codes_OL, codes_L = codes_OTI.reshape(O, -1), np.empty(I * T, np.int8)
    codes_IT = codes_L.reshape(I, T)
    for i in range(len(scales)):
        first, behind = i * channels, (i + 1) * channels
        scale = _largest(bits_OL[first:behind]) / _LARGEST_CODE
        if scale < _SMALLEST_SCALE:  # NaN is not, and stays
            scale = _SMALLEST_SCALE
        scales[i] = scale
        inverse = _ONE / scale
        for o in range(first, behind):
            if T == 1:
                _write_codes(weights_OL[o], inverse, codes_OL[o])
            else:  # in the weights' order first, which a processor does many at a time
                _write_codes(weights_OL[o], inverse, codes_L)
                _transpose(codes_IT, codes_OTI[o])


@compiled
def _largest(bits_OL: Int32) -> np.float32:
    """Largest magnitude, compared as integers: NaN and infinity are larger than all numbers."""
    largest = np.zeros(1, np.int32)
    for o in range(bits_OL.shape[0]):
        of_channel = np.int32(0)
        for i in range(bits_OL.shape[1]):
            of_channel = max(of_channel, np.int32(bits_OL[o, i] & _ALL_BUT_SIGN))
        largest[0] = max(largest[0], of_channel)
    magnitude: np.float32 = largest.view(np.float32)[0]
    return magnitude


@compiled
def _write_codes(weights_L: Float32, inverse: np.float32, codes_L: Int8) -> None:
    for i in range(len(weights_L)):
        step = np.rint(weights_L[i] * inverse)
        step = min(max(step, -_LARGEST_CODE), _LARGEST_CODE)
        codes_L[i] = np.int8(np.int32(step))


@compiled
def _transpose(codes_IT: Int8, codes_TI: Int8) -> None:
    for t in range(codes_IT.shape[1]):
        for i in range(codes_IT.shape[0]):
            codes_TI[t, i] = codes_IT[i, t]
