"""Times at which a device is awake: always, or for a part of each period."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

ROUNDING = 1e-9  # relative; far above the rounding error of sums of times and periods


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyCycle:
    """Awake for the first part of each period, asleep for the rest.

    Work that is not done when the device falls asleep goes on when it wakes up.

    Attributes:
        period_s: time from one awakening to the next.
        awake_s: awake time in each period, above 0 and at most `period_s`.
        offset_s: begin of one of the periods; there are periods before and after it without end.
    """

    period_s: float
    awake_s: float
    offset_s: float

    @property
    def is_sleepless(self) -> bool:
        """Whether the device never sleeps; times are then exact, without sums of periods."""
        return self.awake_s == self.period_s

    @property
    def awake_part(self) -> float:
        """Part of the time for which the device is awake."""
        return self.awake_s / self.period_s

    def rounding_s(self, time_s: float) -> float:
        """Bound on the rounding error of a sum of waking times."""
        if self.is_sleepless:
            return 0.0
        return ROUNDING * (abs(time_s) + abs(self.offset_s) + self.period_s)

    def awakening(self, time_s: float) -> float:
        """The first time, not before the given one, at which the device is awake."""
        if self.is_sleepless:
            return time_s
        period, into_s = self._place(time_s)
        return time_s if into_s < self.awake_s else self._start_s(period + 1)

    def after(self, time_s: float, awake_s: float) -> float:
        """Time at which the device has been awake for `awake_s` seconds since `time_s`."""
        if self.is_sleepless:
            return time_s + awake_s
        period, into_s = self._place(time_s)
        if into_s >= self.awake_s:
            period, into_s = period + 1, 0.0
        elif awake_s <= self.awake_s - into_s:
            return time_s + awake_s
        # Work that exactly fills the rest of a waking time ends with it, not in the next period.
        total_s = into_s + awake_s
        periods = max(ceil(total_s / self.awake_s) - 1, 0)
        return self._start_s(period + periods) + (total_s - periods * self.awake_s)

    def awake_between(self, start_s: float, end_s: float) -> float:
        """Awake seconds between two times."""
        if self.is_sleepless:
            return end_s - start_s
        return self._awake_before(end_s) - self._awake_before(start_s)

    def _awake_before(self, time_s: float) -> float:
        """Awake seconds from `offset_s` until a time; negative before it."""
        period, into_s = self._place(time_s)
        return period * self.awake_s + min(into_s, self.awake_s)

    def _place(self, time_s: float) -> tuple[int, float]:
        """Number of the period that holds a time, and seconds since it began."""
        period = floor((time_s - self.offset_s) / self.period_s)
        # Divisions round: the start of a period must not fall into the one before.
        period += time_s >= self._start_s(period + 1)
        return period, time_s - self._start_s(period)

    def _start_s(self, period: int) -> float:
        return self.offset_s + period * self.period_s


ALWAYS_AWAKE = DutyCycle(period_s=1.0, awake_s=1.0, offset_s=0.0)
"""A device that never sleeps."""
