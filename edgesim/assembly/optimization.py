"""Optimizer and learning rates of a scenario, and what a rate of 0 would break."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.parts.own_parts import make_part, needs, part_and_options
from edgesim.errors import MEND_OWN_CODE, OwnCodeError
from edgesim.gossip.algorithm import Algorithm, Place
from edgesim.gossip.optional_members import carries_steps, follows_rate, starting_state
from edgesim.learning.optimizers import LearningRates, Optimizer, QuasiGlobalMomentum
from edgesim.scenario.catalog import OPTIMIZERS, SCHEDULES
from edgesim.scenario.schema import Scenario

SCHEDULE = "training.schedule.kind"


@dataclass(frozen=True, slots=True)
class CheckedRates:
    """The rates of a schedule of one's own, each checked when it is asked for.

    Attributes:
        own: the schedule.
    """

    own: LearningRates

    def at(self, epoch: int) -> float:
        """As `LearningRates.at`.

        Raises:
            OwnCodeError: it is no rate.
        """
        rate = self.own.at(epoch)
        if problem := wrong_rate(epoch, rate):
            raise OwnCodeError(f"{SCHEDULE}: {problem}\n{MEND_OWN_CODE}")
        return float(rate)


def wrong_rate(epoch: int, rate: Any) -> str:  # noqa: ANN401 (what one's own code gives)
    """What is wrong with a learning rate of one's own; empty if nothing is."""
    is_number = isinstance(rate, float | int) and type(rate) is not bool
    if is_number and isfinite(rate) and rate >= 0:
        return ""
    return f"the learning rate of epoch {epoch} is {rate!r}; must be a number, at least 0"


def make_optimizer(scenario: Scenario) -> Optimizer:
    """Local optimizer.

    Raises:
        ScenarioError: it can't be made.
    """
    section = scenario.training.optimizer
    part, options = part_and_options(section, "kind", OPTIMIZERS, ("lr", "step_on"))
    made: Optimizer = make_part(part, "training.optimizer.kind", options, needs(Optimizer))
    return made


def make_learning_rates(scenario: Scenario) -> LearningRates:
    """Learning rate by epoch.

    Raises:
        ScenarioError: the schedule can't be made.
    """
    made = plain_learning_rates(scenario)
    return CheckedRates(made) if is_own(scenario.training.schedule.kind) else made


def plain_learning_rates(scenario: Scenario) -> LearningRates:
    """The same, which nobody checks if they are one's own."""
    base, section = scenario.training.optimizer.lr, scenario.training.schedule
    part, options = part_and_options(section, "kind", SCHEDULES)
    made: LearningRates = make_part(part, SCHEDULE, options, needs(LearningRates), base=base)
    return made


def use_of_rate(algorithm: Algorithm[Any], optimizer: Optimizer) -> str:
    """What needs learning rates above 0, in words; empty if nothing does."""
    if isinstance(optimizer, QuasiGlobalMomentum):
        return "quasi-global momentum divides movements by the rate"
    if not carries_steps(type(algorithm)):
        return ""
    place = Place(index=0, num_devices=2, num_samples=1)
    state = starting_state(algorithm, torch.zeros(algorithm.layout.numel), {1: 0.5}, place)
    return f"{algorithm.name} keeps steps times the rate" if follows_rate(algorithm, state) else ""
