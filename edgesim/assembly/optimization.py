"""Optimizer and learning rates of a scenario, and what a rate of 0 would break."""

from __future__ import annotations

from typing import Any

import torch

from edgesim.assembly.own_parts import make_part, needs, part_and_options
from edgesim.gossip.algorithm import Algorithm, Place
from edgesim.gossip.optional_members import carries_steps, follows_rate, starting_state
from edgesim.learning.optimizers import LearningRates, Optimizer, QuasiGlobalMomentum
from edgesim.scenario.catalog import OPTIMIZERS, SCHEDULES
from edgesim.scenario.schema import Scenario


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
    base, section = scenario.training.optimizer.lr, scenario.training.schedule
    part, options = part_and_options(section, "kind", SCHEDULES)
    made: LearningRates = make_part(
        part, "training.schedule.kind", options, needs(LearningRates), base=base
    )
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
