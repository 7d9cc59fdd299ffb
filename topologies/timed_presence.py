"""Who is there at which time, where devices have clocks of their own instead of common rounds.

A device is away from the start until it joins, during absences as planned and by chance, and for
good after it has left. All of it is a pure function of device and time: every device knows the plan
of every other, as all know the schedule.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Any, TypeAlias

import numpy as np

from topologies.churn_entries import check_devices, check_overlaps, entries_by_device
from topologies.errors import TopologyError

TimeSpan: TypeAlias = tuple[float, float]
"""Seconds from which on a device is away, and at which it is back."""

NEVER: TimeSpan = (inf, inf)
"""The next absence of a device that is never away again."""

_FIRST_DRAWS = 16  # absences by chance that are drawn at once
MOST_DRAWS = 2**19  # of a device: 8 MB, and half a second to walk through


@dataclass(frozen=True, slots=True)
class TimedAbsence:
    """A device is away for a while: from `from_s`, back at `until_s`."""

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
    """A device takes part from this time on, above 0."""

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
    """Absences of random lengths, of each device by itself; they follow from seed and device alone.

    Lengths of absences and of stays are exponential. A device is absent for a share of the time,
    and is so at the start with that probability.

    Args:
        absence_probability: share of the time in which a device is absent, in (0, 1).
        mean_absence_s: mean length of an absence in seconds, above 0.
        seed: at least 0.

    Raises:
        TopologyError: a figure out of range; later, if somebody asks for a time before which a
            device has more than `MOST_DRAWS` absences.
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
            TopologyError: the device has had too many by then.
        """
        changes = self._drawn.get(device, array("d"))
        while not changes or changes[-1] <= time_s:
            if len(changes) >= 2 * MOST_DRAWS:
                raise TopologyError(
                    f"mean_absence_s is {self.mean_absence_s:g}: device {device} is absent more "
                    f"than {MOST_DRAWS:,} times before {time_s:,.4g} s; raise it, or lower "
                    "absence_probability, or end the run earlier"
                )
            # From the start again, twice as many: the answer does not depend on who asked before,
            # in which order, or in how many threads at once.
            changes = self._draw(device, max(_FIRST_DRAWS, len(changes)))  # two for each absence
            self._drawn[device] = changes
        return _next_span(changes, time_s)

    def _draw(self, device: int, num_absences: int) -> array[float]:
        """Times at which a device goes and comes back, in turn."""
        p, mean_s = self.absence_probability, self.mean_absence_s
        begins_absent = _generator(self.seed, device, 0).random() < p
        # Streams of their own, so that longer rows begin like shorter ones.
        absences = mean_s * _generator(self.seed, device, 1).exponential(size=num_absences)
        stays = _generator(self.seed, device, 2).exponential(size=num_absences)
        stays *= mean_s * (1 - p) / p
        if begins_absent:
            stays = np.concatenate(([0.0], stays[:-1]))
        return array("d", np.cumsum(np.column_stack((stays, absences)).ravel()).tobytes())


_Entry: TypeAlias = TimedAbsence | TimedJoining | TimedLeaving


@dataclass(frozen=True)
class TimedChurn:
    """Absences, joins and leaves by time, as planned, and absences by chance.

    Args:
        num_devices: of the fleet.
        absences: of any devices.
        joins: one for a device at most.
        leaves: likewise.
        chance: of further absences; None if there are none.

    Raises:
        TopologyError: an unknown device, a span that ends before it begins, two entries of one
            device that overlap, or nobody who neither joins later nor leaves.
    """

    num_devices: int
    absences: tuple[TimedAbsence, ...] = ()
    joins: tuple[TimedJoining, ...] = ()
    leaves: tuple[TimedLeaving, ...] = ()
    chance: TimedRandomAbsence | None = None

    def __post_init__(self) -> None:
        entries: tuple[_Entry, ...] = (*self.absences, *self.joins, *self.leaves)
        check_devices(entries, self.num_devices)
        for entry in entries:
            _check_times(entry)
        check_overlaps(self._entries)
        for device, own in self._entries.items():
            if self.join_s(device) == self.leave_s(device):
                raise TopologyError(
                    f"device {device} {own[-1]}, when it joins; let it stay for a while, or remove "
                    "it"
                )
        if len(self._join_s | self._leave_s) == self.num_devices:
            raise TopologyError(
                f"each of the {self.num_devices} devices joins later or leaves; one must be of the "
                "fleet from start to end, so that there is always a model"
            )

    def is_present(self, device: int, time_s: float) -> bool:
        """Whether others can send to a device at a time."""
        return self.next_absence(device, time_s)[0] > time_s and time_s < self.leave_s(device)

    def join_s(self, device: int) -> float:
        """When a device takes part for the first time; 0 if it is there from the start."""
        return self._join_s.get(device, 0.0)

    def leave_s(self, device: int) -> float:
        """When a device leaves for good; infinity if it stays."""
        return self._leave_s.get(device, inf)

    def next_absence(self, device: int, time_s: float) -> TimeSpan:
        """The first absence of a device, or the time before it joins, that ends after a time.

        Of a planned one and one by chance that overlap, the one that begins first.
        """
        planned = _next_span(self._away.get(device, ()), time_s)
        if self.chance is None:
            return planned
        return min(planned, self.chance.next_absence(device, time_s))

    @cached_property
    def _entries(self) -> dict[int, list[_Entry]]:
        """Entries of each device by their begin."""
        every: tuple[_Entry, ...] = (*self.joins, *self.absences, *self.leaves)
        return entries_by_device(every)

    @cached_property
    def _away(self) -> dict[int, tuple[float, ...]]:
        """Times at which each device goes and comes back, in turn."""
        away: dict[int, tuple[float, ...]] = {}
        for device, own in self._entries.items():
            spans = [entry.away for entry in own if not isinstance(entry, TimedLeaving)]
            away[device] = tuple(time_s for span in spans for time_s in span)
        return away

    @cached_property
    def _join_s(self) -> dict[int, float]:
        return {entry.device: entry.at_s for entry in self.joins}

    @cached_property
    def _leave_s(self) -> dict[int, float]:
        return {entry.device: entry.at_s for entry in self.leaves}


def build_timed_churn(
    num_devices: int,
    *,
    seed: int,
    absent: Iterable[Mapping[str, Any]] = (),
    joins: Iterable[Mapping[str, Any]] = (),
    leaves: Iterable[Mapping[str, Any]] = (),
    random: Mapping[str, Any] | None = None,
) -> TimedChurn:
    """Build churn from a scenario's words, which are the arguments of the classes above.

    Raises:
        TopologyError: it can't be; see `TimedChurn` and `TimedRandomAbsence`.
    """
    return TimedChurn(
        num_devices,
        tuple(TimedAbsence(**words) for words in absent),
        tuple(TimedJoining(**words) for words in joins),
        tuple(TimedLeaving(**words) for words in leaves),
        TimedRandomAbsence(**random, seed=seed) if random is not None else None,
    )


def _next_span(changes: Sequence[float], time_s: float) -> TimeSpan:
    """The first span that ends after a time, of spans given by their begins and ends in turn."""
    place = bisect_right(changes, time_s)
    begin = place - place % 2
    return (changes[begin], changes[begin + 1]) if begin < len(changes) else NEVER


def _check_times(entry: _Entry) -> None:
    start_s, end_s = entry.away
    if not (start_s >= 0 and end_s > start_s) or (isinstance(entry, TimedLeaving) and start_s == 0):
        raise TopologyError(
            f"device {entry.device} {entry}; absences must end after they begin, joins and leaves "
            "be later than 0 s"
        )


def _generator(seed: int, device: int, use: int) -> np.random.Generator:
    entropy = np.random.SeedSequence(seed, spawn_key=(device, use))
    return np.random.Generator(np.random.PCG64(entropy))
