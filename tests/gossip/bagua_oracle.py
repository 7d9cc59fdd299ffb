"""Bagua's two decentralized algorithms in plain NumPy, float32 (reference.md, section 7).

Nothing of edgesim is used here. Parameters are lists of arrays, as in a module; buckets are
concatenated in reverse order, as Bagua's are; ranks step first and communicate after it when
(step - 1) % interval == 0, with step counted from 1.

Symbols:
    x: parameters of a rank   w, left, right: replicas of a bucket   D: decompression
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

F = np.float32
Parameters = list[np.ndarray]
Gradient = Callable[[int, Parameters], Parameters]


def compress(t: np.ndarray) -> tuple[np.float32, np.float32, np.ndarray]:
    low, high = t.min(), t.max()
    a = F(255) / (high - low + F(1e-7))
    upper = np.rint(high * a)
    lower = upper - F(255)
    level = np.minimum(np.rint(t * a), upper)
    # Bagua has no lower clamp: a code below 0 would wrap around. The guard is edgesim's.
    return low, high, np.maximum(level - lower, F(0)).astype(np.uint8)


def decompress(low: np.float32, high: np.float32, codes: np.ndarray) -> np.ndarray:
    a = F(255) / (high - low + F(1e-7))
    lower = np.rint(high * a) - F(255)
    return (codes.astype(F) + lower) / a


def buckets(sizes: Sequence[int], bucket_bytes: int) -> list[list[int]]:
    """Numbers of the tensors of each bucket."""
    found: list[list[int]] = []
    bucket: list[int] = []
    for tensor in reversed(range(len(sizes))):
        bucket.append(tensor)
        if sum(4 * sizes[i] for i in bucket) >= bucket_bytes:
            found.append(bucket)
            bucket = []
    return [*found, bucket] if bucket else found


def wire_bytes(sizes: Sequence[int], bucket_bytes: int) -> int:
    """One message of every bucket: minimum and maximum padded to 32 bytes, codes padded to 32."""
    total = 0
    for bucket in buckets(sizes, bucket_bytes):
        entries = sum(sizes[i] for i in bucket)
        total += 32 + (entries + 31) // 32 * 32
    return total


def flat(x: Parameters, bucket: list[int]) -> np.ndarray:
    return np.concatenate([x[i].ravel() for i in bucket])


def write(x: Parameters, bucket: list[int], values: np.ndarray) -> None:
    at = 0
    for i in bucket:
        x[i] = values[at : at + x[i].size].reshape(x[i].shape).copy()
        at += x[i].size


def mean(rows: Sequence[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(rows[0])
    for row in rows:
        total = total + row
    return total / F(len(rows))


class LowPrecision:
    """LowPrecisionDecentralizedAlgorithm; `nodes` are the ranks of each node, leader first."""

    def __init__(self, x: Parameters, nodes: list[list[int]], bucket_bytes: int, interval: int):
        self.nodes, self.interval, self.step_number = nodes, interval, 0
        self.x = {rank: [p.copy() for p in x] for node in nodes for rank in node}
        self.buckets = buckets([p.size for p in x], bucket_bytes)
        self.w, self.left, self.right = (
            [[flat(x, bucket) for bucket in self.buckets] for _ in nodes] for _ in range(3)
        )

    def step(self, gradient: Gradient, gamma: float) -> None:
        for rank, x in self.x.items():
            G = gradient(rank, x)
            self.x[rank] = [p - F(gamma) * g for p, g in zip(x, G, strict=True)]
        self.step_number += 1
        if (self.step_number - 1) % self.interval == 0:
            for number, bucket in enumerate(self.buckets):
                self.communicate(number, bucket)

    def communicate(self, number: int, bucket: list[int]) -> None:
        sent, n = [], len(self.nodes)
        for rank, node in enumerate(self.nodes):
            x = mean([flat(self.x[member], bucket) for member in node])
            if len(node) == 1:
                x = flat(self.x[node[0]], bucket)
            t = x + F(1 / 3) * self.left[rank][number]
            t = t + F(1 / 3) * self.right[rank][number]
            t = t - F(5 / 3) * self.w[rank][number]
            sent.append(compress(t))
        for rank, node in enumerate(self.nodes):
            self.left[rank][number] = self.left[rank][number] + decompress(*sent[(rank - 1) % n])
            self.right[rank][number] = self.right[rank][number] + decompress(*sent[(rank + 1) % n])
            self.w[rank][number] = self.w[rank][number] + decompress(*sent[rank])
            for member in node:
                write(self.x[member], bucket, self.w[rank][number])


def shift_one_peer(rank: int, n: int, step: int) -> int:
    if rank < n // 2:
        return ((step + rank) % ((n + 1) // 2)) + n // 2
    return (rank - n // 2 - step) % (n // 2)


class Decentralized:
    """DecentralizedAlgorithm: one bucket; models from before the step are averaged during it.

    With `as_bagua` the step is applied to the average, x+ = mean - gamma g. Otherwise, as in
    edgesim, it is what the step changed: x+ = mean + ((x - gamma g) - x).
    """

    def __init__(
        self,
        x: np.ndarray,
        nodes: list[list[int]],
        peers: str,
        interval: int,
        *,
        as_bagua: bool = False,
    ):
        self.nodes, self.peers, self.interval = nodes, peers, interval
        self.as_bagua, self.step_number, self.exchanges = as_bagua, 0, 0
        self.x = {rank: x.copy() for node in nodes for rank in node}

    def step(self, gradient: Callable[[int, np.ndarray], np.ndarray], gamma: float) -> None:
        moves = {rank: F(gamma) * gradient(rank, x) for rank, x in self.x.items()}
        self.step_number += 1
        if (self.step_number - 1) % self.interval:
            self.x = {rank: x - moves[rank] for rank, x in self.x.items()}
            return
        averages = self.averages()
        for number, node in enumerate(self.nodes):
            for rank in node:
                x = self.x[rank]
                if self.as_bagua:
                    self.x[rank] = averages[number] - moves[rank]
                else:
                    self.x[rank] = averages[number] + ((x - moves[rank]) - x)
        self.exchanges += 1

    def averages(self) -> list[np.ndarray]:
        of_node = [mean([self.x[rank] for rank in node]) for node in self.nodes]
        n = len(self.nodes)
        if self.peers == "all":
            return [mean(of_node)] * n
        return [
            (x + of_node[shift_one_peer(number, n, self.exchanges)]) / F(2)
            for number, x in enumerate(of_node)
        ]
