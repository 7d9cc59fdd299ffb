"""The whole training of a fleet: how many rounds, how long, bytes, energy, batteries.

All figures follow from the costs of an iteration. They are those of devices that stay to the end:
a battery that ends before is told of, and takes nothing away from the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from edgesim.study.iteration import DeviceCosts, IterationCosts


@dataclass(frozen=True, slots=True)
class Life:
    """A battery, and what the training asks of it.

    Attributes:
        device: number of the device.
        battery_j: energy of the full battery.
        needed_j: energy that the device spends in the whole training.
        rounds: whole rounds that the battery pays for.
        seconds: virtual time that these rounds take.
    """

    device: int
    battery_j: float
    needed_j: float
    rounds: int
    seconds: float

    @property
    def used(self) -> float:
        """Share of the charge that the training takes; above 1 the battery ends before."""
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
        epoch_s: virtual time of an epoch of the slowest device; None without profiles.
        sent_bytes: bytes that each device sends, without packets that are sent again.
        energy_j: joules that each device spends, by the scenario's price list.
        lives: batteries of the devices that have one.
    """

    rounds: tuple[float, ...]
    seconds: float | None
    epoch_s: float | None
    sent_bytes: tuple[float, ...]
    energy_j: tuple[float, ...]
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
    studied, state, table = costs.studied, costs.steady_state, costs.energy_table
    rounds = tuple(_rounds(costs, device) for device in costs.devices)
    energies = [device.energy_by(table).total_j for device in costs.devices]
    needed = tuple(n * energy_j for n, energy_j in zip(rounds, energies, strict=True))
    sent = tuple(n * device.sent_bytes for n, device in zip(rounds, costs.devices, strict=True))
    return Training(
        rounds=rounds,
        seconds=_seconds_of(costs, rounds),
        epoch_s=state.period_s * studied.rounds_per_epoch if state else None,
        sent_bytes=sent,
        energy_j=needed,
        lives=tuple(
            _life(device, n, energy_j)
            for device, n, energy_j in zip(costs.devices, rounds, energies, strict=True)
            if device.profile is not None and device.profile.battery_j is not None
        ),
    )


def _rounds(costs: IterationCosts, device: DeviceCosts) -> float:
    """Rounds of a device in the whole training; at free pace virtual time may end it before."""
    most, limit_s = costs.studied.num_rounds, costs.studied.scenario.training.virtual_time_s
    if limit_s is None or device.time is None:
        return most
    return min(most, limit_s / device.time.cycle.period_s)


def _seconds_of(costs: IterationCosts, rounds: tuple[float, ...]) -> float | None:
    state = costs.steady_state
    if state is None:
        return None
    return max(n * cycle.period_s for n, cycle in zip(rounds, state.devices, strict=True))


def _life(device: DeviceCosts, rounds: float, round_j: float) -> Life:
    assert device.profile is not None, "asked of devices with a battery"
    assert device.profile.battery_j is not None, "asked of devices with a battery"
    assert device.time is not None, "devices with profiles have clocks"
    battery_j = device.profile.battery_j
    lasting = floor(battery_j / round_j)
    return Life(
        device=device.device,
        battery_j=battery_j,
        needed_j=rounds * round_j,
        rounds=lasting,
        seconds=lasting * device.time.cycle.period_s,
    )


def _seconds(life: Life) -> tuple[float, int]:
    return life.seconds, life.device
