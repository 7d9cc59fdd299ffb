"""Says when the models of a fleet move apart: training goes on, but it is no training of one model.

Symbols:
    d: consensus distance of an evaluation   r: rounds done by then
Steps of a bounded size move models that start alike apart in proportion to r at most, whatever
gossip does; averaging keeps d bounded. What grows much faster than r is gossip itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, isnan
from typing import Any

from edgesim.fleet.evaluation import CONSENSUS
from edgesim.scenario.gossip import DcdGossip
from edgesim.scenario.schema import Scenario

# Momentum makes the first steps up to 1 / (1 - 0.9) = 10 times smaller than later ones; d averages
# over them, and so grows up to some 5 times faster than r.
GROWTH = 10.0  # of d / r, from its least on
EVALUATIONS = 3  # in a row, each with a larger d; two of them may differ by chance


def growth_warning(evaluations: Sequence[Mapping[str, Any]], scenario: Scenario) -> str | None:
    """What to say of the models' distances, if they grow without bound.

    Args:
        evaluations: rows of evaluations.parquet up to now, in their order.
        scenario: of the run, with a number as its averaging rate.

    Returns:
        The largest growth found in any EVALUATIONS in a row, in words, and the keys that would
        mend it; None if there is none.
    """
    # During warm-up steps are smaller by a factor of the scenario's.
    settled_epoch = scenario.training.schedule.warmup_epochs
    series = [
        (int(row["round"]), inf if isnan(d := row["consensus_distance"]) else float(d))
        for row in evaluations
        if row["device"] == CONSENSUS and row["epoch"] > settled_epoch
    ]
    found: list[tuple[float, int, int]] = []
    for last in range(EVALUATIONS - 1, len(series)):
        window = series[last - EVALUATIONS + 1 : last + 1]
        if not all(before < after or after == inf for (_, before), (_, after) in pairwise(window)):
            continue
        least = min(range(last), key=lambda place: _per_round(series[place]))
        before, now = _per_round(series[least]), _per_round(series[last])
        if now >= GROWTH * before > 0:
            found.append((series[last][1], least, last))
    if not found:
        return None
    _, least, last = max(found)
    (first_round, first), (last_round, d) = series[least], series[last]
    return (
        f"the devices' models move apart: their consensus distance grew from {first:.4g} in round "
        f"{first_round} to {d:.4g} in round {last_round}; {_remedy(scenario)}"
    )


def _per_round(evaluation: tuple[int, float]) -> float:
    """D / r."""
    rounds, distance = evaluation
    return distance / max(rounds, 1)


def _remedy(scenario: Scenario) -> str:
    gossip = scenario.gossip
    if isinstance(gossip, DcdGossip):
        return "compress less, or lower training.optimizer.lr"
    return (
        f"lower gossip.averaging_rate, now {gossip.averaging_rate}, or set it to auto; "
        "if that does not help, lower training.optimizer.lr"
    )
