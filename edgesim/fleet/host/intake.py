"""The seam between a host and the intake of messages of a device; paces.py names both intakes."""

from __future__ import annotations

from typing import Protocol

from edgesim.device.mail import Announcement, Arrival
from edgesim.device.membership import Edge
from edgesim.fleet.transport.mailbox import Mailbox
from edgesim.fleet.transport.time_bounds import Inbox
from edgesim.hardware.timeline import Stamp


class Intake(Protocol):
    """The mailbox of one device: senders wait for room, the device waits for messages.

    In each round: `end_step`; where the device listens first, `before_sending`; then `collect`.
    """

    @property
    def mailbox(self) -> Mailbox | Inbox:
        """Messages that have come and are not yet absorbed."""
        ...

    @property
    def missing(self) -> list[Edge]:
        """Edges on which the device waits for a message or an announcement."""
        ...

    @property
    def told_by_receivers(self) -> list[Edge]:
        """Edges on which receivers of the device send it life signs."""
        ...

    def has_room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> bool:
        """Whether there is room for a message, or it has to be forwarded."""
        ...

    async def room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> None:
        """Wait until there is room for a message, or until it has to be forwarded."""
        ...

    def put(self, arrival: Arrival) -> None:
        """Keep a message; ignore a repeated one."""
        ...

    def take_announcement(self, announcement: Announcement) -> None:
        """Keep what another device announces."""
        ...

    def end_step(self) -> None:
        """Note that the device's step has ended."""
        ...

    async def before_sending(self) -> None:
        """Wait until the time at which the device can send is known."""
        ...

    async def collect(self) -> list[Arrival]:
        """Wait until all messages that the device must absorb now are known, and take them."""
        ...

    def end(self) -> None:
        """Close the intake after the last round of a device without successor."""
        ...

    def leave(self) -> list[Arrival]:
        """Return all messages, to be forwarded to the successor of the device."""
        ...
