"""A notice tells of quasi-global momentum that moves devices apart."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.learning.optimizers import QuasiGlobalMomentum
from edgesim.scenario import load_scenario
from edgesim.study.notices.momentum import (
    _rounded_down,
    growth_of_distance,
    momentum_notices,
)

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
QUASI_GLOBAL = "training.optimizer={lr: 0.1, momentum: 0.9, momentum_kind: quasi_global}"
ROUNDS = 2000


def told(*overrides, rounds=ROUNDS):
    scenario = load_scenario(QUICKSTART, (QUASI_GLOBAL, *overrides))
    return momentum_notices(studied_scenario(scenario), rounds)


def mixing(*, is_directed):
    """Of eight devices in a ring, with equal weights."""
    W = np.zeros((8, 8))
    for j in range(8):
        for i in {j, (j + 1) % 8} | (set() if is_directed else {(j - 1) % 8}):
            W[i, j] = 1 / (2 if is_directed else 3)
    return W


def grown(W, rate, *, nesterov, rounds=3000):
    """Growth of a round, of eight numbers that are gossiped, by the optimizer's formulas."""
    rng, beta, gamma = np.random.default_rng(0), 0.9, 0.1
    x, m = rng.normal(size=8), np.zeros(8)
    x -= x.mean()
    sizes = []
    for _ in range(rounds):
        b = beta * m
        half = x - gamma * (beta * b if nesterov else b)
        mixed = half + rate * (W @ half - half)
        m = beta * m + (1 - beta) * (x - mixed) / gamma
        scale = np.linalg.norm(np.concatenate([mixed, gamma * m]))
        x, m = (v / scale - (v / scale).mean() for v in (mixed, m))  # the mean would not shrink
        sizes.append(scale)
    return np.exp(np.mean(np.log(sizes[rounds // 2 :])))


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("is_directed", [True, False])
@pytest.mark.parametrize("rate", [0.003, 0.01, 0.1, 1.0])
def test_growth_is_that_of_a_fleet_without_gradients(rate, is_directed, nesterov):
    W = mixing(is_directed=is_directed)
    modes = np.delete(np.linalg.eigvals(W).astype(complex), np.linalg.eigvals(W).real.argmax())
    optimizer = QuasiGlobalMomentum(momentum=0.9, nesterov=nesterov, weight_decay=0.0)
    expected = grown(W, rate, nesterov=nesterov)
    assert growth_of_distance(modes, rate, optimizer) == pytest.approx(expected, rel=2e-3)


def test_a_directed_ring_at_the_papers_rate_is_told_with_a_rate_that_helps():
    (text,) = told("gossip.averaging_rate=0.01")
    rounds = studied_scenario(load_scenario(QUICKSTART)).rounds_per_epoch
    growth = float(re.search(r"grows (\S+) times in (\d+) rounds", text)[1])
    assert growth == pytest.approx(1.34 ** (rounds / 196), rel=0.01)  # docs/results/paper.md
    helps = re.search(r"set gossip.averaging_rate to (\S+) or less", text)[1]
    assert 0.001 < float(helps) < 0.01
    assert told(f"gossip.averaging_rate={helps}") == []


@pytest.mark.parametrize("momentum", [0.9, 0.95])
@pytest.mark.parametrize("devices", [8, 12, 20])
def test_the_rate_that_is_told_helps(devices, momentum):
    fleet = (f"fleet.devices={devices}", f"training.optimizer.momentum={momentum}")
    (text,) = told("gossip.averaging_rate=0.05", *fleet)
    helps = re.search(r"set gossip.averaging_rate to (\S+) or less", text)[1]
    assert told(f"gossip.averaging_rate={float(helps):.9f}", *fleet, rounds=10**6) == []


@pytest.mark.parametrize(
    "settings",
    [
        ["gossip.averaging_rate=1.0"],  # the recursion shrinks there
        ["topology={kind: ring}", "gossip.averaging_rate=0.01"],
        ["training.optimizer.momentum_kind=local", "gossip.averaging_rate=0.01"],
        ["topology={kind: one_peer_exponential}", "gossip.averaging_rate=0.01"],
        ["gossip.local_steps=4", "gossip.averaging_rate=0.01"],
        ["gossip={algorithm: gradient_push}"],
    ],
)
def test_others_are_not(settings):
    assert told(*settings) == []


@pytest.mark.parametrize(
    ("rate", "digit"), [(0.0018, 0.001), (0.0055, 0.005), (0.009999, 0.009), (0.3, 0.3), (1.0, 1.0)]
)
def test_a_rate_is_never_rounded_up(rate, digit):
    assert _rounded_down(rate) == digit


def test_a_training_too_short_to_matter_is_not():
    assert told("gossip.averaging_rate=0.01", rounds=10) == []
