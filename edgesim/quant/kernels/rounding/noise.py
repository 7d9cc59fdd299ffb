"""Noise of stochastic rounding, block by block: see `edgesim/quant/rounding_noise.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32

UInt32 = NDArray[np.uint32]

BLOCK = 512  # of noise: stays in the first-level cache
_FIRST_FACTOR = np.uint32(0x7FEB352D)  # of the hash in rounding_noise.py
_SECOND_FACTOR = np.uint32(0x846CA68B)
_LOW_BITS = np.uint32(0xFFFF)
_15 = np.uint32(15)
_16 = np.uint32(16)
_ONE = np.uint32(1)
_32 = np.uint64(32)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_PER_HASH_STEP = np.float32(1 / 65536)


@compiled
def step_of(seed: np.uint64) -> np.uint32:
    """Step from one counter to the next."""
    return np.uint32(np.uint32(seed >> _32) | _ONE)


@compiled
def multiples_of_step(seed: np.uint64) -> UInt32:
    """Multiples of the step for the places in a block, for `write_noise`."""
    multiples, step = np.empty(BLOCK, np.uint32), step_of(seed)
    for i in range(BLOCK):
        multiples[i] = np.uint32(np.uint32(i) * step)
    return multiples


@compiled
def write_noise(
    start: int, seed: np.uint64, multiples: UInt32, low: Float32, high: Float32
) -> None:
    """Noise of a block of entries, and of their partners in the second half of the tensor."""
    first = np.uint32(np.uint32(np.uint32(start) * step_of(seed)) + np.uint32(seed & _LOW_WORD))
    for i in range(len(multiples)):
        word = np.uint32(multiples[i] + first)
        word = np.uint32(np.uint32(word ^ (word >> _16)) * _FIRST_FACTOR)
        word = np.uint32(np.uint32(word ^ (word >> _15)) * _SECOND_FACTOR)
        word = np.uint32(word ^ (word >> _16))
        low[i] = np.float32(np.int32(word & _LOW_BITS)) * _PER_HASH_STEP
        high[i] = np.float32(np.int32(word >> _16)) * _PER_HASH_STEP
