"""Sends envelopes until their receivers accept them: again if refused, later without an answer.

Each edge has few envelopes under way at a time. A receiver without room answers once it has room,
so a slow device slows its senders, and no queue grows without bound. What a device of the same
process can take at once needs no task: a task takes longer than the message.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TypeAlias

from edgesim.device.mail import Announcement, Envelope, LifeSign, TimeBound
from edgesim.device.membership import Edge
from edgesim.errors import EdgesimError
from edgesim.fleet.recovery.message_log import MessageLog
from edgesim.fleet.transport.network import Acknowledgement, Network, PeerUnavailableError

DELIVERY_ATTEMPTS = 20  # of a refused envelope: an intact one arrives sooner or later
MAX_IN_FLIGHT = 8  # envelopes on one edge whose acceptance is not known yet
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0  # between attempts to reach a peer


Spawn: TypeAlias = Callable[[Coroutine[None, None, None]], object]
"""Starts a coroutine in the background."""

AtOnce: TypeAlias = Callable[[Envelope], Acknowledgement | None]
"""Brings an envelope to its device and returns the answer, or None if that takes time."""

_Topic: TypeAlias = tuple[type[TimeBound] | type[LifeSign], Edge]
"""Kind and edge of an announcement: a newer one replaces an older one."""


class DeliveryError(EdgesimError):
    """An envelope was refused at its receiver every time it was sent."""


class ReliableSender:
    """Sends the envelopes of one host until each is accepted.

    Args:
        network: that carries them.
        at_once: brings an envelope to a device of this host without waiting; None as its result
            if that is impossible, and then the network carries the envelope.
    """

    def __init__(self, network: Network, at_once: AtOnce = lambda _: None) -> None:
        self._network = network
        self._at_once = at_once
        self._slots: defaultdict[Edge, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_IN_FLIGHT)
        )
        self._announced: dict[_Topic, Announcement] = {}
        self._unsaid: dict[_Topic, Announcement] = {}

    async def send(
        self, envelopes: Iterable[Envelope], log: MessageLog, tasks: asyncio.TaskGroup
    ) -> list[asyncio.Task[Acknowledgement]]:
        """Send envelopes; wait while too many envelopes of an edge are under way.

        Args:
            envelopes: to be sent.
            log: gets the numbers up to which receivers no longer need envelopes.
            tasks: that run until the envelopes have arrived.

        Returns:
            Those tasks, of envelopes that have not arrived yet.
        """

        def begin(envelope: Envelope, slot: asyncio.Semaphore) -> asyncio.Task[Acknowledgement]:
            task = tasks.create_task(self.deliver(envelope, log))
            task.add_done_callback(lambda _: slot.release())
            return task

        on_their_way, late = [], []
        for envelope in envelopes:
            # A restarted receiver requests the time bound again; in lockstep there is none.
            if envelope.stamp is not None and envelope.stamp.bound_s > 0:
                self._announced[TimeBound, envelope.edge] = TimeBound(
                    envelope.edge, envelope.sequence + 1, envelope.stamp.bound_s
                )
            acknowledgement = self._at_once(envelope)
            if acknowledgement is not None:
                log.cover(envelope.edge, acknowledgement.covered)
                continue
            slot = self._slots[envelope.edge]
            if slot.locked():
                late.append(envelope)  # the others must not wait for this one
            else:
                await slot.acquire()
                on_their_way.append(begin(envelope, slot))
        for envelope in late:
            slot = self._slots[envelope.edge]
            await slot.acquire()
            on_their_way.append(begin(envelope, slot))
        return on_their_way

    def announce(self, announcements: Iterable[Announcement], tasks: Spawn) -> None:
        """Bring the newest time bounds and life signs to their receivers; returns at once."""
        for announcement in announcements:
            topic = type(announcement), announcement.edge
            is_under_way = topic in self._unsaid
            self._unsaid[topic] = self._announced[topic] = announcement
            if not is_under_way:
                tasks(self._say(topic))

    def announce_again(self, edge: Edge, tasks: Spawn) -> None:
        """Repeat the newest time bound and life sign of an edge, if they have information.

        In lockstep there are none.
        """
        for kind in (TimeBound, LifeSign):
            newest = self._announced.get((kind, edge))
            if newest is not None and _says_something(newest):
                # Sent as a new announcement: a late answer may be from the process that was lost.
                self.announce([replace(newest)], tasks)

    async def _say(self, topic: _Topic) -> None:
        pause_s = FIRST_PAUSE_S
        while topic in self._unsaid:
            announcement = self._unsaid[topic]
            try:
                await self._network.take_announcement(announcement)
            except PeerUnavailableError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                if self._unsaid[topic] is announcement:
                    del self._unsaid[topic]

    async def send_again(self, envelopes: Iterable[Envelope], log: MessageLog) -> None:
        """Send old envelopes one by one; envelopes under way may have to wait for them."""
        for envelope in envelopes:
            await self.deliver(envelope, log)

    async def deliver(self, envelope: Envelope, log: MessageLog | None = None) -> Acknowledgement:
        """Send one envelope until it is accepted.

        Args:
            envelope: to be sent.
            log: of its sender, if this host has it: gets the number that is acknowledged.

        Raises:
            DeliveryError: it is refused again and again.
        """
        pause_s, refusals = FIRST_PAUSE_S, 0
        while refusals < DELIVERY_ATTEMPTS:
            try:
                acknowledgement = await self._network.deliver(envelope)
            except PeerUnavailableError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if acknowledgement.accepted:
                if log is not None:
                    log.cover(envelope.edge, acknowledgement.covered)
                return acknowledgement
            refusals += 1
        raise DeliveryError(
            f"device {envelope.to} refused message {envelope.sequence} of device "
            f"{envelope.edge[0]} {DELIVERY_ATTEMPTS} times; its log says why"
        )


def _says_something(announcement: Announcement) -> bool:
    """Whether an announcement differs from what is known at the start."""
    if isinstance(announcement, TimeBound):
        return announcement.earliest_s > 0
    return announcement.has_died or announcement.alive_until_s > 0
