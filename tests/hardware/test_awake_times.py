"""Devices that sleep and are absent: the same as a long list of waking times."""

from __future__ import annotations

from bisect import bisect_right
from math import inf

import numpy as np
import pytest

from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle

CYCLE = DutyCycle(period_s=10.0, awake_s=4.0, offset_s=1.0)


def times(cycle: DutyCycle, *absences: tuple[float, float]) -> AwakeTimes:
    def next_absence(time_s: float) -> tuple[float, float]:
        return next((a for a in sorted(absences) if a[1] > time_s), (inf, inf))

    return AwakeTimes(cycle=cycle, next_absence=next_absence)


def test_work_goes_on_when_the_device_is_back():
    away = times(ALWAYS_AWAKE, (3.0, 5.0), (8.0, 10.0))
    assert away.after(1.0, 1.5) == 2.5
    assert away.after(1.0, 2.0) == 3.0, "done as it goes"
    assert away.after(1.0, 2.5) == 5.5
    assert away.after(3.0, 1.0) == away.after(4.0, 1.0) == 6.0
    assert away.after(1.0, 5.5) == 10.5
    assert [away.awakening(t) for t in (2.0, 3.0, 4.9, 5.0)] == [2.0, 5.0, 5.0, 5.0]
    assert away.awake_between(1.0, 11.0) == 6.0
    assert away.awake_between(3.0, 5.0) == 0.0
    assert away.awake_between(4.0, 4.5) == 0.0


def test_sleep_and_absence_together():
    """Awake from 1 to 5, 11 to 15, 21 to 25; away from 3 to 12."""
    both = times(CYCLE, (3.0, 12.0))
    assert both.awakening(0.0) == 1.0
    assert both.awakening(3.5) == 12.0
    assert both.after(1.0, 3.0) == 13.0
    assert both.after(0.0, 2.0) == 3.0
    assert both.after(4.0, 4.0) == 22.0
    assert both.awake_between(0.0, 22.0) == 2 + 3 + 1


@pytest.mark.parametrize("seed", range(40))
def test_equals_a_list_of_waking_times(seed):
    """By quarter seconds, whose sums are exact; absences may overlap."""
    rng = np.random.default_rng(seed)
    cycle = ALWAYS_AWAKE
    if seed % 2:
        period_s = int(rng.integers(4, 40)) / 4
        awake_s = int(rng.integers(1, 4 * period_s)) / 4
        cycle = DutyCycle(period_s=period_s, awake_s=awake_s, offset_s=int(rng.integers(0, 9)) / 4)
    starts = np.sort(rng.integers(0, 200, 6)) / 4
    spans = [(float(s), float(s) + int(rng.integers(1, 30)) / 4) for s in starts]
    both = times(cycle, *spans)
    ticks = [t / 4 for t in range(4000)]
    awake = [
        t
        for t in ticks
        if cycle.awakening(t) == t and not any(start <= t < end for start, end in spans)
    ]
    for at in rng.integers(0, 300, 20) / 4:
        first = bisect_right(awake, at - 0.25)
        assert both.awakening(float(at)) == awake[first]
        for quarters in (1, 2, int(rng.integers(3, 60))):
            assert both.after(float(at), quarters / 4) == awake[first + quarters - 1] + 0.25
        until = float(at) + int(rng.integers(0, 100)) / 4
        assert both.awake_between(float(at), until) == sum(at <= t < until for t in awake) / 4


def test_a_device_that_never_comes_back_is_never_awake():
    gone = times(ALWAYS_AWAKE, (3.0, inf))
    assert gone.awakening(4.0) == inf
    assert gone.after(1.0, 3.0) == inf
