"""Groups of equal devices of a fleet, for tables that cannot have a row per device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgesim.study.iteration import DeviceCosts, IterationCosts
from edgesim.study.tables.units import plain

_MOST_RUNS = 4  # of device numbers, in a cell


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices with one profile and equal numbers of messages.

    Attributes:
        first: of these devices.
        members: all of them.
    """

    first: DeviceCosts
    members: tuple[DeviceCosts, ...]

    @property
    def numbers(self) -> str:
        """Their numbers as text."""
        return numbers(device.device for device in self.members)

    @property
    def heading(self) -> str:
        """Numbers and profile of the devices, as text."""
        profile = self.first.profile
        return f"{self.numbers} {profile.name}" if profile else f"devices {self.numbers}"

    @property
    def messages(self) -> str:
        """Messages that each sends and takes in a round."""
        return f"{plain(self.first.messages_sent)} out, {plain(self.first.messages_received)} in"


def kinds_of(costs: IterationCosts) -> tuple[Kind, ...]:
    """Kinds of devices, in the order of their first ones."""
    found: dict[object, list[DeviceCosts]] = {}
    for device in costs.devices:
        key = device.profile, device.messages_sent, device.messages_received
        found.setdefault(key, []).append(device)
    return tuple(Kind(members[0], tuple(members)) for members in found.values())


def numbers(devices: Iterable[int]) -> str:
    """Device numbers as text: a few ranges, then the number of further devices."""
    runs: list[list[int]] = []
    for device in sorted(set(devices)):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_MOST_RUNS]]
    more = sum(b - a + 1 for a, b in runs[_MOST_RUNS:])
    return ", ".join(words) + (f" and {more} more" if more else "")
