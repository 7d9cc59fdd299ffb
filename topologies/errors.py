"""Errors of this package."""

from __future__ import annotations

from collections.abc import Sequence


class TopologyError(ValueError):
    """A graph, file or option that cannot work: what is wrong, where, and what would be right."""


class OtherDevicesError(TopologyError):
    """A file names more or fewer devices than the fleet has.

    Attributes:
        path: of the file.
        names: of its devices.
    """

    def __init__(self, path: object, said: str, names: Sequence[str], num_devices: int) -> None:
        super().__init__(
            f"{path}: {said} {len(names)} devices, but the fleet has {num_devices}; "
            f"set fleet.devices: {len(names)}"
        )
        self.path = path
        self.names = tuple(names)
