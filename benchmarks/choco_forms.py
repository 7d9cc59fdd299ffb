"""Consensus with CHOCO in both of its forms, without training: the table of docs/choco.md.

Eight devices begin with different vectors and only gossip, in float64. The table has the largest
distance of a device's model from the mean of the starts, relative to the start, after three fifths
of the time and at its end. A second table has the same for devices that begin with equal vectors,
relative to the vector's norm. A third one shows DCD, which keeps no mass at free pace: how far its
devices end from each other, and their mean from the mean of the starts:

    python benchmarks/choco_forms.py --json FILE

Symbols:
    x: numerator   u: push weight   z = x/u: model   W[i, j]: weight of the edge j -> i
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edgesim.compression.compressors import Compressor, Identity, MinMaxUInt8, TopK
from edgesim.gossip.algorithm import Algorithm, GossipState, OutEdge, Share
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.learning.parameters import ParameterLayout

DEVICES, ENTRIES = 8, 200
TIME = 1500.0  # units in which a device of speed 1 takes one turn
LONGEST_DELAY = 0.5
POINTS = 40  # of a curve
LAYOUT = ParameterLayout.from_shapes([(ENTRIES,)])
FORMS: dict[str, type[Choco | ChocoNumerator | DeepSqueeze]] = {
    "numerator": ChocoNumerator,
    "model": Choco,
    "deepsqueeze": DeepSqueeze,
}
Graph = Literal["irregular", "ring", "permutations"]
Pace = Literal["free", "one slow", "lockstep"]
PACES: tuple[Pace, ...] = get_args(Pace)


@dataclass(frozen=True, slots=True)
class Turn:
    """A device sends, then absorbs what has arrived.

    Attributes:
        device: whose turn it is.
        weights: of the messages that it sends, by receiver.
        senders: of the messages that it absorbs, in this order; the oldest of each.
    """

    device: int
    weights: Mapping[int, float]
    senders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table."""

    graph: Graph
    pace: Pace
    eta: float
    keep: float

    @property
    def name(self) -> str:
        """Name in the file of results."""
        return f"{self.graph}, {self.pace}, eta {self.eta:g}, keep {self.keep:g}"


CASES = (
    Case("irregular", "free", 0.1, 0.1),
    Case("ring", "free", 0.1, 0.1),
    Case("irregular", "one slow", 0.1, 0.1),
    Case("permutations", "free", 0.1, 0.1),
    Case("irregular", "free", 0.02, 0.01),
    Case("irregular", "free", 0.4, 0.1),
    Case("irregular", "lockstep", 0.1, 0.1),
    Case("ring", "lockstep", 0.1, 0.1),
)


def links(graph: Graph) -> Callable[[int, int], dict[int, float]]:
    """Weights by receiver of a device's messages in its turn of a number."""
    n = DEVICES
    if graph == "permutations":  # in turn k everybody sends to whom a permutation says
        permutations = [np.random.default_rng([7, k]).permutation(n) for k in range(64)]

        def to_one_peer(device: int, turn: int) -> dict[int, float]:
            peer = int(permutations[turn % len(permutations)][device])
            return {peer: 0.5} if peer != device else {}

        return to_one_peer
    receivers = {j: [(j + 1) % n] for j in range(n)}
    if graph == "ring":
        receivers = {j: [(j + 1) % n, (j - 1) % n] for j in range(n)}
    else:  # reference.md, section 11
        receivers[0] += [3, 5]
        receivers[1] += [6]
    return lambda device, _: dict.fromkeys(receivers[device], 1 / (len(receivers[device]) + 1))


def turns(case: Case, time: float = TIME) -> Iterator[Turn]:
    """All turns in order: by unlike clocks over links with unlike delays, or in lockstep."""
    weights_of, n = links(case.graph), DEVICES
    if case.pace == "lockstep":
        for number in range(int(time)):
            sent = {j: weights_of(j, number) for j in range(n)}
            yield from (Turn(j, sent[j], ()) for j in range(n))
            yield from (Turn(i, {}, tuple(j for j in range(n) if i in sent[j])) for i in range(n))
        return
    rng = np.random.default_rng(11)
    period = 1 / rng.uniform(0.5, 2.0, n)
    if case.pace == "one slow":
        period = np.array([1.0] * (n - 1) + [10.0])
    delay = rng.uniform(0, LONGEST_DELAY, (n, n))
    arrived: list[list[int]] = [[] for _ in range(n)]
    numbers = [0] * n
    heap: list[tuple[float, int, int]] = [(period[i], -1, i) for i in range(n)]
    heap.sort()
    while heap:
        at, sender, device = heappop(heap)
        if sender >= 0:
            arrived[device].append(sender)
            continue
        if at > time:
            continue
        weights = weights_of(device, numbers[device])
        numbers[device] += 1
        for receiver in weights:
            heappush(heap, (at + delay[device, receiver], device, receiver))
        yield Turn(device, weights, tuple(arrived[device]))
        arrived[device] = []
        heappush(heap, (at + period[device], -1, device))
    yield from (Turn(i, {}, tuple(arrived[i])) for i in range(n))


class Gossip:
    """A fleet that does nothing but gossip."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        start_ND: NDArray[np.float64],
        in_weights: Sequence[Mapping[int, float]] = ({},) * DEVICES,
    ) -> None:
        self._algorithm = algorithm
        self._rng = np.random.default_rng(0)
        self._under_way: dict[tuple[int, int], list[Share]] = {}
        self.states: list[GossipState] = [
            algorithm.init(torch.from_numpy(x_D.copy()), weights)
            for x_D, weights in zip(start_ND, in_weights, strict=True)
        ]

    def follow(self, turn: Turn) -> None:
        """One turn of a device."""
        state, i = self.states[turn.device], turn.device
        edges = [OutEdge(k, w) for k, w in turn.weights.items()]
        for share in self._algorithm.send_(state, edges, self._rng):
            arriving = Share(i, share.weight, share.push_weight, share.payload)
            self._under_way.setdefault((i, share.peer), []).append(arriving)
        received = [self._under_way[j, i].pop(0) for j in turn.senders]
        self._algorithm.absorb_(state, received)

    def models(self) -> NDArray[np.float64]:
        """Every z, shape (n, D)."""
        return np.stack([(state.x / state.u).numpy() for state in self.states])


def starts(equal: bool) -> NDArray[np.float64]:
    """Vectors to begin with, shape (n, D)."""
    rng = np.random.default_rng(5)
    if equal:
        return np.repeat(rng.normal(size=(1, ENTRIES)), DEVICES, axis=0)
    return rng.normal(size=(DEVICES, ENTRIES))


def compressor_of(case: Case) -> Compressor:
    """Top-k that rounds nothing."""
    return TopK(keep=case.keep, values="fp64") if case.keep < 1 else Identity(values="fp64")


def run(
    case: Case, form: str, *, equal: bool = False, time: float = TIME
) -> tuple[list[float], Gossip]:
    """Largest distances from the mean of the starts, at equal parts of the turns; and the fleet.

    Relative to the largest distance at the start; from equal starts, to the norm of the start.
    """
    start = starts(equal)
    algorithm = FORMS[form](averaging_rate=case.eta, compressor=compressor_of(case), layout=LAYOUT)
    fleet, mean = Gossip(algorithm, start), start.mean(axis=0)
    scale = np.linalg.norm(mean) if equal else np.linalg.norm(start - mean, axis=1).max()
    all_turns = list(turns(case, time))
    seen_after = {len(all_turns) * (point + 1) // POINTS for point in range(POINTS)}
    curve = []
    for number, turn in enumerate(all_turns, start=1):
        fleet.follow(turn)
        if number in seen_after:
            curve.append(float(np.linalg.norm(fleet.models() - mean, axis=1).max() / scale))
    return curve, fleet


def dcd(pace: Pace, compressor: Compressor, time: float = TIME) -> tuple[float, float]:
    """How far DCD's devices end from each other on a ring, and their mean from that of the starts.

    Both relative to the largest distance at the start. Its public copies have to begin equal, so
    the starts differ by a local step.
    """
    start, weights_of = starts(equal=False), links("ring")
    in_weights = [
        {j: weights_of(j, 0)[i] for j in range(DEVICES) if i in weights_of(j, 0)}
        for i in range(DEVICES)
    ]
    fleet = Gossip(Dcd(compressor=compressor, layout=LAYOUT), 0 * start, in_weights)
    for state, step_D in zip(fleet.states, start, strict=True):
        state.x.add_(torch.from_numpy(step_D))
    for turn in turns(Case("ring", pace, 1.0, 1.0), time):
        fleet.follow(turn)
    models, mean = fleet.models(), start.mean(axis=0)
    scale = np.linalg.norm(start - mean, axis=1).max()
    apart = np.linalg.norm(models - models.mean(axis=0), axis=1).max() / scale
    return float(apart), float(np.linalg.norm(models.mean(axis=0) - mean) / scale)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="all figures, unrounded")
    arguments = parser.parse_args()
    figures = {
        case.name: {
            form: {"different": run(case, form)[0], "equal": run(case, form, equal=True)[0]}
            for form in FORMS
        }
        for case in CASES
    }
    drifts = {
        f"ring, {pace}, {compressor.name}": dcd(pace, compressor)
        for pace in PACES
        for compressor in (Identity(values="fp64"), MinMaxUInt8())
    }
    for kind, title in (
        ("different", "different starts: after 3/5, at the end"),
        ("equal", "equal starts: how far away after 3/5, at the end"),
    ):
        table = Table("graph, pace", *FORMS, title=title)
        for name, of in figures.items():
            curves = [of[form][kind] for form in FORMS]
            cells = [f"{curve[POINTS * 3 // 5 - 1]:.0e}, {curve[-1]:.0e}" for curve in curves]
            table.add_row(name, *cells)
        Console(width=110).print(table)
    shown = Table("DCD", "between devices", "mean from the true one", title="different starts")
    for name, (apart, drift) in drifts.items():
        shown.add_row(name, f"{apart:.0e}", f"{drift:.0e}")
    Console(width=110).print(shown)
    if arguments.json:
        found = {"consensus": figures, "dcd": drifts}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
