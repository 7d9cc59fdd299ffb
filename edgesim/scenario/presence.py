"""Presence of devices by a scenario's churn: by rounds, or at free pace by virtual time."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from edgesim.errors import ScenarioError
from edgesim.scenario.schema import Scenario
from edgesim.streams import StreamPurpose, torch_seed
from topologies import (
    EVERYONE,
    Presence,
    Schedule,
    TimedChurn,
    TimedRandomAbsence,
    TopologyError,
    build_churn,
    build_timed_churn,
)
from topologies.timed_presence import TimeSpan


def make_presence(scenario: Scenario) -> Presence:
    """Presence by rounds; all devices in all rounds unless lockstep has churn.

    Raises:
        ScenarioError: the churn can't work, with the reason.
    """
    fleet = scenario.fleet
    if fleet.churn is None or fleet.rules.goes_by_clock:
        return EVERYONE
    seed = torch_seed(scenario.seed, StreamPurpose.CHURN)
    try:
        arguments = fleet.churn.arguments(fleet.rules, fleet.numbers)
        return build_churn(fleet.num_devices, seed=seed, **arguments)
    except TopologyError as error:
        raise ScenarioError(f"fleet.churn: {error}") from error


def make_timed_churn(scenario: Scenario) -> TimedChurn:
    """Presence by virtual time; all devices at all times without churn or in lockstep.

    Raises:
        ScenarioError: the churn can't work, with the reason; also later, if a device has too many
            absences by chance before a time that is asked for.
    """
    fleet = scenario.fleet
    churn = fleet.churn if fleet.rules.goes_by_clock else None
    arguments = churn.arguments(fleet.rules, fleet.numbers) if churn else {}
    seed = torch_seed(scenario.seed, StreamPurpose.CHURN)
    try:
        churn_by_time = build_timed_churn(fleet.num_devices, seed=seed, **arguments)
    except TopologyError as error:
        raise ScenarioError(f"fleet.churn: {error}") from error
    if (chance := churn_by_time.chance) is None:
        return churn_by_time
    refused = _Chance(chance.absence_probability, chance.mean_absence_s, chance.seed)
    return replace(churn_by_time, chance=refused)


class _Chance(TimedRandomAbsence):
    """Random absences; too many of them raise a ScenarioError when they are drawn."""

    def next_absence(self, device: int, time_s: float) -> TimeSpan:
        try:
            return super().next_absence(device, time_s)
        except TopologyError as error:
            raise ScenarioError(f"fleet.churn.random: {error}") from error


def check_timed_leaves(scenario: Scenario, schedule: Schedule) -> None:
    """Check that the remaining fleet is strongly connected after all planned leaves.

    Args:
        scenario: of the run.
        schedule: of the scenario, as if everybody were there.

    Raises:
        ScenarioError: it does not; says what can't reach what.
    """
    timed_churn, label = make_timed_churn(scenario), scenario.fleet.label
    stay = [d for d in range(schedule.num_devices) if timed_churn.leave_s(d) == inf]
    if len(stay) == schedule.num_devices:
        return
    remaining = set(stay)
    for device in range(schedule.num_devices):
        if device not in remaining and remaining.isdisjoint(schedule.possible_receivers(device)):
            raise ScenarioError(
                f"fleet.churn.leaves: {label(device)} leaves at {timed_churn.leave_s(device):g} s, "
                "and so do all that it sends to: nobody can take over what it has; let one of them "
                "stay"
            )
    for direction, peers in (
        ("to", schedule.possible_receivers),
        ("from", schedule.possible_senders),
    ):
        found, ahead = {stay[0]}, [stay[0]]
        while ahead:
            new = remaining.intersection(peers(ahead.pop())) - found
            found |= new
            ahead.extend(new)
        if missing := sorted(remaining - found):
            ends = (stay[0], missing[0]) if direction == "to" else (missing[0], stay[0])
            raise ScenarioError(
                f"fleet.churn.leaves: after the last has left, nothing that {label(ends[0])} sends "
                f"can reach {label(ends[1])}; choose a topology with more links, or let others "
                "leave"
            )
