"""When a device in lockstep leaves because of its battery (docs/gossip.md, Leaving in lockstep).

A device may leave in its turns alone, and leaves if its battery would not last until the next one:

    t E + n (k E + F) + L > B

# E: energy of a mean round   F: what the costliest exchange takes beyond a mean one
# t: rounds before the turn   n: devices   k: rounds of an exchange
# L: energy of its last messages   B: battery

A run leaves out turns in which a device can't leave, since it was absent before or has nobody to
hand over to; here each turn counts, so fleets with churn or changing graphs keep larger reserves
than this says. A run goes by its costliest rounds so far. Here the costliest exchange has the
longest wait, and the most bytes that are sent again, of those that the clocks counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.device.membership import turns_to_leave
from edgesim.device.succession import most_copies
from edgesim.hardware.energy import Activity, price
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.timeline import Hardware
from edgesim.hardware.widths import FLOAT_BYTES
from edgesim.hardware.work import Work
from edgesim.study.iteration import DeviceCosts, IterationCosts


@dataclass(frozen=True, slots=True)
class Leaves:
    """Turns of a device to leave, and the energy that it must still have in each to stay.

    Attributes:
        turns: rounds in which it may leave.
        reserve_j: joules.
        last_s: awake seconds in which it sends its last messages, and with them what it hands over.
    """

    turns: range
    reserve_j: float
    last_s: float

    def rounds(self, battery_j: float, round_j: float) -> int | None:
        """Rounds that a device does before it leaves; None if it stays.

        Args:
            battery_j: energy of the full battery.
            round_j: energy of a mean round.
        """
        too_late = (t for t in self.turns if t * round_j + self.reserve_j > battery_j)
        return next(too_late, None)

    def needed_j(self, round_j: float) -> float:
        """Energy of a battery with which the device stays to the end."""
        return self.turns[-1] * round_j + self.reserve_j if self.turns else 0.0


def battery_leaves(costs: IterationCosts) -> dict[int, Leaves]:
    """The devices with a battery in a fleet in lockstep, by number; none at free pace.

    Args:
        costs: costs of an iteration.
    """
    studied = costs.studied
    rules = studied.scenario.fleet.rules
    mortal = [one for one in costs.devices if one.profile and one.profile.battery_j is not None]
    if not mortal or not rules.waits_for_all or len(costs.devices) == 1:
        return {}
    hardware = device_hardware(studied.scenario, studied.schedule)
    return {
        one.device: Leaves(
            turns_to_leave(studied.schedule, one.device, studied.num_rounds),
            _reserve_j(costs, one, hardware[one.device]),
            hardware[one.device].sending_s(_last_bytes(costs, one)),
        )
        for one in mortal
    }


def handover_bytes(studied: StudiedScenario, device: int) -> int:
    """Bytes of the vectors that a device hands to its successor in lockstep, without headers."""
    copies = most_copies(studied.algorithm, studied.schedule, device)
    return FLOAT_BYTES * studied.algorithm.layout.numel * (1 + copies)


def _last_bytes(costs: IterationCosts, device: DeviceCosts) -> float:
    """Bytes of a leaver's last messages."""
    every = costs.studied.schedule.exchange_every
    return handover_bytes(costs.studied, device.device) + every * device.sent_bytes


def _reserve_j(costs: IterationCosts, device: DeviceCosts, hardware: Hardware) -> float:
    """Energy of the rounds until the next turn, and of the last messages with mean losses."""
    schedule = costs.studied.schedule
    every = schedule.exchange_every
    mean_j = device.energy_by(costs.energy_table).total_j
    more_j = _more_in_costliest_j(costs, device, every)
    return schedule.num_devices * (every * mean_j + more_j) + hardware.sending_j(
        _last_bytes(costs, device)
    )


def _more_in_costliest_j(costs: IterationCosts, device: DeviceCosts, every: int) -> float:
    """Energy that the costliest exchange takes beyond a mean one.

    It waits the longest, and sends the most again. In rounds without an exchange a device hardly
    waits.
    """
    if device.time is None or device.profile is None:
        return 0.0
    cycle = device.time.cycle
    more = Activity(
        work=Work(),
        sent_bytes=max(round(cycle.most_lost_bytes - every * cycle.lost_bytes), 0),
        received_bytes=0,
        compute_s=0.0,
        wait_s=max(cycle.most_wait_s - every * cycle.wait_s, 0.0),
    )
    return price(more, device.profile, ENERGY_TABLES.get(costs.energy_table)).total_j
