"""What churn changes of the figures of a study."""

from __future__ import annotations

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.device.membership import turns_to_leave
from edgesim.hardware.timeline import Timeline
from edgesim.study.battery_leaves import handover_bytes
from edgesim.study.rounds.steady_state import is_short
from edgesim.study.tables.units import brief

_MOST_NAMED = 4


def presence_notices(studied: StudiedScenario) -> list[str]:
    """A notice that figures are those of a fleet without churn.

    A short training in lockstep is counted with all absences.
    """
    scenario, presence = studied.scenario, studied.schedule.presence
    if scenario.fleet.churn is None:
        return []
    if not scenario.fleet.rules.waits_for_all:
        said = (
            "nobody is absent, joins late or leaves here; so bytes are too many, times of devices "
            "that are away are too short, and energies too large or too small"
        )
        return [f"fleet.churn: at free pace {said}"]
    if is_short(studied.schedule, studied.num_rounds):
        return []
    label, num_rounds = scenario.fleet.label, studied.num_rounds
    told = []
    for device in range(scenario.fleet.num_devices):
        end = num_rounds
        if (leave := presence.leave_round(device)) is not None:  # it leaves in its next turn
            turns = turns_to_leave(studied.schedule, device, num_rounds)
            end = next((turn for turn in turns if turn >= leave), num_rounds)
        spans = presence.spans(device)
        there = sum(max(min(until, end) - start, 0) for start, until in spans)
        if there < num_rounds:
            told.append(f"{label(device)} is there in {there:,} of {num_rounds:,} rounds")
    if scenario.fleet.churn.random is not None:
        told.append("all are absent at random")
    if not told:
        return []
    more = len(told) - _MOST_NAMED
    first = ", ".join(told[:_MOST_NAMED]) + (f", and {more:,} more" if more > 0 else "")
    said = "here all devices are there in all rounds; so bytes, work, time and energy are too large"
    return [f"fleet.churn: {first}; {said}"]


def handover_notices(studied: StudiedScenario) -> list[str]:
    """Notices of devices that leave by plan: no figure of a study has what they hand over.

    The time is that of one message of all vectors to the neighbour that it reaches fastest; the
    others wait for it, or for some of it.
    """
    scenario, schedule = studied.scenario, studied.schedule
    if not scenario.fleet.rules.waits_for_all:
        return []
    leavers = [
        n for n in range(schedule.num_devices) if schedule.presence.leave_round(n) is not None
    ]
    hardware = device_hardware(scenario, schedule) if leavers else ()
    found = []
    for device in leavers[:_MOST_NAMED]:
        num_bytes = handover_bytes(studied, device)
        takes = ""
        if hardware:
            clocks = {
                receiver: Timeline(hardware[device], scenario.seed, device)
                for receiver in schedule.possible_receivers(device)
            }
            sent = (c.send((device, r), num_bytes, 0).arrival_s for r, c in clocks.items())
            takes = f", which takes {brief(min(sent), 's')} or more"
        found.append(
            f"fleet.churn.leaves: {scenario.fleet.label(device)} hands over "
            f"{brief(num_bytes, 'MB')} "
            f"when it leaves{takes}; time, bytes and energy of that are left out here"
        )
    more = len(leavers) - len(found)
    return [*found, f"fleet.churn.leaves: {more:,} more do so"] if more > 0 else found
