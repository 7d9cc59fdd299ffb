"""What entries of churn have in common, whether they count rounds or seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from topologies.errors import TopologyError


class Entry(Protocol):
    """An absence, a join or a leave of a device; `str` gives a description for messages."""

    @property
    def device(self) -> int:
        """Number of the device."""

    @property
    def away(self) -> tuple[float, float]:
        """When the device goes, and when it is back."""


AnyEntry = TypeVar("AnyEntry", bound=Entry)


def entries_by_device(entries: Iterable[AnyEntry]) -> dict[int, list[AnyEntry]]:
    """Entries of each device, in the order in which they begin."""
    found: dict[int, list[AnyEntry]] = {}
    for entry in entries:
        found.setdefault(entry.device, []).append(entry)
    for own in found.values():
        own.sort(key=lambda entry: entry.away[0])
    return found


def check_devices(entries: Iterable[Entry], num_devices: int) -> None:
    """Refuse an entry of a device that the fleet does not have.

    Raises:
        TopologyError: there is one.
    """
    for entry in entries:
        if not 0 <= entry.device < num_devices:
            raise TopologyError(
                f"device {entry.device} {entry}, but there is no such device; there are 0 to "
                f"{num_devices - 1}"
            )


def check_overlaps(entries: Mapping[int, Sequence[Entry]]) -> None:
    """Refuse overlapping entries of one device.

    Args:
        entries: of each device, as `entries_by_device` gives them.

    Raises:
        TopologyError: there are such.
    """
    for device, own in entries.items():
        for one, other in pairwise(own):
            if other.away[0] < one.away[1]:
                raise TopologyError(
                    f"device {device} {one} and {other}: the two overlap; change one of them"
                )
