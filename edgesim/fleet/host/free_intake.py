"""How a device takes in its messages at free pace: what has arrived by its own virtual clock."""

from __future__ import annotations

import asyncio

from edgesim.device.free_device import FreeDevice
from edgesim.device.mail import Arrival, LifeSign, Promise
from edgesim.device.membership import Edge
from edgesim.fleet.transport.liveness import LifeSigns
from edgesim.fleet.transport.mailbox import WINDOW
from edgesim.fleet.transport.promises import Inbox
from edgesim.hardware.timeline import Stamp


class FreeIntake:
    """The inbox of one device, for senders that wait for room and a device that waits to know.

    Args:
        device: whose it is.
        inbox: what has come.
        life_signs: of those that it sends to.
    """

    def __init__(self, device: FreeDevice, inbox: Inbox, life_signs: LifeSigns) -> None:
        self._device = device
        self._inbox = inbox
        self._life_signs = life_signs
        self._has_died = False
        self._changed = asyncio.Event()
        self._is_waiting = False

    @property
    def missing(self) -> list[Edge]:
        """Edges whose promises or life signs the device waits for."""
        if not self._is_waiting:
            return []
        return sorted({*self._inbox.waiting_for(), *self._unknown()})

    @property
    def told_by_receivers(self) -> list[Edge]:
        """Edges on which the device is told whether its receivers are alive."""
        return self._life_signs.edges

    async def room(self, edge: Edge, sequence: int, stamp: Stamp | None) -> None:
        """Wait until a message may come in."""
        assert stamp is not None, "at free pace every message has a stamp"
        while not (self._has_died or self._inbox.has_room(edge, sequence, stamp, WINDOW)):
            await self._changed.wait()

    def put(self, arrival: Arrival) -> None:
        """Keep a message; one that was here before changes nothing.

        Raises:
            BrokenPromiseError: its sender had promised that it would not come so early.
        """
        if not self._has_died and self._inbox.put(arrival):
            self._notify()

    def take_promise(self, promise: Promise | LifeSign) -> None:
        """Keep a promise or a life sign."""
        if isinstance(promise, LifeSign):
            is_new = self._life_signs.take(promise)
        else:
            is_new = self._inbox.take_promise(promise)
        if is_new:
            self._notify()

    def die(self) -> None:
        """What is here and not absorbed is lost, and so is all that comes; no sender waits."""
        self._has_died = True
        self._inbox.empty()
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
        self._device.presume_dead(self._life_signs.presumed_dead(self._device.now_s))
        arrivals = self._inbox.take(self._device.arrived(self._inbox.within_reach()))
        self._notify()
        return arrivals

    async def _know_until(self, time_s: float) -> None:
        self._inbox.advance(time_s)
        self._is_waiting = True
        self._notify()
        while not self._inbox.is_ready() or self._unknown():
            await self._changed.wait()
        self._is_waiting = False

    def _unknown(self) -> list[Edge]:
        """Edges of receivers that may have to be presumed dead."""
        return self._life_signs.unknown(self._device.now_s)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
