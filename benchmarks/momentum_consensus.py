"""Do devices agree under quasi-global momentum, without training? Growth of their distance.

Eight devices on a ring begin with different vectors. Their gradients are zero or curvature times x,
so all that moves them is gossip, momentum and, with curvature, the pull to zero. The table has the
factor by which the distance from their mean changes in 196 rounds, an epoch of CIFAR-10 with eight
devices of batch 32: of CHOCO with edgesim's own objects, and by the closed form for exact messages.

    python benchmarks/momentum_consensus.py

The closed form (docs/reference.md, sections 3.3 and 3.5), for the part of the distance that belongs
to the eigenvalue mu of the mixing matrix, with y = x / gamma and c = eta (1 - mu):

    d = (1 + beta) h y + beta^2 m      h: curvature times gamma, m: momentum
    y+ = (1 - c) (y - d)
    m+ = beta m + (1 - beta) (y - y+)

The largest absolute eigenvalue of this map is the growth of a round. Mu is complex where edges have
one direction.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from choco_forms import DEVICES, Gossip, Turn
from rich.console import Console
from rich.table import Table

from edgesim.compression.compressors import Compressor, Identity, TopK
from edgesim.gossip.choco import Choco
from edgesim.learning.optimizers import QuasiGlobalMomentum
from edgesim.learning.parameters import ParameterLayout

ENTRIES = 4000
EPOCH = 196  # rounds
ROUNDS = 8 * EPOCH
GAMMA, BETA = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table.

    Attributes:
        eta: averaging rate.
        is_directed: whether each device sends to the next alone, or to both neighbours.
        curvature: h, of the loss times the learning rate.
    """

    eta: float
    is_directed: bool = True
    curvature: float = 0.0


CASES = (
    *(Case(eta) for eta in (0.003, 0.005, 0.01, 0.1, 1.0)),
    Case(0.01, curvature=0.001),
    Case(0.01, curvature=0.003),
    Case(0.01, is_directed=False),
)


def receivers(device: int, *, is_directed: bool) -> list[int]:
    """To whom a device sends."""
    after, before = (device + 1) % DEVICES, (device - 1) % DEVICES
    return [after] if is_directed else [after, before]


def growth(case: Case) -> float:
    """Growth of the distance in a round with exact messages: the largest absolute eigenvalue."""
    W = np.eye(DEVICES)
    for j in range(DEVICES):
        to = receivers(j, is_directed=case.is_directed)
        W[j, j] = 1 / (len(to) + 1)
        W[to, j] = 1 / (len(to) + 1)
    largest = 0.0
    for mu in np.linalg.eigvals(W):
        if np.isclose(mu, 1):  # the mean of all devices
            continue
        c, h = case.eta * (1 - mu), case.curvature
        y, m = np.array([1, 0]), np.array([0, 1])
        y_next = (1 - c) * (y - (1 + BETA) * h * y - BETA**2 * m)
        m_next = BETA * m + (1 - BETA) * (y - y_next)
        eigenvalues = np.linalg.eigvals(np.stack([y_next, m_next]))
        largest = max(largest, float(abs(eigenvalues).max()))
    return largest


def measured(case: Case, compressor: Compressor, entries: int = ENTRIES) -> float:
    """Growth of the distance in the last epoch of a fleet that has edgesim's own objects."""
    start = np.random.default_rng(0).normal(size=(DEVICES, entries))
    layout = ParameterLayout.from_shapes([(entries,)])
    algorithm = Choco(averaging_rate=case.eta, compressor=compressor, layout=layout)
    fleet = Gossip(algorithm, start - start.mean(axis=0))
    momentum = QuasiGlobalMomentum(momentum=BETA, nesterov=True, weight_decay=0.0)
    optimizers = [momentum.init(state.x) for state in fleet.states]
    distances = []
    for _ in range(ROUNDS):
        for state, of in zip(fleet.states, optimizers, strict=True):
            momentum.step_(of, state.x, state.x * (case.curvature / GAMMA), GAMMA)
        to = [receivers(j, is_directed=case.is_directed) for j in range(DEVICES)]
        for j in range(DEVICES):
            fleet.follow(Turn(j, dict.fromkeys(to[j], 1 / (len(to[j]) + 1)), ()))
        for i in range(DEVICES):
            senders = tuple(j for j in range(DEVICES) if i in to[j])
            fleet.follow(Turn(i, {}, senders))
        for state, of in zip(fleet.states, optimizers, strict=True):
            momentum.after_gossip_(of, state.x, state.u, GAMMA)
        models = torch.stack([state.x for state in fleet.states])
        distances.append(float((models - models.mean(0)).norm()))
    return distances[-1] / distances[-1 - EPOCH]


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    compressors = (
        Identity(values="fp64"),
        TopK(keep=0.1, values="fp64"),
        TopK(keep=0.01, values="fp64"),
    )
    table = Table("ring", "rate", "curvature", "closed form", "exact", "top 10 %", "top 1 %")
    for case in CASES:
        found = [f"{measured(case, compressor):.3g}" for compressor in compressors]
        ring = "directed" if case.is_directed else "undirected"
        closed = f"{growth(case) ** EPOCH:.3g}"
        table.add_row(ring, f"{case.eta:g}", f"{case.curvature:g}", closed, *found)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
