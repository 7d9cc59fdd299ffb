"""Gates of the EvoNorms in float32, for compiled functions."""

from __future__ import annotations

import numpy as np

from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.intrinsics import larger, power_of_two, smaller

_ZERO, _ONE = np.float32(0), np.float32(1)
# exp(t) = 2^n exp(f) with n = round(t / ln 2), f = t - n ln 2. ln 2 has two parts, of which the
# first has so few bits that its product with n is exact. The polynomial is Taylor's: at
# |f| <= ln 2 / 2 the first term left out, f^8 / 8!, is below 2^-27 of the result.
_LOWEST, _HIGHEST = np.float32(-87), np.float32(88)  # 2^n stays a normal number
_PER_LN_2 = np.float32(1.4426950408889634)
_LN_2_HIGH = np.float32(0.693359375)
_LN_2_LOW = np.float32(-2.12194440054690583e-4)
_ROUND = np.float32(1.5 * 2**23)  # added and subtracted: rounds to the nearest whole number
_INVERSE_FACTORIALS = tuple(np.float32(1 / f) for f in (1, 1, 2, 6, 24, 120, 720, 5040))
_F0, _F1, _F2, _F3, _F4, _F5, _F6, _F7 = _INVERSE_FACTORIALS


@inner
def sigmoid(t: np.float32) -> np.float32:
    """1 / (1 + exp(-t)), within three units in the last place; NaN of NaN."""
    limited = smaller(larger(-t, _LOWEST), _HIGHEST)
    shifted = limited * _PER_LN_2 + _ROUND
    n = shifted - _ROUND
    f = (limited - n * _LN_2_HIGH) - n * _LN_2_LOW
    e = _F7
    e = e * f + _F6
    e = e * f + _F5
    e = e * f + _F4
    e = e * f + _F3
    e = e * f + _F2
    e = e * f + _F1
    e = e * f + _F0
    s = _ONE / (_ONE + e * power_of_two(shifted))
    return s if t == t else t  # NaN, which the limits would hide


@inner
def hard_sigmoid(t: np.float32) -> np.float32:
    """The clip of t = v x / 6 + 1/2 to 0 and 1."""
    return smaller(larger(t, _ZERO), _ONE)
