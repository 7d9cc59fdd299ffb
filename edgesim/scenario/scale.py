"""Shorter versions of scenarios: length and everything that goes by it, in one proportion."""

from __future__ import annotations

from itertools import pairwise
from numbers import Real
from typing import Any, TypeVar

from edgesim.errors import ScenarioError
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import Section
from edgesim.scenario.training import OtherSchedule, ScheduleSection

_SectionT = TypeVar("_SectionT", bound=Section)


def scaled(scenario: Scenario, scale: float, origin: str = "--scale") -> Scenario:
    """The scenario with a shorter training; milestones, warm-up and evaluations come sooner alike.

    Whole numbers are rounded, and stay at least 1.

    Args:
        scenario: checked.
        scale: factor, above 0 and at most 1.
        origin: what messages call the factor.

    Raises:
        ScenarioError: the factor is out of range; two milestones would be one; or the scenario has
            times that do not go by its length.
    """
    scale = _share(scale, origin)
    if scale == 1:
        return scenario
    if scenario.fleet.churn is not None:
        raise ScenarioError(
            f"{origin} {scale:g}: fleet.churn says when devices come and go, which it can't "
            "shorten; set training.epochs instead"
        )
    training, evaluation = scenario.training, scenario.evaluation
    schedule = training.schedule
    if isinstance(schedule, OtherSchedule):
        raise ScenarioError(
            f"{origin} {scale:g}: training.schedule.kind is {schedule.kind}, which it can't "
            "shorten; set training.epochs and the schedule's options instead"
        )
    lengths = _shorter(training, scale, "epochs", "rounds", "virtual_time_s")
    intervals = _shorter(evaluation, scale, "every_epochs", "every_rounds", "every_virtual_s")
    return scenario.model_copy(
        update={
            "training": lengths.model_copy(update={"schedule": _sooner(schedule, scale, origin)}),
            "evaluation": intervals,
        }
    )


def _share(given: object, origin: str) -> float:
    is_flag = isinstance(given, bool)  # which Python takes for a number
    if isinstance(given, Real) and not is_flag and 0 < float(given) <= 1:
        return float(given)
    raise ScenarioError(f"{origin} is {given!r}; must be a number above 0 and at most 1")


def _sooner(schedule: ScheduleSection, scale: float, origin: str) -> ScheduleSection:
    """The schedule with all its epochs in proportion."""
    milestones = tuple(_whole(milestone, scale) for milestone in schedule.milestones)
    for earlier, later in pairwise(zip(schedule.milestones, milestones, strict=True)):
        if later[1] <= earlier[1]:
            raise ScenarioError(
                f"{origin} {scale:g}: training.schedule.milestones {earlier[0]} and {later[0]} "
                f"both come after epoch {later[1]}; raise it to "
                f"{1 / (later[0] - earlier[0]):.2g} or more"
            )
    warmup = schedule.warmup_epochs and _whole(schedule.warmup_epochs, scale)
    return schedule.model_copy(update={"milestones": milestones, "warmup_epochs": warmup})


def _shorter(section: _SectionT, scale: float, *keys: str) -> _SectionT:
    """A section with some of its lengths in proportion; those that are null stay so."""
    update: dict[str, Any] = {}
    for key in keys:
        value = getattr(section, key)
        if value is not None:
            update[key] = value * scale if isinstance(value, float) else _whole(value, scale)
    return section.model_copy(update=update)


def _whole(value: int, scale: float) -> int:
    return max(1, round(value * scale))
