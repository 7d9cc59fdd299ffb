"""Rows of some pixels with all of their channels, for compiled functions.

Values by channel are repeated to the length of a row, so that inner loops are long even with few
channels. An entry of a row is a lane.

Shapes:
    G: groups   C: channels   R: entries of a row
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgesim.quant.kernels.arrays import Float32
from edgesim.quant.kernels.inner import inner

Float64 = NDArray[np.float64]


@inner
def repeat(of_groups: Float32, factors: Float32, row_R: Float32) -> None:
    """Fill a row with values by channel, each multiplied by that of its group."""
    C, G = len(factors), len(of_groups)
    for first in range(0, len(row_R), C):
        for g in range(G):
            start = first + g * (C // G)
            for k in range(C // G):
                row_R[start + k] = of_groups[g] * factors[g * (C // G) + k]


@inner
def add_lanes(lanes_R: Float32, sums_C: Float64) -> None:
    """Add the sums of the lanes to those of their channels."""
    for first in range(0, len(lanes_R), len(sums_C)):
        for c in range(len(sums_C)):
            sums_C[c] += np.float64(lanes_R[first + c])
