"""When a device is awake that sleeps by a duty cycle and is absent by a plan besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from edgesim.hardware.duty_cycle import ROUNDING, DutyCycle


@dataclass(frozen=True, slots=True, kw_only=True)
class AwakeTimes:
    """A device that is absent does what one does that sleeps: nothing, until it is back.

    Its methods mean what those of `DutyCycle` mean.

    Attributes:
        cycle: when it is awake as long as it is there.
        next_absence: the first absence that ends after a time, by its begin and its end; infinite
            ones if there is none. Absences may overlap; of two the one that begins first counts.
    """

    cycle: DutyCycle
    next_absence: Callable[[float], tuple[float, float]]

    is_sleepless: ClassVar[bool] = False

    @property
    def awake_part(self) -> float:
        """Part of the time that it is awake while it is there."""
        return self.cycle.awake_part

    def rounding_s(self, time_s: float) -> float:
        """More than rounding can put a sum of waking times before or after its true value."""
        return self.cycle.rounding_s(time_s) + ROUNDING * abs(time_s)

    def awakening(self, time_s: float) -> float:
        """The time itself if the device is awake then, or else when it wakes up next."""
        while time_s < inf:
            time_s = self.cycle.awakening(time_s)
            from_s, until_s = self.next_absence(time_s)
            if time_s < from_s:
                return time_s
            time_s = until_s
        return inf

    def after(self, time_s: float, awake_s: float) -> float:
        """When `awake_s` seconds of awake time have passed since `time_s`."""
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
        """Spans from a time on in which the device is there."""
        while time_s < inf:
            from_s, until_s = self.next_absence(time_s)
            if time_s < from_s:
                yield time_s, from_s
            time_s = until_s
