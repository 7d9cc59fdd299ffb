"""Presence of devices by virtual time, for fleets without common rounds.

A device is away until it joins, during planned and random absences, and after it has left. Presence
is a pure function of device and time, so every device knows the presence of every other device, as
it knows the schedule.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, ClassVar, TypeAlias

import numpy as np

from topologies.churn_entries import PlannedChurn, generator_of
from topologies.errors import TopologyError

TimeSpan: TypeAlias = tuple[float, float]
"""Time from which on a device is away, and time at which it is back, in seconds."""

NEVER: TimeSpan = (inf, inf)
"""The next absence of a device that is never away again."""

_FIRST_DRAWS = 16  # random absences that are drawn at first
MOST_DRAWS = 2**19  # random absences of one device; they take 8 MB


@dataclass(frozen=True, slots=True)
class TimedAbsence:
    """An absence of a device from `from_s` until `until_s`, in seconds."""

    device: int
    from_s: float
    until_s: float

    def __str__(self) -> str:
        return f"is absent from {self.from_s:g} s until {self.until_s:g} s"

    @property
    def away(self) -> TimeSpan:
        """Seconds without the device."""
        return self.from_s, self.until_s


@dataclass(frozen=True, slots=True)
class TimedJoining:
    """A device joins at this time, above 0."""

    device: int
    at_s: float

    def __str__(self) -> str:
        return f"joins at {self.at_s:g} s"

    @property
    def away(self) -> TimeSpan:
        """Seconds without the device."""
        return 0.0, self.at_s


@dataclass(frozen=True, slots=True)
class TimedLeaving:
    """A device leaves for good at this time, above 0."""

    device: int
    at_s: float

    def __str__(self) -> str:
        return f"leaves at {self.at_s:g} s"

    @property
    def away(self) -> TimeSpan:
        """Seconds without the device."""
        return self.at_s, inf


@dataclass(frozen=True)
class TimedRandomAbsence:
    """Random absences of each device, which depend on seed and device alone.

    Lengths of absences and of stays are exponential. At the start a device is absent with
    probability `absence_probability`.

    Args:
        absence_probability: share of the time in which a device is absent, in (0, 1).
        mean_absence_s: mean length of an absence in seconds, above 0.
        seed: seed of the scenario, at least 0.

    Raises:
        TopologyError: a figure is out of range. `next_absence` raises it too, for a time before
            which a device has more than `MOST_DRAWS` absences.
    """

    absence_probability: float
    mean_absence_s: float
    seed: int
    _drawn: dict[int, array[float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not 0 < self.absence_probability < 1:
            raise TopologyError(
                f"absence_probability is {self.absence_probability:g}; must be above 0 and below 1"
            )
        if not (isfinite(self.mean_absence_s) and self.mean_absence_s > 0):
            raise TopologyError(f"mean_absence_s is {self.mean_absence_s:g}; must be above 0")

    def next_absence(self, device: int, time_s: float) -> TimeSpan:
        """The first absence of a device that ends after a time.

        Raises:
            TopologyError: the device has more than `MOST_DRAWS` absences before that time.
        """
        changes = self._drawn.get(device, array("d"))
        while not changes or changes[-1] <= time_s:
            if len(changes) >= 2 * MOST_DRAWS:
                raise TopologyError(
                    f"mean_absence_s is {self.mean_absence_s:g}: device {device} is absent more "
                    f"than {MOST_DRAWS:,} times before {time_s:,.4g} s; raise it, or lower "
                    "absence_probability, or end the run earlier"
                )
            # Draw twice as many from the start again, so that the answer does not depend on earlier
            # calls, on their order, or on other threads.
            changes = self._draw(device, max(_FIRST_DRAWS, len(changes)))  # two for each absence
            self._drawn[device] = changes
        return _next_span(changes, time_s)

    def _draw(self, device: int, num_absences: int) -> array[float]:
        """Times at which a device goes away and comes back, alternating."""
        p, mean_s = self.absence_probability, self.mean_absence_s
        begins_absent = generator_of(self.seed, device, 0).random() < p
        # Absences and stays have separate streams, so that a longer draw begins like a shorter one.
        absences = mean_s * generator_of(self.seed, device, 1).exponential(size=num_absences)
        stays = generator_of(self.seed, device, 2).exponential(size=num_absences)
        stays *= mean_s * (1 - p) / p
        if begins_absent:
            stays = np.concatenate(([0.0], stays[:-1]))
        return array("d", np.cumsum(np.column_stack((stays, absences)).ravel()).tobytes())


@dataclass(frozen=True)
class TimedChurn(PlannedChurn[float]):
    """Planned absences, joins and leaves by time, and random absences.

    Args:
        num_devices: number of devices of the fleet.
        absences: planned absences.
        joins: planned joins, at most one for each device.
        leaves: planned leaves, at most one for each device.
        chance: random absences; None without them.

    Raises:
        TopologyError: an unknown device, a span that ends before it begins, two entries of one
            device that overlap, or no device that is there from start to end.
    """

    LATER: ClassVar[str] = "later than 0 s"

    num_devices: int
    absences: tuple[TimedAbsence, ...] = ()
    joins: tuple[TimedJoining, ...] = ()
    leaves: tuple[TimedLeaving, ...] = ()
    chance: TimedRandomAbsence | None = None

    def __post_init__(self) -> None:
        self._check_entries()
        if len(self._joins | self._leaves) == self.num_devices:
            raise TopologyError(
                f"each of the {self.num_devices} devices joins later or leaves; one must be of the "
                "fleet from start to end, so that there is always a model"
            )

    def is_present(self, device: int, time_s: float) -> bool:
        """Whether a device is present at a time, so that others can send to it."""
        return self.next_absence(device, time_s)[0] > time_s and time_s < self.leave_s(device)

    def join_s(self, device: int) -> float:
        """Time at which a device joins; 0 if it is there from the start."""
        return self._joins.get(device, 0.0)

    def leave_s(self, device: int) -> float:
        """Time at which a device leaves for good; infinity if it stays."""
        return self._leaves.get(device, inf)

    def next_absence(self, device: int, time_s: float) -> TimeSpan:
        """The first absence of a device that ends after a time.

        The time before a device joins is an absence. Of a planned and a random absence that overlap
        the one that begins first counts.
        """
        planned = _next_span(self._away.get(device, ()), time_s)
        if self.chance is None:
            return planned
        return min(planned, self.chance.next_absence(device, time_s))


def build_timed_churn(
    num_devices: int,
    *,
    seed: int,
    absent: Iterable[Mapping[str, Any]] = (),
    joins: Iterable[Mapping[str, Any]] = (),
    leaves: Iterable[Mapping[str, Any]] = (),
    random: Mapping[str, Any] | None = None,
) -> TimedChurn:
    """Build churn from the keys of a scenario, which are the arguments of the classes above.

    Raises:
        TopologyError: as for `TimedChurn` and `TimedRandomAbsence`.
    """
    return TimedChurn(
        num_devices,
        tuple(TimedAbsence(**words) for words in absent),
        tuple(TimedJoining(**words) for words in joins),
        tuple(TimedLeaving(**words) for words in leaves),
        TimedRandomAbsence(**random, seed=seed) if random is not None else None,
    )


def _next_span(changes: Sequence[float], time_s: float) -> TimeSpan:
    """The first span that ends after a time; `changes` are begins and ends, alternating."""
    place = bisect_right(changes, time_s)
    begin = place - place % 2
    return (changes[begin], changes[begin + 1]) if begin < len(changes) else NEVER
