"""Noise of stochastic rounding: a pure function of a seed and of an entry's place.

A counter-based generator has no state and no order. So every back end draws the same noise on every
processor, and may do so inside any loop. One 32-bit hash (C. Wellons, "lowbias32") serves two
entries with 16 bits each, so rounding is unbiased to 2^-17 of a step. Noise begins at 0 and never
reaches 1, and its sum with a code is a float32 number: zero stays zero.

Each seed has its own sequence of counters: the seed's low half is the first counter, its high half,
made odd, the step from one counter to the next (the "gamma" of G. Steele, D. Lea and C. Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014). If all sequences had the same step,
they would be parts of a single cycle of 2^32 counters, and the noise of one layer would often equal
that of another layer, shifted.

Symbols:
    i: place of an entry in memory   L: number of entries   H: half of them, rounded up
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF
_GOLDEN_64 = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads neighbouring places


def mix(x: int) -> int:
    """Hash of a 64-bit number, a bijection (D. Stafford's variant 13, as in SplitMix64)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return x ^ (x >> 31)


def derive(seed: int, *places: int) -> int:
    """64-bit seed of a place (layer, tensor) under another 64-bit seed."""
    derived = mix(seed)
    for place in places:
        derived = mix((derived + (place + 1) * _GOLDEN_64) & _MASK_64)
    return derived


def rounding_noise(num_entries: int, seed: int, device: torch.device) -> Tensor:
    """Noise u in [0, 1) for `floor(t + u)`, shape (L,), float32, multiples of 2^-16.

    Entry i < H takes the low half of the hash of counter i, entry H + i the high half.

    Args:
        num_entries: L.
        seed: 64 bits, from `derive`: all of them matter, in both halves.
        device: of the result.
    """
    half = (num_entries + 1) // 2
    first, step = seed & _MASK, (seed >> 32) | 1
    x = torch.arange(half, dtype=torch.int64, device=device)  # products of 32-bit numbers wrap well
    x.mul_(step).add_(first).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 16).mul_(0x7FEB352D).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 15).mul_(0x846CA68B).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 16)
    halves = torch.cat([x & 0xFFFF, x >> 16])[:num_entries]
    return halves.to(torch.float32).mul_(1 / 65536)
