"""When a device ends its rounds: the first ones by its clock, later ones reckoned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.duty_cycle import DutyCycle
from edgesim.hardware.timeline import Hardware


@dataclass(frozen=True, slots=True)
class RoundEnds:
    """Ends of the rounds of a device, of which sleep takes none or hours.

    Attributes:
        first_s: its clock at the end of each of its first rounds, as far as the clocks ran.
        sleep: its duty cycle, without absences.
    """

    first_s: Sequence[float]
    sleep: DutyCycle

    def end_s(self, rounds: int, *, period_s: float, awake_s: float) -> float:
        """Virtual time at which so many rounds have ended.

        Args:
            rounds: from the first one on; 0 for the beginning.
            period_s: of a later round, in the mean.
            awake_s: awake seconds of a later round, in the mean; they fill the duty cycle.
        """
        if rounds == 0:
            return 0.0
        if rounds <= len(self.first_s):
            return self.first_s[rounds - 1]
        last_s = self.first_s[-1] if self.first_s else 0.0
        later = rounds - len(self.first_s)
        if self.sleep.is_sleepless:
            return last_s + later * period_s
        return self.sleep.after(last_s, later * awake_s)


def ends_of(
    first_s: Sequence[Sequence[float]], hardware: Sequence[Hardware]
) -> dict[int, RoundEnds]:
    """When devices with a battery end their rounds.

    Args:
        first_s: ends of the first rounds of each device, by its clock.
        hardware: of each device.
    """
    return {
        device: RoundEnds(first_s[device], without_absences(own))
        for device, own in enumerate(hardware)
        if own.profile.battery_j is not None
    }


def without_absences(hardware: Hardware) -> DutyCycle:
    """Duty cycle of a device without its absences; in the steady state all devices are there."""
    cycle = hardware.duty_cycle
    return cycle.cycle if isinstance(cycle, AwakeTimes) else cycle
