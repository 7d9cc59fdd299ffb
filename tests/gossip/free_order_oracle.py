"""Event-by-event NumPy recursions of the gossip algorithms at free pace, and orders of events.

Written from docs/gossip.md, docs/free-pace.md and reference.md, section 7, alone. Nothing of
edgesim is used here.

Symbols, of device i and edge (j, i), j sends to i:
    x[i]: (D,)   u[i]: push weight   w: weight of a message   C: compressor   eta: averaging rate
    out[j, i], in_[j, i]: (D,) the two ends' public copies   h[i]: own copy (DCD)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

Edge = tuple[int, int]
Key = tuple[int, int, int]  # sender, receiver, sequence
Compress = Callable[[np.ndarray], np.ndarray]
Gradient = Callable[[int, np.ndarray], np.ndarray]  # of one device, at its z


@dataclass(frozen=True)
class Step:
    """A device trains and sends; `weights` by receiver."""

    device: int
    weights: Mapping[int, float]


@dataclass(frozen=True)
class Absorb:
    """A device absorbs messages, none or several of an edge, in this order."""

    device: int
    keys: tuple[Key, ...]


Event = Step | Absorb


def free_order(
    n: int,
    rounds: int,
    rng: np.random.Generator,
    out_weights: Callable[[int], Mapping[int, float]],
) -> list[Event]:
    """Devices of unlike speed on delaying links, each for some rounds; then all is absorbed.

    Args:
        n: devices.
        rounds: of the fastest; others take as many steps as they can in the same time.
        rng: of speeds and delays.
        out_weights: of the next round of a device, by receiver.
    """
    step_s = 10.0 ** rng.uniform(0, 1, n)
    latency_s = rng.uniform(0, 3, (n, n)) * (rng.random((n, n)) < 0.7)
    heap = [(step_s[i], i, 0, ()) for i in range(n)]
    here: list[list[Key]] = [[] for _ in range(n)]
    sequence: dict[Edge, int] = {}
    events: list[Event] = []
    while heap:
        at, i, kind, key = heappop(heap)
        if kind == 1:
            here[key[1]].append(key)
            continue
        weights = out_weights(i)
        events.append(Step(i, weights))
        for k in weights:
            number = sequence.get((i, k), 0)
            sequence[i, k] = number + 1
            heappush(heap, (at + latency_s[i, k], i, 1, (i, k, number)))
        events.append(Absorb(i, tuple(here[i])))
        here[i] = []
        if at + step_s[i] <= rounds * step_s.min():
            heappush(heap, (at + step_s[i], i, 0, ()))
    return events + [Absorb(i, tuple(here[i])) for i in range(n)]


class Fleet:
    """State of all devices, mass under way included.

    Attributes:
        trained: what steps have taken from sum(x).
    """

    def __init__(self, X: np.ndarray, gradient: Gradient, gamma: float) -> None:
        self.x = X.astype(float).copy()
        self.u = np.ones(len(X))
        self.gradient, self.gamma = gradient, gamma
        self.trained = np.zeros(X.shape[1])
        self.sequence: dict[Edge, int] = {}
        self.content: dict[Key, tuple[np.ndarray, float, float]] = {}
        self.x_under_way: dict[Key, np.ndarray] = {}
        self.u_under_way: dict[Key, float] = {}

    def train(self, i: int) -> None:
        move = self.gamma * self.gradient(i, self.x[i] / self.u[i])
        self.x[i] = self.x[i] - move
        self.trained = self.trained + move

    def post(self, edge: Edge, q: np.ndarray, w: float, x_mass: np.ndarray, u_mass: float) -> None:
        number = self.sequence.get(edge, 0)
        self.sequence[edge] = number + 1
        key = *edge, number
        self.content[key] = q, w, self.u[edge[0]]
        self.x_under_way[key], self.u_under_way[key] = x_mass, u_mass

    def read(self, key: Key) -> tuple[np.ndarray, float, float]:
        del self.x_under_way[key], self.u_under_way[key]
        return self.content.pop(key)

    def total_x(self) -> np.ndarray:
        return self.x.sum(axis=0) + sum(self.x_under_way.values(), np.zeros(self.x.shape[1]))

    def total_u(self) -> float:
        return float(self.u.sum() + sum(self.u_under_way.values()))


def choco(fleet: Fleet, events: list[Event], eta: float, C: Compress) -> Iterator[Fleet]:
    """The edge form of docs/gossip.md, message by message; yields the fleet after each event."""
    D = fleet.x.shape[1]
    out: dict[Edge, np.ndarray] = {}
    in_: dict[Edge, np.ndarray] = {}
    for event in events:
        i = event.device
        if isinstance(event, Step):
            fleet.train(i)
            half_step, u = fleet.x[i].copy(), fleet.u[i]
            for k, w in event.weights.items():
                before = out.get((i, k), np.zeros(D))
                q = C(half_step - before)
                out[i, k] = before + q
                fleet.post((i, k), q, w, eta * w * out[i, k], eta * w * u)
            for k, w in event.weights.items():
                fleet.x[i] = fleet.x[i] - eta * w * out[i, k]
            fleet.u[i] = u - eta * sum(event.weights.values()) * u
        else:
            for key in event.keys:
                q, w, u = fleet.read(key)
                j = key[0]
                in_[j, i] = in_.get((j, i), np.zeros(D)) + q
                fleet.x[i] = fleet.x[i] + eta * w * in_[j, i]
                fleet.u[i] = fleet.u[i] + eta * w * u
        yield fleet


def deep_squeeze(fleet: Fleet, events: list[Event], eta: float, C: Compress) -> Iterator[Fleet]:
    """reference.md, section 3.4 by messages; a device with no active out-edge compresses
    nothing."""
    delta = np.zeros_like(fleet.x)
    for event in events:
        i = event.device
        if isinstance(event, Step):
            fleet.train(i)
            if event.weights:
                u, v = fleet.u[i], fleet.x[i] + delta[i]
                c = C(v)
                delta[i] = v - c
                for k, w in event.weights.items():
                    fleet.post((i, k), c, w, eta * w * c, eta * w * u)
                fleet.x[i] = fleet.x[i] - eta * sum(event.weights.values()) * c
                fleet.u[i] = u - eta * sum(event.weights.values()) * u
        else:
            for key in event.keys:
                c, w, u = fleet.read(key)
                fleet.x[i] = fleet.x[i] + eta * w * c
                fleet.u[i] = fleet.u[i] + eta * w * u
        yield fleet


def gradient_push(fleet: Fleet, events: list[Event], eta: float) -> Iterator[Fleet]:
    """SGP by messages: a half step's share leaves, and arrives whenever it does."""
    for event in events:
        i = event.device
        if isinstance(event, Step):
            fleet.train(i)
            x, u = fleet.x[i].copy(), fleet.u[i]
            for k, w in event.weights.items():
                fleet.post((i, k), x, w, eta * w * x, eta * w * u)
            leaving = eta * sum(event.weights.values())
            fleet.x[i], fleet.u[i] = x - leaving * x, u - leaving * u
        else:
            for key in event.keys:
                x, w, u = fleet.read(key)
                fleet.x[i] = fleet.x[i] + eta * w * x
                fleet.u[i] = fleet.u[i] + eta * w * u
        yield fleet


def dcd(fleet: Fleet, events: list[Event], W: np.ndarray, C: Compress) -> Iterator[Fleet]:
    """reference.md, section 7 by messages: neighbours' copies are as old as the messages that were
    absorbed."""
    n = len(fleet.x)
    h = fleet.x.copy()
    in_ = {(j, i): h[j].copy() for i in range(n) for j in range(n) if i != j and W[i, j] > 0}
    for event in events:
        i = event.device
        if isinstance(event, Step):
            fleet.train(i)
            t = fleet.x[i] - h[i] - (1 - W[i, i]) * h[i]
            for j in range(n):
                if (j, i) in in_:
                    t = t + W[i, j] * in_[j, i]
            q = C(t)
            h[i] = h[i] + q
            fleet.x[i] = h[i]
            for k, w in event.weights.items():
                fleet.post((i, k), q, w, 0 * q, 0.0)
        else:
            for key in event.keys:
                q, _, _ = fleet.read(key)
                in_[key[0], i] = in_[key[0], i] + q
        yield fleet
