"""Intake of messages in lockstep: one round at a time, from bounded queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from edgesim.device.mail import Announcement, Arrival
from edgesim.device.membership import Edge, HandoverNotes
from edgesim.device.pace import Lockstep
from edgesim.errors import EdgesimError
from edgesim.fleet.transport.mailbox import Mailbox
from edgesim.hardware.timeline import Stamp


class OutOfStepError(EdgesimError):
    """A message belongs to another round than the current one."""


class LockstepIntake:
    """The mailbox of one device: senders wait for room, the device waits for messages.

    Args:
        pace: of the device.
        on_inheritance: called when the device has taken the place of others.

    Attributes:
        mailbox: what has arrived.
    """

    def __init__(self, pace: Lockstep, on_inheritance: Callable[[], None]) -> None:
        self.mailbox = Mailbox()
        self._pace = pace
        self._on_inheritance = on_inheritance
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._wanted: Sequence[Edge] = ()
        self._has_left = False

    @property
    def told_by_receivers(self) -> list[Edge]:
        """Empty: in lockstep there are no life signs."""
        return []

    @property
    def missing(self) -> list[Edge]:
        """Edges whose next message the device waits for."""
        return [edge for edge in self._wanted if not self.mailbox.has_next_of([edge])]

    def has_room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> bool:  # noqa: ARG002
        """Whether there is room for a message, or it has to be forwarded."""
        return self._has_left or self.mailbox.has_room(edge, sequence)

    async def room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> None:
        """Wait until there is room for a message, or until it has to be forwarded."""
        while not self.has_room(edge, sequence, stamp):
            await self._taken.wait()

    def put(self, arrival: Arrival) -> None:
        """Keep a message; ignore a repeated one."""
        if self.mailbox.put(arrival):
            self._arrived.set()

    def take_announcement(self, announcement: Announcement) -> None:
        """In lockstep no device announces anything."""
        raise OutOfStepError(
            f"an announcement of device {announcement.edge[0]} came to a fleet in lockstep"
        )

    def leave(self) -> list[Arrival]:
        """Return all messages, in the order of edges and sequences; end all waiting."""
        self._has_left = True
        self._notify_senders()
        return self.mailbox.empty()

    def end(self) -> None:
        """The device has done its last round: nothing to do, since nothing more is sent to it."""

    def end_step(self) -> None:
        """The device's step has ended: nothing to do."""

    async def before_sending(self) -> None:
        """Do nothing: in lockstep a device can send at once."""

    async def collect(self) -> list[Arrival]:
        """Wait until the next message of every in-edge of the round is here, and take them.

        After a handover, messages to the leaver belong to the round, too.

        Raises:
            OutOfStepError: a message is of another round.
        """
        pace, arrivals = self._pace, list[Arrival]()
        edges = pace.in_edges()
        while edges:
            taken = await self._take(edges)
            messages = [arrival.message for arrival in taken]
            for message in messages:
                if message.kind == "handover":
                    notes = HandoverNotes.from_numbers(message.notes)
                    mail = {e: seq for e, seq in notes.sequences.items() if e[1] in notes.addresses}
                    self.mailbox.take_over(mail)
                elif message.kind == "share" and message.round_index != pace.round_index:
                    raise OutOfStepError(
                        f"device {pace.index} in round {pace.round_index} received a message "
                        f"of round {message.round_index} from device {message.sender}"
                    )
            arrivals += taken
            edges = pace.take_note(messages)
            if any(message.kind == "handover" for message in messages):
                self._on_inheritance()
        return arrivals

    async def _take(self, edges: Sequence[Edge]) -> list[Arrival]:
        """Wait for one message on each edge, or several where an edge occurs several times."""
        if len(set(edges)) < len(edges):
            return [taken for edge in edges for taken in await self._take([edge])]
        self._wanted = edges
        while not self.mailbox.has_next_of(edges):
            self._arrived.clear()
            await self._arrived.wait()
        self._wanted = ()
        taken = self.mailbox.take_next_of(edges)
        self._notify_senders()
        return taken

    def _notify_senders(self) -> None:
        self._taken.set()
        self._taken = asyncio.Event()
