"""A sequential event loop of CHOCO in both of its forms, in plain NumPy.

Written from reference.md, sections 3.3 and 14, docs/gossip.md and docs/free-pace.md. Nothing of
edgesim is used here: a compressor is any function of a vector and a generator.

Devices begin at once or late (x = 0 and u = 0), step at unlike speeds, are away for a while, and
leave for good, when another device takes their place on every edge.

Symbols, of device i and edge (a, b) from address a to address b:
    x[i]: (D,) numerator   u[i]: push weight   w: weight of a message   eta: averaging rate
    out[a, b], in_[a, b]: (D,) public copies at the two ends   q: compressed difference
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

import numpy as np

Edge = tuple[int, int]  # address that sends, address that it sends to
Form = Literal["numerator", "model"]
Compress = Callable[[np.ndarray, np.random.Generator], np.ndarray]
Gradient = Callable[[int, np.ndarray], np.ndarray]  # of one device, at its model

LEAST_PUSH_WEIGHT = 1e-12  # a device with less keeps its mass (model form)


@dataclass(frozen=True)
class Step:
    """A device trains, if it has mass."""

    device: int


@dataclass(frozen=True)
class Send:
    """A device sends; weights by edge, whose first end is one of the device's addresses."""

    device: int
    weights: Mapping[Edge, float]
    seed: tuple[int, ...]


@dataclass(frozen=True)
class Absorb:
    """A device absorbs the oldest message of each of these edges, in this order."""

    device: int
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Leave:
    """A device leaves; the successor takes over x, u, copies and edges.

    First it absorbs what the leaver sent to it, in the end what it sent to the leaver.
    """

    device: int
    successor: int
    first: tuple[Edge, ...]
    last: tuple[Edge, ...]


Event = Step | Send | Absorb | Leave


@dataclass
class InFlight:
    """A message under way and the mass that it carries."""

    q: np.ndarray
    w: float
    u_sender: float
    x_mass: np.ndarray
    u_mass: float


class Fleet:
    """All devices and all messages under way.

    Attributes:
        trained: what steps have taken from the sum of x.
    """

    def __init__(
        self,
        X: np.ndarray,
        form: Form,
        eta: float,
        C: Compress,
        gradient: Gradient,
        gamma: float,
        late: frozenset[int] = frozenset(),
    ) -> None:
        self.x = X.astype(float).copy()
        self.u = np.ones(len(X))
        for i in late:
            self.x[i], self.u[i] = 0.0, 0.0
        self.form, self.eta, self.C = form, eta, C
        self.gradient, self.gamma = gradient, gamma
        self.owner = {i: i for i in range(len(X))}
        self.out: dict[Edge, np.ndarray] = {}
        self.in_: dict[Edge, np.ndarray] = {}
        self.under_way: dict[Edge, deque[InFlight]] = {}
        self.trained = np.zeros(X.shape[1])

    def follow(self, event: Event) -> None:
        match event:
            case Step(i):
                if self.u[i] > 0:
                    move = self.gamma * self.gradient(i, self.x[i] / self.u[i])
                    self.x[i] = self.x[i] - move
                    self.trained = self.trained + move
            case Send(i, weights, seed):
                self._send(i, weights, np.random.default_rng(seed))
            case Absorb(i, edges):
                for edge in edges:
                    self._absorb(i, edge)
            case Leave(i, k, first, last):
                for edge in first:
                    self._absorb(k, edge)
                self.owner = {a: k if own == i else own for a, own in self.owner.items()}
                for edge in last:
                    self._absorb(k, edge)
                self.x[k], self.u[k] = self.x[k] + self.x[i], self.u[k] + self.u[i]
                self.x[i], self.u[i] = 0.0, 0.0

    def _send(self, i: int, weights: Mapping[Edge, float], rng: np.random.Generator) -> None:
        D, eta, x, u = self.x.shape[1], self.eta, self.x[i].copy(), self.u[i]
        moved_u = u
        if self.form == "model" and u < LEAST_PUSH_WEIGHT:
            moved_u = 0.0
        for edge, w in weights.items():
            h = self.out.get(edge, np.zeros(D))
            if self.form == "numerator":
                difference = x - h
            else:
                difference = x / u - h if u > 0 else np.zeros(D)
            q = self.C(difference, rng)
            self.out[edge] = h = h + q
            x_mass = eta * w * h if self.form == "numerator" else eta * w * moved_u * h
            u_mass = eta * w * moved_u
            message = InFlight(q, w, moved_u, x_mass, u_mass)
            self.under_way.setdefault(edge, deque()).append(message)
            self.x[i] = self.x[i] - x_mass
            self.u[i] = self.u[i] - u_mass

    def _absorb(self, i: int, edge: Edge) -> None:
        message = self.under_way[edge].popleft()
        assert self.owner[edge[1]] == i, "mail of a leaver goes to its successor"
        self.in_[edge] = h = self.in_.get(edge, np.zeros(self.x.shape[1])) + message.q
        share = self.eta * message.w
        if self.form == "model":
            self.x[i] = self.x[i] + share * message.u_sender * h
        else:
            self.x[i] = self.x[i] + share * h
        self.u[i] = self.u[i] + share * message.u_sender

    @property
    def num_under_way(self) -> int:
        return sum(map(len, self.under_way.values()))

    def total_x(self) -> np.ndarray:
        """Sum of x, messages under way included."""
        carried = (m.x_mass for queue in self.under_way.values() for m in queue)
        return self.x.sum(axis=0) + sum(carried, np.zeros(self.x.shape[1]))

    def total_u(self) -> float:
        return float(self.u.sum() + sum(m.u_mass for q in self.under_way.values() for m in q))


def free_events(
    n: int,
    turns: int,
    rng: np.random.Generator,
    *,
    late: frozenset[int] = frozenset(),
    leavers: int = 0,
) -> list[Event]:
    """A random history of a fleet at free pace, on a new random digraph in every turn.

    Args:
        n: devices.
        turns: of the quickest device; others take as many as they can in that time.
        rng: of everything.
        late: devices that begin after a while.
        leavers: how many devices leave for good.
    """
    return _History(n, turns, rng, late, leavers).events()


class _History:
    """Draws events in the order of time. Messages of one edge never overtake each other."""

    AWAY = 0.1  # part of its turns in which a device does nothing
    DENSITY = 0.5  # of the digraphs

    def __init__(
        self, n: int, turns: int, rng: np.random.Generator, late: frozenset[int], leavers: int
    ) -> None:
        self.n, self.rng = n, rng
        self.period = 10.0 ** rng.uniform(0, 1, n)
        self.end = turns * self.period.min()
        self.latency = rng.uniform(0, 3, (n, n)) * (rng.random((n, n)) < 0.7)
        begin = {i: rng.uniform(0.2, 0.5) * self.end for i in late}
        there = rng.permutation([i for i in range(n) if i not in late])
        self.leaves = {int(i): rng.uniform(0.3, 0.7) * self.end for i in there[:leavers]}
        self.addresses = {i: (i,) for i in range(n)}  # of those that have not left
        self.on_the_road: dict[Edge, int] = {}  # messages that nobody has absorbed
        self.arrived: dict[int, list[Edge]] = {i: [] for i in range(n)}  # of them, by address
        self.last_arrival: dict[Edge, float] = {}
        self.heap: list[tuple[float, int, Edge | None]] = []
        for i in range(n):
            heappush(self.heap, (begin.get(i, 0.0) + self.period[i], i, None))

    def events(self) -> list[Event]:
        events: list[Event] = []
        while self.heap:
            at, i, edge = heappop(self.heap)
            if edge is not None:
                if edge in self.on_the_road:
                    self.arrived[edge[1]].append(edge)
            elif i in self.leaves and at >= self.leaves[i] and len(self.addresses) > 1:
                events.append(self._leave(i))
            else:
                if self.rng.random() >= self.AWAY:
                    events += [Step(i), *self._send(i, at, len(events)), self._absorb(i)]
                if at + self.period[i] <= self.end:
                    heappush(self.heap, (at + self.period[i], i, None))
        return events + [self._absorb(i) for i in self.addresses]

    def _send(self, i: int, at: float, number: int) -> list[Event]:
        own = self.addresses[i]
        weights: dict[Edge, float] = {}
        for a in own:
            receivers = [b for b in range(self.n) if b != a and self.rng.random() < self.DENSITY]
            share = 1 / (len(receivers) + 1) / len(own)
            weights |= {(a, b): share for b in receivers if b not in own}
        for e in weights:
            self.on_the_road[e] = self.on_the_road.get(e, 0) + 1
            self.last_arrival[e] = max(at + self.latency[e], self.last_arrival.get(e, 0.0))
            heappush(self.heap, (self.last_arrival[e], e[1], e))
        return [Send(i, weights, (number,))] if weights else []

    def _absorb(self, i: int) -> Absorb:
        """All that has arrived, edges in any order."""
        edges = [edge for a in self.addresses[i] for edge in self.arrived[a]]
        for a in self.addresses[i]:
            self.arrived[a] = []
        for edge in edges:
            self.on_the_road[edge] -= 1
        return Absorb(i, tuple(edges[k] for k in self.rng.permutation(len(edges))))

    def _leave(self, i: int) -> Leave:
        own = self.addresses.pop(i)
        successor = int(self.rng.choice(list(self.addresses)))
        heirs = self.addresses[successor]
        first = [e for e in self.on_the_road if e[0] in own and e[1] in heirs]
        last = [e for e in self.on_the_road if e[0] in heirs and e[1] in own]
        event = Leave(i, successor, self._all_on(first), self._all_on(last))
        for e in (*first, *last):
            self.on_the_road.pop(e)
        self.addresses[successor] = heirs + own
        for a in self.addresses[successor]:
            self.arrived[a] = [e for e in self.arrived[a] if e in self.on_the_road]
        return event

    def _all_on(self, edges: list[Edge]) -> tuple[Edge, ...]:
        return tuple(e for e in edges for _ in range(self.on_the_road[e]))
