"""Warns when the models of a fleet move apart, so that the fleet no longer trains one model.

Symbols:
    d: consensus distance of an evaluation   r: rounds done by then
    |z_bar|: norm of the averaged model
Three signs, of which one is enough:
    d is many times |z_bar|: what the models have in common is a small part of each.
    d / r has grown. Steps of bounded size increase the distance of equal initial models at most in
    proportion to r; averaging keeps d bounded. If d grows much faster than r, gossip diverges.
    The averaged model is much worse than equal guesses: its norm may have grown along with d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, isnan, log
from typing import Any

from edgesim.assembly.build import make_task
from edgesim.assembly.gossip import averaging_rate, make_compressor, where_devices_disagree
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.learning.parameters import ParameterLayout
from edgesim.learning.tasks import Classification, NextToken
from edgesim.results.columns import CONSENSUS
from edgesim.scenario.schema import Scenario
from topologies import Schedule

# The mean squared norm of the models is d^2 + |z_bar|^2: beyond this the averaged model is less
# than a tenth of it. Devices start from one model, so that d is 0 at first. Fleets that train come
# to 0.3, on unlike boards with label skew (docs/choco.md) and with an averaging rate of 1e-4. Those
# of docs/when-it-diverges.md that move apart end at 6 to 47.
FARTHEST = 3.0  # of d / |z_bar|

# Momentum makes the first steps up to 1 / (1 - 0.9) = 10 times smaller than later ones; d averages
# over them, and so grows up to some 5 times faster than r.
GROWTH = 10.0  # of d / r, from its least on
EVALUATIONS = 3  # in a row, that grow or have grown; two of them may differ by chance

# Equal guesses among k classes have log k nats. Averaged models that train have at most 1.1 times
# as many in all runs whose losses are in docs/measured, with label skew, eight bits and 99 %
# compression among them. So much more is no mere overconfidence.
WORST = 20.0  # nats above the loss of equal guesses


def divergence_warning(
    evaluations: Sequence[Mapping[str, Any]], prepared: PreparedRun
) -> str | None:
    """What to say of a run whose models move apart, as `growth_warning` and `loss_warning` do."""
    scenario, schedule = prepared.scenario, prepared.schedule
    of_distances = growth_warning(evaluations, scenario, schedule)
    if of_distances or type(make_task(scenario)) not in (Classification, NextToken):
        return of_distances
    return loss_warning(evaluations, scenario, log(prepared.data.num_classes))


def growth_warning(
    evaluations: Sequence[Mapping[str, Any]], scenario: Scenario, schedule: Schedule
) -> str | None:
    """What to say of the models' distances, if they are too large or grow without bound.

    Args:
        evaluations: rows of evaluations.parquet up to now, in their order.
        scenario: of the run, with a number as its averaging rate.
        schedule: of its graphs.

    Returns:
        The farthest that the models were apart, or else the largest growth found in any EVALUATIONS
        in a row, in words, and the keys that would mend it; None if there is none.
    """
    found = _too_far(evaluations) or _growth(evaluations, scenario)
    if found is None:
        return None
    return f"the devices' models move apart: {found}; {_remedy(scenario, schedule)}"


def loss_warning(
    evaluations: Sequence[Mapping[str, Any]], scenario: Scenario, guess_loss: float
) -> str | None:
    """What to say if the averaged model is much worse than one that gives all classes alike.

    Args:
        evaluations: rows of evaluations.parquet up to now; of the averaged model the last counts.
        scenario: of the run, with a number as its averaging rate.
        guess_loss: cross-entropy of equal guesses, the logarithm of the number of classes.

    Returns:
        The loss, in words, and the keys that would mend it; None if it is not so large.
    """
    last = next((row for row in reversed(evaluations) if row["device"] == CONSENSUS), None)
    if last is None or not last["loss"] > guess_loss + WORST:
        return None
    return (
        f"the averaged model's loss is {last['loss']:.4g} in round {last['round']}, where equal "
        f"guesses have {guess_loss:.4g}; {_remedy_of_losses(scenario)}"
    )


def _remedy_of_losses(scenario: Scenario) -> str:
    layout = ParameterLayout.from_shapes([(1,)])
    if make_compressor(scenario).form(layout).is_exact:
        return "lower training.optimizer.lr"
    if (rate := averaging_rate(scenario)) is None:
        return "lower training.optimizer.lr, or compress less"
    return f"lower gossip.averaging_rate, now {rate}, or training.optimizer.lr"


def _too_far(evaluations: Sequence[Mapping[str, Any]]) -> str | None:
    """The evaluation with the largest d beyond FARTHEST norms of the averaged model."""
    far = [
        (_distance(row), row)
        for row in evaluations
        if row["device"] == CONSENSUS
        and ((d := _distance(row)) == inf or d > FARTHEST * row["model_norm"])
    ]
    if not far:
        return None
    d, row = max(far, key=lambda pair: pair[0])
    return (
        f"their consensus distance is {d:.4g} in round {row['round']}, where the norm of the "
        f"averaged model is {row['model_norm']:.4g}"
    )


def _distance(row: Mapping[str, Any]) -> float:
    """The distance d; infinity if it is not a number."""
    d = float(row["consensus_distance"])
    return inf if isnan(d) else d


def _growth(evaluations: Sequence[Mapping[str, Any]], scenario: Scenario) -> str | None:
    """The largest growth: EVALUATIONS in a row that grow, or that are all far above the least."""
    # During warm-up steps are smaller by a factor of the scenario's.
    settled_epoch = scenario.training.schedule.warmup_epochs
    series = [
        (int(row["round"]), _distance(row))
        for row in evaluations
        if row["device"] == CONSENSUS and row["epoch"] > settled_epoch
    ]
    found: list[tuple[float, int, int]] = []
    for last in range(EVALUATIONS - 1, len(series)):
        window = series[last - EVALUATIONS + 1 : last + 1]
        least = min(range(last), key=lambda place: _per_round(series[place]))
        before, now = _per_round(series[least]), _per_round(series[last])
        if not now >= GROWTH * before > 0:
            continue
        grows = all(one[1] < other[1] or other[1] == inf for one, other in pairwise(window))
        if grows or all(_per_round(evaluation) >= GROWTH * before for evaluation in window):
            found.append((series[last][1], least, last))
    if not found:
        return None
    _, least, last = max(found)
    (first_round, first), (last_round, d) = series[least], series[last]
    return (
        f"their consensus distance grew from {first:.4g} in round {first_round} to {d:.4g} in "
        f"round {last_round}"
    )


def _per_round(evaluation: tuple[int, float]) -> float:
    """The quotient d / r."""
    rounds, distance = evaluation
    return distance / max(rounds, 1)


def _remedy(scenario: Scenario, schedule: Schedule) -> str:
    if (rate := averaging_rate(scenario)) is None:
        return "compress less, or lower training.optimizer.lr"
    where = where_devices_disagree(scenario, schedule)
    if where and where != "everywhere":
        return (
            f"set gossip.algorithm to choco: {where}, compression keeps "
            f"{scenario.gossip.algorithm} from agreeing at any averaging rate; or lower "
            f"gossip.averaging_rate, now {rate}"
        )
    return (
        f"lower gossip.averaging_rate, now {rate}, or set it to auto; "
        "if that does not help, lower training.optimizer.lr"
    )
