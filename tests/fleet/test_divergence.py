"""Models that move apart are told of; models that train are not."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path

import pytest

from edgesim.fleet.divergence import EVALUATIONS, GROWTH, growth_warning
from edgesim.fleet.evaluation import CONSENSUS
from edgesim.scenario import load_scenario

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
PER_EPOCH = 10  # rounds


def evaluations(distances, every=10):
    """Rows with these consensus distances, a device's own among them, which have no say."""
    rows = []
    for number, distance in enumerate(distances, start=1):
        row = {"round": every * number, "epoch": every * number / PER_EPOCH}
        rows.append({**row, "device": CONSENSUS, "consensus_distance": distance})
        rows.append({**row, "device": 0, "consensus_distance": 1e9 ** (number % 2)})
    return rows


def warning(distances, *overrides, every=10):
    scenario = load_scenario(QUICKSTART, ("training.schedule.warmup_epochs=0", *overrides))
    return growth_warning(evaluations(distances, every), scenario)


def test_growth_is_told_with_figures_key_and_value():
    text = warning([170.0, 3e4, 5e6])
    assert text is not None
    assert "from 170 in round 10 to 5e+06 in round 30" in text
    assert "lower gossip.averaging_rate, now 0.1, or set it to auto" in text


def test_dcd_has_no_averaging_rate_to_lower():
    text = warning([1, 50, 2500], "topology.kind=ring", "gossip={algorithm: dcd}")
    assert text is not None
    assert "averaging_rate" not in text
    assert "compress less" in text


@pytest.mark.parametrize(
    "distances",
    [
        [1.2**number for number in range(60)],  # slow, but without end
        [3.0, 2.9, 3.0, 2.8, 30.0, 900.0, 9000.0],
        [3.0, 2.5, 60.0, inf],
        [3.0, 2.5, 60.0, inf, inf],
        [3.0, 2.5, 60.0, nan],
    ],
    ids=["slow", "late", "beyond floats", "and stays there", "no number"],
)
def test_growth_is_told_however_it_comes(distances):
    assert warning(distances) is not None


@pytest.mark.parametrize(
    ("distances", "every"),
    [
        # The quickstart without warm-up: distances of its own first rounds.
        ([0.47, 0.81, 1.09, 1.28, 1.39, 1.35, 1.75, 2.16, 2.46, 2.69, 2.85, 2.95, 3.03], 2),
        # Steps that add up with momentum 0.9, as if there were no gossip: sums of (1 - 0.9^t).
        ([sum(1 - 0.9 ** (t + 1) for t in range(rounds)) for rounds in range(1, 60)], 1),
        ([3.0, 2.9, 0.3, 0.31, 0.03, 0.031, 0.0312], 10),  # milestones
        ([0.0, 0.0, 0.0], 10),  # alike, as on a complete graph
        ([1.0, 500.0], 10),  # two evaluations say nothing
        ([1.0, 0.01, 0.9, 0.01, 0.8, 0.7], 10),  # up and down
        ([], 10),
    ],
    ids=["quickstart", "momentum", "milestones", "alike", "two", "up and down", "none"],
)
def test_training_is_not_taken_for_growth(distances, every):
    assert warning(distances, every=every) is None


def test_it_takes_the_growth_and_the_evaluations_that_are_stated():
    """From d / r = 1 in round 1 on, to just below and just at GROWTH."""
    assert EVALUATIONS == 3
    below = [1.0, 2.0, 3 * GROWTH * 0.999]
    assert warning(below, every=1) is None
    assert warning([*below[:2], 3 * GROWTH], every=1) is not None


def test_steps_of_a_warm_up_are_no_measure():
    """Epoch 1 trains at a tenth of the rate: after it distances grow ten times as fast."""
    distances = [0.1, 1.1, 4.0, 4.2]
    assert warning(distances) is not None
    assert warning(distances, "training.schedule.warmup_epochs=1") is None


def test_the_worst_stays_told_after_it_is_over():
    text = warning([1.0, 100.0, 5000.0, 4000.0, 3000.0])
    assert text is not None
    assert "to 5000 in round 30" in text
