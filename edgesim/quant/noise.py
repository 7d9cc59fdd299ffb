"""Noise of stochastic rounding: a pure function of a seed and of an entry's place.

A counter-based generator needs no state and no order: every back end, on every processor, draws the
same noise, fused into whatever loop it likes. One 32-bit hash (C. Wellons, "lowbias32") serves two
entries with 16 bits each, so rounding is unbiased to 2^-17 of a step. Noise begins at 0 and never
reaches 1, and its sum with a code is a float32 number: zero stays zero.

Symbols:
    i: place of an entry in memory   L: number of entries   H: half of them, rounded up
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads neighbouring counters over the whole range


def mix(x: int) -> int:
    """Hash of a 32-bit number, a bijection."""
    x ^= x >> 16
    x = (x * 0x7FEB352D) & _MASK
    x ^= x >> 15
    x = (x * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def derive(seed: int, *places: int) -> int:
    """32-bit seed of a place (layer, tensor) under another seed of any size."""
    derived = mix((seed ^ (seed >> 32)) & _MASK)
    for place in places:
        derived = mix((derived + (place + 1) * _GOLDEN) & _MASK)
    return derived


def rounding_noise(num_entries: int, seed: int, device: torch.device) -> Tensor:
    """Noise u in [0, 1) for `floor(t + u)`, shape (L,), float32, multiples of 2^-16.

    Entry i < H takes the low half of the hash of counter i, entry H + i the high half.

    Args:
        num_entries: L.
        seed: 32 bits.
        device: where the noise is wanted.
    """
    half = (num_entries + 1) // 2
    x = torch.arange(half, dtype=torch.int64, device=device)  # products of 32-bit numbers wrap well
    x.mul_(_GOLDEN).add_(seed).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 16).mul_(0x7FEB352D).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 15).mul_(0x846CA68B).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 16)
    halves = torch.cat([x & 0xFFFF, x >> 16])[:num_entries]
    return halves.to(torch.float32).mul_(1 / 65536)
