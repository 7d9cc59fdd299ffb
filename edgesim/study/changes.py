"""Which settings help a fleet most: changed scenarios, each studied as the scenario itself was.

No figure is guessed: a change is applied to the scenario as `--set` would, and the costs of the
changed scenario are computed. Only training shows how a change affects accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

from edgesim.assembly.budget import fitting_settings
from edgesim.assembly.rate_search.search import with_found_rate
from edgesim.errors import EdgesimError
from edgesim.scenario.files import scenario_of
from edgesim.scenario.schema import Scenario
from edgesim.study.candidates import (
    Candidate,
    battery_candidates,
    candidates,
    profile_candidates,
    roomier_candidates,
    smaller_models,
)
from edgesim.study.iteration import IterationCosts, iteration_costs
from edgesim.study.rounds.critical_path import seconds_by_kind
from edgesim.study.rounds.steady_state import SteadyState
from edgesim.study.training import Training, training_of

Goal = Literal["fit", "batteries", "time", "bytes"]

MOST_DEVICES = 2000  # of larger fleets no change is tried: each would take many seconds
_MOST_EVENTS = 60_000  # of the clocks of a changed fleet
_MOST_SHOWN = 3
_LEAST_SENT = 0.5  # of the messages: a change to free pace that leaves fewer is not worth naming
_HELPS = 0.95  # a change that leaves more of the figure than this is none worth to name


@dataclass(frozen=True, slots=True)
class Change:
    """A changed scenario, and what it costs.

    Attributes:
        candidate: what is changed.
        costs: costs of an iteration of the changed scenario.
        training: its whole training.
    """

    candidate: Candidate
    costs: IterationCosts
    training: Training

    @property
    def fits(self) -> bool:
        """Whether no device is short of memory."""
        return all(device.fits is not False for device in self.costs.devices)


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes that help most.

    Attributes:
        goal: what they are to help with: that the training fits the memories, that batteries last
            to its end, that it takes less time, or, without profiles, that fewer bytes are sent.
        changes: the best ones by that goal, the best first; without profiles devices come first.
        together: several of them at once; None if that is not possible or does not help more.
        num_tried: number of changed scenarios that were studied.
    """

    goal: Goal
    changes: tuple[Change, ...]
    together: Change | None
    num_tried: int


def advise(scenario: Scenario, costs: IterationCosts) -> Advice | None:
    """Look for settings that help most with what is most amiss.

    Args:
        scenario: the scenario as its file has it.
        costs: costs of its iteration.

    Returns:
        None for a fleet of more than `MOST_DEVICES`.
    """
    if len(costs.devices) > MOST_DEVICES:
        return None
    training, trial = training_of(costs), _Trial(scenario, costs)
    if any(device.fits is False for device in costs.devices):
        return _advice("fit", trial, _that_fit(scenario, costs, trial), _time, inf)
    general = list(candidates(scenario, costs))
    if training.ends_early:
        larger = battery_candidates(scenario, costs, training.ends_early)
        most = _battery(training)
        return _advice("batteries", trial, trial.all([*larger, *general]), _battery, most)
    if costs.steady_state is not None:
        if _is_paced_by_trace(costs.steady_state):
            return Advice("time", (), None, 0)
        return _advice("time", trial, trial.all(general), _time, _time(training))
    profiles = tuple(trial.all(profile_candidates(costs)))
    shorter = _advice("bytes", trial, trial.all(general), _sent, _sent(training))
    most = max(_MOST_SHOWN - len(profiles), 2)
    return Advice("bytes", (*profiles, *shorter.changes[:most]), None, shorter.num_tried)


def _that_fit(scenario: Scenario, costs: IterationCosts, trial: _Trial) -> Iterator[Change]:
    """Changes after which the training fits: smaller batches, 8 bits, other devices, models."""
    settings = [
        Candidate(tuple(f"{key}={value}" for key, value in found.items()))
        for found in fitting_settings(costs.studied)
    ]
    yield from trial.all([*settings, *roomier_candidates(scenario, costs)])
    if settings:
        return
    for smaller in smaller_models(scenario):
        changed = trial.of(smaller)
        if changed is None:
            continue
        yield changed
        if not changed.fits:
            for found in fitting_settings(changed.costs.studied):
                pairs = tuple(f"{key}={value}" for key, value in found.items())
                yield from trial.all([Candidate((*smaller.settings, *pairs))])


def _advice(
    goal: Goal,
    trial: _Trial,
    changes: Iterable[Change],
    figure: Callable[[Training], float],
    as_it_is: float,
) -> Advice:
    """The changes that lower a figure most."""
    helpful = [
        change for change in changes if change.fits and figure(change.training) < _HELPS * as_it_is
    ]
    if goal == "time":  # no gain if a battery then ends before
        helpful = [change for change in helpful if not change.training.ends_early]
    helpful.sort(key=lambda change: figure(change.training))
    best = tuple(helpful[:_MOST_SHOWN])
    together = trial.of(_joined(best)) if len(best) > 1 and goal != "fit" else None
    if together is not None:
        is_better = figure(together.training) < _HELPS * figure(best[0].training)
        together = together if together.fits and is_better else None
    return Advice(goal, best, together, trial.num_tried)


class _Trial:
    """Studies changed scenarios.

    Args:
        scenario: the scenario as its file has it.
        costs: of its iteration.
    """

    def __init__(self, scenario: Scenario, costs: IterationCosts) -> None:
        self._scenario = scenario
        self._is_free = _is_free(costs)
        self.num_tried = 0

    def of(self, candidate: Candidate) -> Change | None:
        """A changed scenario with its costs.

        None if the scenario can't be changed so, or if free pace saves only because devices then
        hardly exchange models.
        """
        try:
            scenario = scenario_of(self._scenario, candidate.settings)
            scenario, _ = with_found_rate(scenario)  # a run would end where there is none
            costs = iteration_costs(scenario, wider=candidate.wider, most_events=_MOST_EVENTS)
        except EdgesimError:  # as an edited file would be refused: such a change is no advice
            return None
        self.num_tried += 1
        if not self._is_free and _is_free(costs) and _share_sent(costs) < _LEAST_SENT:
            return None
        return Change(candidate, costs, training_of(costs))

    def all(self, candidates: Iterable[Candidate]) -> Iterator[Change]:
        """Changed scenarios with their costs."""
        for candidate in candidates:
            change = self.of(candidate)
            if change is not None:
                yield change


def _is_paced_by_trace(state: SteadyState) -> bool:
    """Whether a contact trace says how long rounds last, whatever devices and links are like."""
    return seconds_by_kind(state.limits).get("trace", 0.0) > _HELPS * state.period_s


def _is_free(costs: IterationCosts) -> bool:
    return costs.steady_state is not None and costs.steady_state.is_free


def _share_sent(costs: IterationCosts) -> float:
    """Share of the messages of the schedule that the fleet sends; radios skip the others."""
    sent = sum(device.messages_sent for device in costs.devices)
    scheduled = sum(device.degrees[0] for device in costs.devices)
    return sent / scheduled if scheduled else 1.0


def _joined(changes: Iterable[Change]) -> Candidate:
    """Several changes at once; of two that set one key, the better one.

    Of a section that is set as a whole, another change may set a key that it leaves out.
    """
    settings: dict[str, str] = {}
    wider = None
    for change in changes:
        own = change.candidate
        pairs = [setting.split("=", 1) for setting in own.settings]
        if all(_fits(key, settings) for key, _ in pairs):
            settings.update(dict(pairs))
        wider = wider or own.wider
    return Candidate(tuple(f"{key}={value}" for key, value in settings.items()), (), wider)


def _fits(key: str, settings: Mapping[str, str]) -> bool:
    """Whether a key can be set after these settings, and changes none of them."""
    if any(f"{other}.".startswith(f"{key}.") for other in settings):
        return False
    above = [other for other in settings if key.startswith(f"{other}.")]
    below = {other: key.removeprefix(f"{other}.").partition(".")[0] for other in above}
    return all(f"{below[other]}:" not in settings[other] for other in above)


def _time(training: Training) -> float:
    return inf if training.seconds is None else training.seconds


def _sent(training: Training) -> float:
    return max(training.sent_bytes)


def _battery(training: Training) -> float:
    """How often the battery that is asked for most would have to be charged."""
    return max((life.used for life in training.lives), default=0.0)
