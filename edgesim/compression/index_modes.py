"""Modes of a tensor's positions in an index code, for `index_code.py` and its compiled twin."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

BITMAP, FIXED, RICE = 0, 1, 2  # Rice with parameter b is 2 + b
