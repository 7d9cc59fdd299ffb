"""The plan of a training: its rounds and epochs, and when models are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import overload

from edgesim.assembly.gossip import cycle_of, rounds_of_epoch
from edgesim.errors import ScenarioError
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import MOST_ROUNDS
from edgesim.scenario.training import MOST_EVALUATIONS

MOST_RANDOM_ROUNDS = 1_000_000  # with absences by chance, which are drawn from the first round on
MOST_RANDOM_CHANGES = 5_000_000  # of presence by chance, over all devices; tens of bytes each


@dataclass(frozen=True, slots=True)
class EvaluationRounds(Sequence[int]):
    """Numbers of completed rounds, or of intervals of time, after which models are evaluated.

    A range holds them, so they take no memory.

    Attributes:
        between: numbers before the end, increasing.
        end: the last number, which is that of all rounds.
    """

    between: range
    end: int

    def __len__(self) -> int:
        return len(self.between) + 1

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...

    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            # All but the last stay a range; other parts are few.
            return self.between if place == slice(-1) else [*self.between, self.end][place]
        places = range(len(self))
        return self.end if places[place] == len(self.between) else self.between[places[place]]


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Rounds, epochs and evaluations of a training.

    Attributes:
        num_rounds: of every device.
        rounds_per_epoch: rounds in which the fleet sees about as many samples as it holds.
        evaluation_rounds: numbers of completed rounds after which models are evaluated, increasing;
            the last is `num_rounds`. With `evaluation_interval_s` they are numbers of intervals,
            except the last.
        evaluation_interval_s: virtual seconds between evaluations; None where they go by rounds.
    """

    num_rounds: int
    rounds_per_epoch: int
    evaluation_rounds: Sequence[int]
    evaluation_interval_s: float | None = None


def check_rounds(scenario: Scenario, num_rounds: int) -> None:
    """Refuse runs that are too long for their records or for the checks of presence."""
    key = "training.epochs" if scenario.training.rounds is None else "training.rounds"
    wanted = getattr(scenario.training, key.removeprefix("training."))
    reached = "" if key == "training.rounds" else f", at least {num_rounds:,} rounds"
    if num_rounds > MOST_ROUNDS:
        raise ScenarioError(f"{key} is {wanted:,}{reached}; must be at most {MOST_ROUNDS:,} rounds")
    churn = scenario.fleet.churn
    if churn is None or churn.random is None or churn.random.mean_absence_rounds is None:
        return
    if num_rounds > MOST_RANDOM_ROUNDS:
        raise ScenarioError(
            f"{key} is {wanted:,}{reached}; must be at most {MOST_RANDOM_ROUNDS:,} rounds with "
            "fleet.churn.random"
        )
    absent, mean = churn.random.absence_probability, churn.random.mean_absence_rounds
    changes = 2 * absent / mean * num_rounds * scenario.fleet.num_devices
    if changes > MOST_RANDOM_CHANGES:
        raise ScenarioError(
            f"fleet.churn.random: devices would come and go {changes:,.0f} times; must be at most "
            f"{MOST_RANDOM_CHANGES:,}: train for fewer rounds, or let absences be rarer or longer"
        )


def plan_training(scenario: Scenario, mean_shard: float) -> TrainingPlan:
    """Rounds, epochs and evaluations.

    Every device takes one batch a round. An epoch is the mean number of batches in a shard: with
    shards of equal size each device sees each of its samples once; with unequal ones a device with
    few samples sees them more often.

    Args:
        scenario: that is run.
        mean_shard: samples of a device, in the mean.

    Raises:
        ScenarioError: rounds or evaluations don't fit each other or the algorithm.
    """
    steps = ceil(mean_shard / scenario.data.batch_size)
    return plan_of_epochs(scenario, rounds_of_epoch(scenario, steps))


def plan_of_epochs(scenario: Scenario, rounds_per_epoch: int) -> TrainingPlan:
    """As `plan_training`, from the rounds of an epoch."""
    section, evaluation = scenario.training, scenario.evaluation
    _check_cycles(scenario)
    if section.rounds is not None:
        num_rounds = section.rounds
    else:
        assert section.epochs is not None, "the schema asks for epochs or rounds"
        num_rounds = section.epochs * rounds_per_epoch
    interval_s = None
    if evaluation.every_virtual_s is not None:
        assert section.virtual_time_s is not None, "the schema asks for it"
        interval_s = evaluation.every_virtual_s
        # Any number above the limit counts as infinite.
        num_between = ceil(min(section.virtual_time_s / interval_s, 2.0**60)) - 1
        if num_between >= num_rounds:
            raise ScenarioError(
                f"evaluation.every_virtual_s is {interval_s:g}: more evaluations "
                f"than the {num_rounds} rounds of a device; raise it"
            )
        key, wanted, between = "every_virtual_s", interval_s, range(1, num_between + 1)
    elif section.virtual_time_s is not None:
        between = range(0)  # rounds are not reached
    else:
        key = "every_epochs" if evaluation.every_rounds is None else "every_rounds"
        wanted = getattr(evaluation, key)
        interval = evaluation.every_rounds or (evaluation.every_epochs or num_rounds) * (
            rounds_per_epoch
        )
        between = range(interval, num_rounds, interval)
    if len(between) >= MOST_EVALUATIONS:
        raise ScenarioError(
            f"evaluation.{key} is {wanted:g}: {len(between) + 1:,} evaluations; must be at most "
            f"{MOST_EVALUATIONS:,}; raise it"
        )
    evaluations = EvaluationRounds(between, num_rounds)
    return TrainingPlan(num_rounds, rounds_per_epoch, evaluations, interval_s)


def _check_cycles(scenario: Scenario) -> None:
    """Refuse an end or an evaluation in the middle of an average that takes several rounds."""
    _, rounds = cycle_of(scenario)
    wanted = {
        "training.rounds": scenario.training.rounds,
        "evaluation.every_rounds": scenario.evaluation.every_rounds,
    }
    for key, value in wanted.items():
        if value is not None and value % rounds:
            raise ScenarioError(
                f"{key} is {value}; gossip.algorithm: {scenario.gossip.algorithm} takes {rounds} "
                f"rounds for an average: must be a multiple of {rounds}, or use epochs"
            )
