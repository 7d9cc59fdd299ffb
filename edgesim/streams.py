"""Random streams: one for each purpose, device and round, derived from the scenario's seed.

No global generator is used anywhere, so a result cannot depend on how devices are packed into
processes or on the order in which they run (docs/accounting.md, Randomness).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class StreamPurpose(IntEnum):
    """What a stream is for. The numbers are part of every result: never renumber."""

    PARTITION = 0
    INIT = 1
    BATCH = 2
    AUGMENT = 3
    COMPRESS = 4
    DROPOUT = 5
    TOPOLOGY = 6
    ROUNDING = 7
    EVALUATION_ROUNDING = 8
    LINK = 9
    COMPUTE_TIME = 10
    CHURN = 11
    AVERAGING_RATE = 12
    EVALUATED_DEVICES = 13
    FURTHER_GOSSIP = 14
    VALIDATION = 15


def seed_sequence(
    seed: int, purpose: StreamPurpose, device: int = 0, index: int = 0, *, peer: int | None = None
) -> np.random.SeedSequence:
    """Entropy for one purpose of one device, or of its edge to a peer, in one round (or epoch)."""
    edge = () if peer is None else (peer,)
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), device, index, *edge))


def stream(
    seed: int, purpose: StreamPurpose, device: int = 0, index: int = 0, *, peer: int | None = None
) -> np.random.Generator:
    """Generator for one purpose of a device, or of its edge to a peer, in one round (or epoch)."""
    entropy = seed_sequence(seed, purpose, device, index, peer=peer)
    return np.random.Generator(np.random.PCG64(entropy))


def torch_seed(seed: int, purpose: StreamPurpose, device: int = 0, index: int = 0) -> int:
    """Seed in [0, 2**63) for a `torch.Generator`."""
    low = seed_sequence(seed, purpose, device, index).generate_state(1, np.uint64)[0]
    return int(low >> np.uint64(1))
