"""Partitions of samples among devices: by label skew, by Dirichlet proportions, or IID.

Source: reference.md, section 4.

Each function returns one array of sample indices per device; no sample goes to two devices.

Symbols:
    N: samples   C: classes   c_k: samples of class k   n: devices   s: skew
    A: samples sorted by class   B: shuffled pool of the others   f = 1/n: share of a device
"""

from __future__ import annotations

import random
from math import inf

import numpy as np
from numpy.typing import NDArray

from edgesim.data.errors import PartitionError

MAX_DRAWS = 100  # of Dirichlet proportions, until no device is left without samples

Shards = list[NDArray[np.int64]]


def label_skew(classes: NDArray[np.int64], num_devices: int, skew: float, seed: int) -> Shards:
    """Part of each shard is sorted by class, the rest is random.

    Source: reference.md, section 4.

    Neighbouring devices get neighbouring classes; at s = 1 a device sees about C/n of them, at
    s = 0 shards are IID. Rounding down, which follows the floating-point arithmetic of the
    reference code, leaves a few samples unused.

    Args:
        classes: class of each sample, shape (N,).
        num_devices: n.
        skew: s, in [0, 1].
        seed: of the shuffle of B.

    Raises:
        PartitionError: s is not in [0, 1], or a device would get no samples.
    """
    if not 0 <= skew <= 1:
        raise PartitionError(f"data.partition.skew is {skew}; it must be in [0, 1]")
    _check_devices(len(classes), num_devices)
    order = np.argsort(classes, kind="stable")  # stable, so that results are portable
    by_class = np.split(order, np.flatnonzero(np.diff(classes[order])) + 1)
    num_sorted = [int(skew * len(members)) for members in by_class]
    A = np.concatenate([m[:k] for m, k in zip(by_class, num_sorted, strict=True)])
    pool = np.concatenate([m[k:] for m, k in zip(by_class, num_sorted, strict=True)]).tolist()
    random.Random(seed).shuffle(pool)  # noqa: S311  # reference.md, section 4 names this generator
    B = np.array(pool, dtype=np.int64)
    from_A, from_B = label_skew_sizes(len(classes), num_devices, skew)
    shards = [
        np.concatenate((A[p * from_A : (p + 1) * from_A], B[p * from_B : (p + 1) * from_B]))
        for p in range(num_devices)
    ]
    return _without_empty(shards, "lower data.partition.skew or fleet.devices")


def label_skew_sizes(num_samples: int, num_devices: int, skew: float) -> tuple[int, int]:
    """Samples of each shard of `label_skew`: sorted by class, and random."""
    N, f = num_samples, 1 / num_devices
    return int(f * N * skew), int(f * N * (1 - skew))


def dirichlet(
    classes: NDArray[np.int64], num_devices: int, alpha: float, rng: np.random.Generator
) -> Shards:
    """Each class is dealt to the devices in Dirichlet proportions.

    The proportions of a class are drawn from Dirichlet(alpha, ..., alpha).

    Every sample is used. Small alpha gives a device few classes, large alpha nearly IID shards.
    Proportions that leave a device without samples are drawn again.

    Args:
        classes: class of each sample, shape (N,).
        num_devices: n.
        alpha: concentration, positive and finite.
        rng: of the proportions and of the shuffles.

    Raises:
        PartitionError: alpha is not positive, there are more devices than samples, or every draw
            left a device without samples.

    Source: T.-M. H. Hsu, H. Qi, M. Brown, arXiv 1909.06335; by class as in Q. Li et al.,
    arXiv 2102.02079.
    """
    if not 0 < alpha < inf:
        raise PartitionError(f"data.partition.alpha is {alpha}; it must be positive and finite")
    _check_devices(len(classes), num_devices)
    by_class = [np.flatnonzero(classes == number) for number in np.unique(classes)]
    for _ in range(MAX_DRAWS):
        shards = _draw_dirichlet(by_class, num_devices, alpha, rng)
        if all(map(len, shards)):
            return shards
    return _without_empty(shards, "raise data.partition.alpha or lower fleet.devices")


def iid(num_samples: int, num_devices: int, rng: np.random.Generator) -> Shards:
    """Each shard is a random sample of all data; sizes differ by at most one.

    Raises:
        PartitionError: there are more devices than samples.
    """
    _check_devices(num_samples, num_devices)
    return np.array_split(rng.permutation(num_samples), num_devices)


def _draw_dirichlet(
    classes: list[NDArray[np.int64]], num_devices: int, alpha: float, rng: np.random.Generator
) -> Shards:
    parts_by_class = []
    for members in classes:
        proportions = rng.dirichlet(np.full(num_devices, alpha))
        cuts = np.rint(np.cumsum(proportions[:-1]) * len(members)).astype(np.int64)
        parts_by_class.append(np.split(rng.permutation(members), np.minimum(cuts, len(members))))
    return [np.concatenate(parts) for parts in zip(*parts_by_class, strict=True)]


def _check_devices(num_samples: int, num_devices: int) -> None:
    if num_devices < 1:
        raise PartitionError(f"fleet.devices is {num_devices}; it must be at least 1")
    if num_devices > num_samples:
        raise PartitionError(
            f"fleet.devices is {num_devices}, but there are only {num_samples} training samples; "
            "lower fleet.devices"
        )


def _without_empty(shards: Shards, remedy: str) -> Shards:
    empty = [device for device, shard in enumerate(shards) if not len(shard)]
    if empty:
        raise PartitionError(f"device {empty[0]} would get no samples; {remedy}")
    return shards
