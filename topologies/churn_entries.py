"""What churn by rounds and churn by seconds have in common: planned entries and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np

from topologies.errors import TopologyError

Moment = TypeVar("Moment", bound=float)
"""A round, or a time in seconds."""

Moment_co = TypeVar("Moment_co", bound=float, covariant=True)


class Entry(Protocol[Moment_co]):
    """An absence, a join or a leave of a device; `str` gives a description for messages."""

    @property
    def device(self) -> int:
        """Number of the device."""

    @property
    def away(self) -> tuple[Moment_co, Moment_co]:
        """When the device goes, and when it is back."""


class PlannedChurn(Generic[Moment]):
    """Planned absences, joins and leaves of devices.

    Attributes:
        LATER: what the moments of joins and leaves must be, for messages.
        num_devices: number of devices of the fleet.
        absences: planned absences.
        joins: planned joins, at most one for each device.
        leaves: planned leaves, at most one for each device.
    """

    LATER: ClassVar[str]

    num_devices: int
    absences: tuple[Entry[Moment], ...]
    joins: tuple[Entry[Moment], ...]
    leaves: tuple[Entry[Moment], ...]

    def _check_entries(self) -> None:
        """Refuse what can't be, and entries of one device that contradict each other.

        Raises:
            TopologyError: an unknown device, a span that ends before it begins, two entries of one
                device that overlap, or a device that leaves when it joins.
        """
        for entry in (*self.absences, *self.joins, *self.leaves):
            if not 0 <= entry.device < self.num_devices:
                raise TopologyError(
                    f"device {entry.device} {entry}, but there is no such device; there are 0 to "
                    f"{self.num_devices - 1}"
                )
            start, end = entry.away
            if not (start >= 0 and end > start) or (start == 0 and entry in self.leaves):
                raise TopologyError(
                    f"device {entry.device} {entry}; absences must end after they begin, joins and "
                    f"leaves be {self.LATER}"
                )
        for device, own in self._entries.items():
            for one, other in pairwise(own):
                if other.away[0] < one.away[1]:
                    raise TopologyError(
                        f"device {device} {one} and {other}: the two overlap; change one of them"
                    )
            if device in self._joins and self._joins[device] == self._leaves.get(device):
                raise TopologyError(
                    f"device {device} {own[-1]}, when it joins; let it stay for a while, or remove "
                    "it"
                )

    @cached_property
    def _entries(self) -> dict[int, list[Entry[Moment]]]:
        """Entries of each device, in the order in which they begin."""
        return _by_device((*self.joins, *self.absences, *self.leaves))

    @cached_property
    def _away(self) -> dict[int, tuple[Moment, ...]]:
        """When each device goes away and comes back, alternating; without leaves."""
        entries = _by_device((*self.joins, *self.absences))
        return {
            device: tuple(moment for entry in own for moment in entry.away)
            for device, own in entries.items()
        }

    @cached_property
    def _joins(self) -> dict[int, Moment]:
        return {entry.device: entry.away[1] for entry in self.joins}

    @cached_property
    def _leaves(self) -> dict[int, Moment]:
        return {entry.device: entry.away[0] for entry in self.leaves}


def generator_of(seed: int, device: int, use: int) -> np.random.Generator:
    """Random numbers for a use by the random absences of a device."""
    entropy = np.random.SeedSequence(seed, spawn_key=(device, use))
    return np.random.Generator(np.random.PCG64(entropy))


def _by_device(entries: Iterable[Entry[Moment]]) -> dict[int, list[Entry[Moment]]]:
    found: dict[int, list[Entry[Moment]]] = {}
    for entry in entries:
        found.setdefault(entry.device, []).append(entry)
    for own in found.values():
        own.sort(key=lambda entry: entry.away[0])
    return found
