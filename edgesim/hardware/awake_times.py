"""Times at which a device with a duty cycle and absences is awake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from edgesim.hardware.duty_cycle import ROUNDING, DutyCycle


@dataclass(frozen=True, slots=True, kw_only=True)
class AwakeTimes:
    """Times at which a device is awake. An absent device does nothing until it is back.

    The methods have the meaning of those of `DutyCycle`.

    Attributes:
        cycle: duty cycle of the device while it is there.
        next_absence: returns begin and end of the first absence that ends after a given time, both
            infinite without one. Of overlapping absences the one that begins first counts.
    """

    cycle: DutyCycle
    next_absence: Callable[[float], tuple[float, float]]

    is_sleepless: ClassVar[bool] = False

    @property
    def awake_part(self) -> float:
        """Part of the time for which the device is awake while it is there."""
        return self.cycle.awake_part

    def rounding_s(self, time_s: float) -> float:
        """Bound on the rounding error of a sum of waking times."""
        return self.cycle.rounding_s(time_s) + ROUNDING * abs(time_s)

    def awakening(self, time_s: float) -> float:
        """The first time, not before the given one, at which the device is awake."""
        while time_s < inf:
            time_s = self.cycle.awakening(time_s)
            from_s, until_s = self.next_absence(time_s)
            if time_s < from_s:
                return time_s
            time_s = until_s
        return inf

    def after(self, time_s: float, awake_s: float) -> float:
        """Time at which the device has been awake for `awake_s` seconds since `time_s`."""
        for start_s, end_s in self._stays(time_s):
            if end_s == inf:
                return self.cycle.after(start_s, awake_s)
            there_s = self.cycle.awake_between(start_s, end_s)
            if there_s > 0 and awake_s <= there_s:
                return min(self.cycle.after(start_s, awake_s), end_s)
            awake_s -= there_s
        return inf

    def awake_between(self, start_s: float, end_s: float) -> float:
        """Awake seconds between two times."""
        total_s = 0.0
        for from_s, until_s in self._stays(start_s):
            if from_s >= end_s:
                break
            total_s += self.cycle.awake_between(from_s, min(until_s, end_s))
        return total_s

    def _stays(self, time_s: float) -> Iterator[tuple[float, float]]:
        """Spans of time from `time_s` on in which the device is present."""
        while time_s < inf:
            from_s, until_s = self.next_absence(time_s)
            if time_s < from_s:
                yield time_s, from_s
            time_s = until_s
