"""The seam between a host and how a device takes in its messages; one intake for each pace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from edgesim.device.device import Device
from edgesim.device.mail import Announcement, Arrival
from edgesim.device.membership import Edge
from edgesim.device.pace import PaceName
from edgesim.fleet.host.free_intake import FreeIntake
from edgesim.fleet.host.lockstep_intake import LockstepIntake
from edgesim.fleet.transport.mailbox import Mailbox
from edgesim.fleet.transport.time_bounds import Inbox
from edgesim.hardware.timeline import Stamp


class Intake(Protocol):
    """The mailbox of one device, for senders that wait for room and a device that waits for mail.

    In each round: `end_step`; where the device listens first, `before_sending`; then `collect`.
    """

    @property
    def mailbox(self) -> Mailbox | Inbox:
        """Messages that have come and are not yet absorbed."""
        ...

    @property
    def missing(self) -> list[Edge]:
        """Edges on which something is not here that the device waits for."""
        ...

    @property
    def told_by_receivers(self) -> list[Edge]:
        """Edges on which receivers of the device tell it whether they are alive."""
        ...

    async def room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> None:
        """Wait until a message may come in, or has to be forwarded."""
        ...

    def put(self, arrival: Arrival) -> None:
        """Keep a message; one that was here before changes nothing."""
        ...

    def take_announcement(self, announcement: Announcement) -> None:
        """Keep what another device announces."""
        ...

    def end_step(self) -> None:
        """The device's step has ended."""
        ...

    async def before_sending(self) -> None:
        """Wait until all is known that decides when the device can send."""
        ...

    async def collect(self) -> list[Arrival]:
        """Wait until all is known that the device has to absorb now, and take it."""
        ...

    def end(self) -> None:
        """The device has done its last round, and no other answers for it."""
        ...

    def leave(self) -> list[Arrival]:
        """Another device answers for this one: hand out everything, to be forwarded."""
        ...


def make_intake(
    device: Device, *, on_inheritance: Callable[[], None], presumed_dead_after_s: float
) -> Intake:
    """The intake that fits a device's pace.

    Args:
        device: whose messages come in.
        on_inheritance: called when the device has taken the place of others; in lockstep.
        presumed_dead_after_s: of a device whose battery is empty; at free pace.
    """
    made: Mapping[PaceName, Callable[[Any], Intake]] = {
        "lockstep": lambda pace: LockstepIntake(pace, on_inheritance),
        "free": lambda pace: FreeIntake(pace, presumed_dead_after_s),
    }
    return made[device.pace.name](device.pace)
