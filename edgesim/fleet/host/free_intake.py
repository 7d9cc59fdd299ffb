"""Intake of messages at free pace: those that have arrived by the device's virtual clock."""

from __future__ import annotations

import asyncio

from edgesim.device.mail import Announcement, Arrival, LifeSign
from edgesim.device.membership import Edge
from edgesim.device.pace import Free
from edgesim.fleet.transport.liveness import LifeSigns
from edgesim.fleet.transport.mailbox import WINDOW
from edgesim.fleet.transport.time_bounds import Inbox
from edgesim.hardware.timeline import Stamp


class FreeIntake:
    """The inbox of one device: senders wait for room, the device waits for messages.

    Args:
        pace: of the device.
        presumed_dead_after_s: time without a life sign of a receiver; see liveness.py.

    Attributes:
        mailbox: messages and time bounds that have arrived.
    """

    def __init__(self, pace: Free, presumed_dead_after_s: float) -> None:
        self.mailbox = Inbox(pace.index, pace.possible_in_edges())
        self._pace = pace
        self._life_signs = LifeSigns(pace.index, pace.mortal_receivers, presumed_dead_after_s)
        self._changed = asyncio.Event()
        self._is_waiting = False

    @property
    def missing(self) -> list[Edge]:
        """Edges whose time bounds or life signs the device waits for."""
        if not self._is_waiting:
            return []
        return sorted({*self.mailbox.waiting_for(), *self._unknown()})

    @property
    def told_by_receivers(self) -> list[Edge]:
        """Edges on which receivers send life signs to the device."""
        return self._life_signs.edges

    def has_room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> bool:
        """Whether there is room for a message."""
        assert stamp is not None, "at free pace every message has a stamp"
        return self._pace.has_died or self.mailbox.has_room(edge, sequence, stamp, WINDOW)

    async def room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> None:
        """Wait until there is room for a message."""
        while not self.has_room(edge, sequence, stamp):
            await self._changed.wait()

    def put(self, arrival: Arrival) -> None:
        """Keep a message; ignore a repeated one.

        Raises:
            BrokenBoundError: the message arrives before the time bound of its sender.
        """
        if not self._pace.has_died and self.mailbox.put(arrival):
            self._notify()

    def take_announcement(self, announcement: Announcement) -> None:
        """Keep a time bound or a life sign."""
        if isinstance(announcement, LifeSign):
            is_new = self._life_signs.take(announcement)
        else:
            is_new = self.mailbox.take_bound(announcement)
        if is_new:
            self._notify()

    def end(self) -> None:
        """Close the intake after the last round of the device.

        If the device has died, messages that it has not absorbed are lost, and so are later ones;
        no sender waits any more.
        """
        if self._pace.has_died:
            self.mailbox.empty()
            self._notify()

    def leave(self) -> list[Arrival]:
        """Forward nothing: at free pace a leaver has no successor for its edges."""
        return []

    def end_step(self) -> None:
        """Note that the device's step has ended, and advance to its time."""
        self.mailbox.advance(self._pace.now_s)
        self._notify()

    async def before_sending(self) -> None:
        """Receive the messages that a half-duplex radio has to receive before it can send."""
        await self._know_until(self._pace.now_s)
        self._pace.listen(self.mailbox.within_reach())

    async def collect(self) -> list[Arrival]:
        """Wait until all messages that the device must absorb now are known, and take them."""
        await self._know_until(self._pace.known_until_s)
        self._pace.presume_dead(self._life_signs.presumed_dead(self._pace.now_s))
        arrivals = self.mailbox.take(self._pace.arrived(self.mailbox.within_reach()))
        self._notify()
        return arrivals

    async def _know_until(self, time_s: float) -> None:
        self.mailbox.advance(time_s)
        self._is_waiting = True
        self._notify()
        while not self.mailbox.is_ready() or self._unknown():
            await self._changed.wait()
        self._is_waiting = False

    def _unknown(self) -> list[Edge]:
        """Edges of receivers about which more life signs are needed."""
        return self._life_signs.unknown(self._pace.now_s)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
