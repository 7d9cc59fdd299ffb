"""How a device takes in its messages at free pace: what has arrived by its own virtual clock."""

from __future__ import annotations

import asyncio

from edgesim.fleet.mailbox import WINDOW
from edgesim.fleet.promises import Inbox
from edgesim.free_device import FreeDevice
from edgesim.hardware.timeline import Stamp
from edgesim.mail import Arrival, Promise
from edgesim.membership import Edge


class FreeIntake:
    """The inbox of one device, for senders that wait for room and a device that waits to know.

    Args:
        device: whose it is.
        inbox: what has come.
    """

    def __init__(self, device: FreeDevice, inbox: Inbox) -> None:
        self._device = device
        self._inbox = inbox
        self._changed = asyncio.Event()
        self._is_waiting = False

    @property
    def missing(self) -> list[Edge]:
        """Edges whose promises the device waits for."""
        return self._inbox.waiting_for() if self._is_waiting else []

    async def room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> None:
        """Wait until a message may come in."""
        assert stamp is not None, "at free pace every message has a stamp"
        while not self._inbox.has_room(edge, sequence, stamp, WINDOW):
            await self._changed.wait()

    def put(self, arrival: Arrival) -> None:
        """Keep a message; one that was here before changes nothing.

        Raises:
            BrokenPromiseError: its sender had promised that it would not come so early.
        """
        if self._inbox.put(arrival):
            self._notify()

    def take_promise(self, promise: Promise) -> None:
        """Keep a promise."""
        if self._inbox.take_promise(promise):
            self._notify()

    def leave(self) -> list[Arrival]:
        """Hand out everything."""
        self._notify()
        return self._inbox.empty()

    def end_step(self) -> None:
        """The device's step has ended, and so it has reached that time."""
        self._inbox.advance(self._device.now_s)
        self._notify()

    async def before_sending(self) -> None:
        """Let a radio that does one thing at a time take in what comes before it can send."""
        await self._know_until(self._device.now_s)
        self._device.listen(self._inbox.within_reach())

    async def collect(self) -> list[Arrival]:
        """Wait until all is known that the device has to absorb now, and take it."""
        await self._know_until(self._device.known_until_s)
        arrivals = self._inbox.take(self._device.arrived(self._inbox.within_reach()))
        self._notify()
        return arrivals

    async def _know_until(self, time_s: float) -> None:
        self._inbox.advance(time_s)
        self._is_waiting = True
        self._notify()
        while not self._inbox.is_ready():
            await self._changed.wait()
        self._is_waiting = False

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
