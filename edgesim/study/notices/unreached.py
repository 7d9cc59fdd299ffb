"""What a scenario asks for and its run never reaches: evaluations, churn, milestones, limits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import inf

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.free_clocks import clocks_of
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.errors import device_label
from edgesim.scenario.presence import make_timed_churn
from edgesim.scenario.schema import Scenario
from edgesim.study.notices.batteries import NAMED_NOTICES
from edgesim.study.rounds.round_ends import without_absences
from topologies import TimedChurn

# Clocks run for at most so many rounds of all devices together, which takes up to a second. Later
# rounds of a device are assumed to take the mean of its rounds so far.
MOST_ROUNDS = 5000
MOST_DEVICES = 1000  # of larger fleets no clock is run
SURELY_BEFORE = 0.95  # of the limit: an extrapolated end below this share counts as early


def evaluation_notices(scenario: Scenario, num_rounds: int) -> list[str]:
    """Evaluations that a key asks for and that no run reaches.

    Args:
        scenario: the scenario.
        num_rounds: largest number of rounds of a device.
    """
    section, limit_s = scenario.evaluation, scenario.training.virtual_time_s
    at_the_end = "models are evaluated at the end of training alone"
    if section.every_virtual_s is not None and limit_s is not None:
        if section.every_virtual_s >= limit_s:
            every = f"evaluation.every_virtual_s is {section.every_virtual_s:g}"
            return [f"{every}, and training.virtual_time_s {limit_s:g}: {at_the_end}"]
        return []
    if limit_s is not None:
        is_asked_for = "every_epochs" in section.model_fields_set and section.every_epochs
        if not is_asked_for:
            return []
        beside = "evaluation.every_epochs counts nothing beside training.virtual_time_s"
        return [f"{beside}: {at_the_end}; use every_virtual_s"]
    if section.every_rounds is not None and section.every_rounds >= num_rounds > 1:
        every = f"evaluation.every_rounds is {section.every_rounds:,}"
        return [f"{every}, and a device does {num_rounds:,} rounds: {at_the_end}"]
    return []


def absence_notices(scenario: Scenario, num_rounds: int) -> list[str]:
    """Absences in lockstep that begin after the last round.

    Milestones, a warm-up and evaluations after the last epoch are not told of: who tries a scenario
    for some epochs has them.

    Args:
        scenario: the scenario.
        num_rounds: of each device.
    """
    churn = scenario.fleet.churn
    if churn is None or scenario.fleet.rules.goes_by_clock:
        return []
    found = [
        f"fleet.churn.absent.{place}: begins in round {one.from_round:,}, but rounds are numbered "
        f"from 0 to {num_rounds - 1:,}: that never comes"
        for place, one in enumerate(churn.absent)
        if one.from_round is not None and one.from_round >= num_rounds
    ]
    return _first(found)


def _first(found: list[str]) -> list[str]:
    """The first of many lines about churn, and how many more there are."""
    more = len(found) - NAMED_NOTICES
    return (
        found
        if more <= 0
        else [*found[:NAMED_NOTICES], f"fleet.churn: {more:,} more that never come"]
    )


def clock_notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """Devices at free pace that do their last round before the time limit, and churn that is late.

    Churn is late if the run, or the device, ends before it.

    Args:
        studied: the scenario, as objects.
        num_rounds: largest number of rounds of a device.
    """
    scenario = studied.scenario
    if not scenario.fleet.rules.goes_by_clock:
        return []
    limit_s, timed_churn = scenario.training.virtual_time_s, make_timed_churn(scenario)
    has_churn = bool(timed_churn.absences or timed_churn.joins or timed_churn.leaves)
    ends_s: dict[int, float] = {}
    if scenario.fleet.num_devices <= MOST_DEVICES and (limit_s is not None or has_churn):
        ends_s = _ends_s(studied, num_rounds, inf if limit_s is None else limit_s)
    early = [] if limit_s is None else _early_notices(scenario, num_rounds, ends_s, limit_s)
    return early + _churn_notices(studied, timed_churn, ends_s)


def _churn_notices(
    studied: StudiedScenario, timed_churn: TimedChurn, ends_s: Mapping[int, float]
) -> list[str]:
    """Joins, leaves and absences at a time that the run or the device never reaches.

    Args:
        studied: the scenario, as objects.
        timed_churn: the scenario's churn.
        ends_s: time at which a device ends its last round, for devices where it is known.
    """
    scenario = studied.scenario
    limit_s, label = scenario.training.virtual_time_s, scenario.fleet.label
    found = []
    absences, joins, leaves = timed_churn.absences, timed_churn.joins, timed_churn.leaves
    entries = (
        *(("absent", n, one.device, str(one), one.from_s) for n, one in enumerate(absences)),
        *(("joins", n, one.device, str(one), one.at_s) for n, one in enumerate(joins)),
        *(("leaves", n, one.device, str(one), one.at_s) for n, one in enumerate(leaves)),
    )
    for key, place, device, entry, at_s in entries:
        what = f"fleet.churn.{key}.{place}: {label(device)} {entry}"
        if limit_s is not None and at_s >= limit_s:
            found.append(f"{what}, but training.virtual_time_s is {limit_s:g}: that never comes")
            continue
        # A joining device begins its rounds when it joins; it needs a sender that still sends then.
        is_join = key == "joins"
        whose = studied.schedule.possible_senders(device) if is_join else (device,)
        end_s = max((ends_s.get(who, inf) for who in whose), default=inf)
        if end_s < SURELY_BEFORE * at_s:
            last, then = "it does its last round", "that never comes"
            if is_join:
                last, then = "all that send to it do their last round", "it gets no model"
            found.append(f"{what}, but {last} by about {end_s:,.4g} s: {then}")
    return _first(found)


def _early_notices(
    scenario: Scenario, num_rounds: int, ends_s: Mapping[int, float], limit_s: float
) -> list[str]:
    """Devices that do their last round before the time limit."""
    num_devices, every_s = scenario.fleet.num_devices, scenario.evaluation.every_virtual_s
    early = {device: end_s for device, end_s in ends_s.items() if end_s < limit_s}
    if not early:
        return []
    first = min(early, key=lambda device: (early[device], device))
    key = "epochs" if scenario.training.rounds is None else "rounds"
    label = device_label(first, scenario.fleet.names)
    number = f"all {num_devices}" if len(early) == num_devices else f"{len(early)} of {num_devices}"
    who = f"{label} ends" if len(early) == 1 else f"{number} devices end"
    when = f"after about {early[first]:,.4g} s"
    if len(early) > 1:
        last_s = max(early.values())
        when = f"after about {early[first]:,.4g} s ({label}) to {last_s:,.4g} s"
    limit = f"training.virtual_time_s is {limit_s:g}, but {who} with training.{key}"
    remedy = f"raise training.{key}, or lower virtual_time_s"
    notices = [f"{limit}, {num_rounds:,} rounds, {when}: {remedy}"]
    if every_s is not None and len(early) == num_devices:
        last_s = max(early.values())
        notices.append(
            f"evaluations later than {last_s:,.4g} s find all devices where they have ended: "
            f"evaluation.every_virtual_s is {every_s:g}"
        )
    return notices


def _ends_s(studied: StudiedScenario, num_rounds: int, limit_s: float) -> dict[int, float]:
    """Time at which each device would end its last round without a time limit.

    The time is exact where the clocks reach the last round. It is reckoned where they reach the one
    before or where that is surely early, else infinite. Batteries are assumed never to be empty.
    """
    scenario, schedule = studied.scenario, studied.schedule
    hardware = device_hardware(scenario, schedule)
    clocks = clocks_of(studied, hardware, schedule)
    newest = {one.device: one for one in islice(clocks.run(num_rounds, limit_s), MOST_ROUNDS)}
    ends_s: dict[int, float] = {}
    for device, ended in newest.items():
        ends_s[device] = ended.step_end_s
        if not ended.is_last:
            sleep = without_absences(hardware[device])  # absences count as they were so far
            awake_s = sleep.awake_between(0.0, ended.step_end_s)
            reckoned_s = sleep.after(0.0, awake_s / ended.rounds_done * num_rounds)
            # The clocks of the fleet may have stopped before they told its last round.
            is_known = ended.rounds_done + 1 == num_rounds or reckoned_s < SURELY_BEFORE * limit_s
            ends_s[device] = reckoned_s if is_known else inf
    return ends_s
