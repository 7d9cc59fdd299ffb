"""The two paces as a host needs them: how a device of each is made, and the intake of its messages.

A further pace is one entry here, one in edgesim/scenario/pace.py and its value in
edgesim/device/pace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

from edgesim.device.device import Device
from edgesim.device.pace import Free, Lockstep, Pace
from edgesim.device.participant import Participant
from edgesim.fleet.host.free_intake import FreeIntake
from edgesim.fleet.host.lockstep_intake import LockstepIntake
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.free_clock import FreeClock
from edgesim.hardware.meter import ClockT, Meter
from edgesim.hardware.timeline import Hardware, Timeline
from edgesim.scenario.pace import PaceName
from edgesim.scenario.presence import make_timed_churn
from edgesim.scenario.schema import Scenario

MakeParticipant: TypeAlias = Callable[[Meter[Any] | None], Participant]
"""Makes a device's participant from its meter."""

Intake: TypeAlias = LockstepIntake | FreeIntake
"""The mailbox of one device: senders wait for room, the device waits for messages.

In each round: `end_step`; where the device listens first, `before_sending`; then `collect`.
"""


@dataclass(frozen=True, slots=True)
class PaceOfHost:
    """How a host makes what differs between the paces.

    Attributes:
        make_device: from the scenario, the hardware of all devices, the device's number, and what
            makes its participant.
        make_intake: of a pace's messages, from the pace, what is called when the device has taken
            the place of others (in lockstep), and the time-out of life signs in seconds (at free
            pace).
    """

    make_device: Callable[[Scenario, Sequence[Hardware], int, MakeParticipant], Device]
    make_intake: Callable[[Any, Callable[[], None], float], Intake]


def _device_in_lockstep(
    scenario: Scenario,
    hardware: Sequence[Hardware],
    index: int,
    participant_of: MakeParticipant,
) -> Device:
    meter = None
    if hardware:
        meter = _meter(Timeline(hardware[index], scenario.seed, index), scenario, hardware)
    participant = participant_of(meter)
    return Device(participant, Lockstep(participant, meter))


def _device_at_free_pace(
    scenario: Scenario,
    hardware: Sequence[Hardware],
    index: int,
    participant_of: MakeParticipant,
) -> Device:
    clock = FreeClock(Timeline(hardware[index], scenario.seed, index))
    meter = _meter(clock, scenario, hardware)
    participant = participant_of(meter)
    pace: Pace = Free(
        participant,
        meter,
        horizon_s=scenario.training.virtual_time_s or inf,
        timed_churn=make_timed_churn(scenario),
    )
    return Device(participant, pace)


def _meter(clock: ClockT, scenario: Scenario, hardware: Sequence[Hardware]) -> Meter[ClockT]:
    """Clock and energy of a device; `hardware` is of all devices."""
    return Meter(
        clock,
        ENERGY_TABLES.get(scenario.hardware.energy_table),
        with_charge=any(own.profile.battery_j is not None for own in hardware),
    )


PACES: Mapping[PaceName, PaceOfHost] = {
    "lockstep": PaceOfHost(
        _device_in_lockstep,
        lambda pace, on_inheritance, _: LockstepIntake(pace, on_inheritance),
    ),
    "free": PaceOfHost(
        _device_at_free_pace,
        lambda pace, _, presumed_dead_after_s: FreeIntake(pace, presumed_dead_after_s),
    ),
}
