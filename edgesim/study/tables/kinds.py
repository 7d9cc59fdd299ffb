"""Devices in words: by their names, and in kinds for tables that can't have a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgesim.study.iteration import DeviceCosts, IterationCosts
from edgesim.study.tables.units import plain

_MOST_RUNS = 4  # of device numbers, in a cell
_MOST_NAMES = 6  # of devices, in a cell


@dataclass(frozen=True, slots=True)
class Names:
    """How the devices of a fleet are called.

    Attributes:
        names: name of each device; empty where devices have numbers alone.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, costs: IterationCosts) -> Names:
        """Names of the devices of a scenario."""
        return cls(costs.studied.scenario.fleet.names)

    def one(self, device: int) -> str:
        """One device: `barn`, or `device 3`."""
        return self.names[device] if self.names else f"device {device}"

    def some(self, devices: Iterable[int], most: int = _MOST_NAMES) -> str:
        """Some devices: `attic, barn and 3 more`, or `devices 0-6`."""
        devices = sorted(set(devices))
        if not self.names:
            return f"device{'' if len(devices) == 1 else 's'} {_numbers(devices)}"
        return _listed([self.names[device] for device in devices], most)

    def link(self, sender: int, receiver: int) -> str:
        """A link in one direction: `shed -> barn`."""
        if self.names:
            return f"{self.names[sender]} -> {self.names[receiver]}"
        return f"device {sender} -> {receiver}"


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices of one profile with as many neighbours.

    Attributes:
        first: of these devices.
        members: all of them.
        names: names of the fleet's devices.
    """

    first: DeviceCosts
    members: tuple[DeviceCosts, ...]
    names: Names

    @property
    def who(self) -> str:
        """Their names or numbers."""
        return self.names.some(device.device for device in self.members)

    @property
    def heading(self) -> str:
        """Which devices they are, and what."""
        profile = self.first.profile
        return f"{self.who} ({profile.name})" if profile else self.who

    @property
    def messages(self) -> str:
        """Messages that each sends and takes in a round."""
        return f"{plain(self.first.messages_sent)} out, {plain(self.first.messages_received)} in"


def kinds_of(costs: IterationCosts) -> tuple[Kind, ...]:
    """Kinds of devices, in the order of their first ones."""
    found: dict[object, list[DeviceCosts]] = {}
    for device in costs.devices:
        found.setdefault((device.profile, device.degrees), []).append(device)
    names = Names.of(costs)
    return tuple(Kind(members[0], tuple(members), names) for members in found.values())


def _numbers(devices: Sequence[int]) -> str:
    """Increasing device numbers as text: runs of them, a few, and how many more."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_MOST_RUNS]]
    more = sum(b - a + 1 for a, b in runs[_MOST_RUNS:])
    return ", ".join(words) + (f" and {more} more" if more else "")


def _listed(names: Sequence[str], most: int) -> str:
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return ", ".join(names)
