"""The whole training of a fleet: how many rounds, how long, bytes, energy, batteries.

All figures follow from the costs of an iteration. They are those of devices that stay to the end:
a battery that ends before is told of, and takes nothing away from the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from edgesim.hardware.energy import Activity, price
from edgesim.hardware.energy_tables import ENERGY_TABLES
from edgesim.hardware.work import Work
from edgesim.study.battery_leaves import Leaves, battery_leaves
from edgesim.study.iteration import DeviceCosts, IterationCosts


@dataclass(frozen=True, slots=True)
class Life:
    """A battery, and what the training asks of it.

    Attributes:
        device: number of the device.
        battery_j: energy of the full battery.
        needed_j: energy of a battery that lasts for the whole training: what the device spends,
            and in lockstep the reserve with which it stays (battery_leaves.py).
        rounds: whole rounds that the battery pays for; in lockstep those before the device would
            leave.
        seconds: virtual time at which these rounds have ended, by the clocks of the training as
            far as they ran, else reckoned; of a device that leaves, with its last messages.
    """

    device: int
    battery_j: float
    needed_j: float
    rounds: int
    seconds: float

    @property
    def used(self) -> float:
        """Share of the charge that the training asks for; above 1 the battery ends before."""
        return self.needed_j / self.battery_j

    @property
    def lasts(self) -> bool:
        """Whether the battery pays for the whole training."""
        return self.needed_j <= self.battery_j


@dataclass(frozen=True, slots=True)
class Training:
    """The whole training of a fleet.

    Attributes:
        rounds: rounds of each device, which differ at free pace if virtual time ends them.
        seconds: virtual time until the last device has ended; None without profiles.
        epoch_s: virtual time of an epoch of the slowest device; None without profiles, or where
            the training is run whole and has none.
        sent_bytes: bytes that each device sends, without packets that are sent again.
        energy_j: joules that each device spends, by the scenario's price list.
        last_wait_s: awake seconds that each device waits after its last step, for neighbours that
            train on; 0 in lockstep.
        last_wait_j: the part of `energy_j` that it spends meanwhile.
        lives: batteries of the devices that have one.
    """

    rounds: tuple[float, ...]
    seconds: float | None
    epoch_s: float | None
    sent_bytes: tuple[float, ...]
    energy_j: tuple[float, ...]
    last_wait_s: tuple[float, ...]
    last_wait_j: tuple[float, ...]
    lives: tuple[Life, ...]

    @property
    def ends_early(self) -> tuple[Life, ...]:
        """Batteries that don't last, the one that lasts shortest first."""
        return tuple(sorted((one for one in self.lives if not one.lasts), key=_seconds))


def training_of(costs: IterationCosts) -> Training:
    """The whole training of a scenario.

    Args:
        costs: costs of an iteration.
    """
    table = costs.energy_table
    rounds = tuple(_rounds(costs, device) for device in costs.devices)
    energies = [device.energy_by(table).total_j for device in costs.devices]
    waits_s = costs.whole.wait_s if costs.whole is not None else (0.0,) * len(costs.devices)
    last_j = tuple(
        _idle_j(own, wait_s, table) for own, wait_s in zip(costs.devices, waits_s, strict=True)
    )
    needed = tuple(
        n * energy_j + last for n, energy_j, last in zip(rounds, energies, last_j, strict=True)
    )
    leaves = battery_leaves(costs)
    sent = tuple(n * device.sent_bytes for n, device in zip(rounds, costs.devices, strict=True))
    return Training(
        rounds=rounds,
        seconds=_seconds_of(costs, rounds),
        epoch_s=_epoch_s(costs),
        sent_bytes=sent,
        energy_j=needed,
        last_wait_s=waits_s,
        last_wait_j=last_j,
        lives=tuple(
            _life(costs, device, n, energy_j, needed_j, leaves.get(device.device))
            for device, n, energy_j, needed_j in zip(
                costs.devices, rounds, energies, needed, strict=True
            )
            if device.profile is not None and device.profile.battery_j is not None
        ),
    )


def _epoch_s(costs: IterationCosts) -> float | None:
    studied, state = costs.studied, costs.steady_state
    if state is None or (state.is_whole and studied.num_rounds < studied.rounds_per_epoch):
        return None
    return state.period_s * studied.rounds_per_epoch


def _rounds(costs: IterationCosts, device: DeviceCosts) -> float:
    """Rounds of a device in the whole training; at free pace virtual time may end it before."""
    return costs.studied.num_rounds if costs.whole is None else costs.whole.rounds[device.device]


def _seconds_of(costs: IterationCosts, rounds: tuple[float, ...]) -> float | None:
    state = costs.steady_state
    if state is None:
        return None
    if costs.whole is not None:
        return max(costs.whole.end_s)
    return max(n * cycle.period_s for n, cycle in zip(rounds, state.devices, strict=True))


def _idle_j(device: DeviceCosts, wait_s: float, table: str) -> float:
    """Energy of a wait of so long; 0 without a profile."""
    if device.profile is None:
        return 0.0
    wait = Activity(work=Work(), sent_bytes=0, received_bytes=0, compute_s=0.0, wait_s=wait_s)
    return price(wait, device.profile, ENERGY_TABLES.get(table)).total_j


def _life(
    costs: IterationCosts,
    device: DeviceCosts,
    rounds: float,
    round_j: float,
    needed_j: float,
    leaves: Leaves | None,
) -> Life:
    assert device.profile is not None, "asked of devices with a battery"
    assert device.profile.battery_j is not None, "asked of devices with a battery"
    assert costs.steady_state is not None, "devices with profiles have clocks"
    battery_j, last_s = device.profile.battery_j, 0.0
    lasting = floor(battery_j / round_j)
    if leaves is not None:
        needed_j = max(needed_j, leaves.needed_j(round_j))
        lasting = max(floor(rounds), floor((battery_j - leaves.reserve_j) / round_j))
        if (before := leaves.rounds(battery_j, round_j)) is not None:
            lasting, last_s = before, leaves.last_s
    if needed_j > battery_j:
        lasting = min(lasting, floor(rounds))  # it may end after the last round
    return Life(
        device=device.device,
        battery_j=battery_j,
        needed_j=needed_j,
        rounds=lasting,
        seconds=costs.steady_state.end_s(device.device, lasting, last_s),
    )


def _seconds(life: Life) -> tuple[float, int]:
    return life.seconds, life.device
