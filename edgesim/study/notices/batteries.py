"""Batteries that cannot pay for a device's first round.

A device checks its battery after a round, so it always does the first round. If its battery cannot
pay for that round, the battery is overdrawn, the device leaves or dies, and the others continue. A
fleet is refused if none of its batteries can pay for the first round.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.assembly.equipment import JOULES_PER_WH, device_profiles
from edgesim.assembly.free_clocks import first_steps
from edgesim.assembly.message_costs import random_message_bytes
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.costs.round_work import gossip_work
from edgesim.errors import ScenarioError
from edgesim.hardware.energy import Activity, price
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.profiles import DeviceProfile
from edgesim.streams import StreamPurpose, stream

NAMED_NOTICES = 8  # notices of one kind that are printed; further ones are counted


@dataclass(frozen=True, slots=True)
class Overdrawn:
    """A battery that holds less energy than the first round takes.

    Attributes:
        device: number of the device.
        battery_j: energy of the full battery.
        round_j: lower bound on the energy of the first round.
    """

    device: int
    battery_j: float
    round_j: float


def battery_notices(studied: StudiedScenario) -> list[str]:
    """Notices of batteries that cannot pay for the first round; their devices still do it.

    Args:
        studied: the scenario, as objects.
    """
    label = studied.scenario.fleet.label
    found = [
        f"{label(one.device)}: its battery holds {one.battery_j:.4g} J, and its first round takes "
        f"at least about {one.round_j:.4g} J: the round is done and overdraws the battery; raise "
        "battery_wh"
        for one in _overdrawn(studied)
    ]
    more = len(found) - NAMED_NOTICES
    if more > 0:
        found[NAMED_NOTICES:] = [f"and {more:,} more batteries that can't pay for the first round"]
    return found


def check_batteries(studied: StudiedScenario) -> None:
    """Refuse a fleet in which no device can pay for its first round.

    Args:
        studied: the scenario, as objects.

    Raises:
        ScenarioError: all devices have batteries, and none holds the energy of a first round.
    """
    scenario, overdrawn = studied.scenario, _overdrawn(studied)
    if len(overdrawn) < scenario.fleet.num_devices:
        return
    worst = max(overdrawn, key=lambda one: one.round_j)
    raise ScenarioError(
        "fleet: no device has a battery that can pay for its first round; that of "
        f"{scenario.fleet.label(worst.device)} holds {worst.battery_j:.4g} J, and the round takes "
        f"at least about {worst.round_j:.4g} J; set battery_wh above "
        f"{worst.round_j / JOULES_PER_WH:.2g} for each round that it is to do, or to plugged_in"
    )


def _overdrawn(studied: StudiedScenario) -> list[Overdrawn]:
    """Devices whose batteries cannot pay for the first round, in the order of their numbers.

    The energy of a first round is that of the step and of the messages sent. Retransmissions and
    received messages are left out.
    """
    scenario, own = studied.scenario, studied.algorithm
    mortal = [
        (device, profile, profile.battery_j)
        for device, profile in enumerate(device_profiles(scenario))
        if profile.battery_j is not None
    ]
    if not mortal:
        return []
    message_bytes = random_message_bytes(own, stream(scenario.seed, StreamPurpose.COMPRESS))
    table = ENERGY_TABLES.get(scenario.hardware.energy_table)
    steps = first_steps(studied)

    def round_j(device: int, profile: DeviceProfile) -> float:
        sent = len(studied.schedule.out_edges(device, 0))
        work = steps[device] + gossip_work(own, sent, 0)
        activity = Activity(
            work=work,
            sent_bytes=sent * message_bytes,
            received_bytes=0,
            compute_s=profile.compute_s(work),
            wait_s=0.0,
        )
        return price(activity, profile, table).total_j

    pairs = (
        Overdrawn(device, battery_j, round_j(device, profile))
        for device, profile, battery_j in mortal
    )
    return [one for one in pairs if one.round_j > one.battery_j]
