"""Types of the arrays that kernels take, and allocation of aligned memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edgesim.compiled import compiled

UInt8 = npt.NDArray[np.uint8]
Int8 = npt.NDArray[np.int8]
Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

_LINE = 64  # bytes of a cache line


class Codes(NamedTuple):
    """8-bit codes, and the grid that says what number a code stands for.

    Attributes:
        values: of any shape.
        grid: scale and zero point (`edgesim.quant.kernels.rounding.quantize`).
    """

    values: UInt8
    grid: Float32


def aligned(size: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Uninitialised memory from the start of a cache line: no vector load straddles two."""
    length = size * np.dtype(dtype).itemsize
    memory = np.empty(length + _LINE, np.uint8)
    start = _first_of_line(memory)
    return memory[start : start + length].view(dtype)


@compiled
def _first_of_line(memory: UInt8) -> int:
    # Compiled, this is one load; in numpy, reading the address of an array takes longer than making
    # one.
    return -memory.ctypes.data % _LINE
