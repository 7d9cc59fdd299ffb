"""A network that delays, repeats, reorders and damages what it carries, and loses its answers.

Hosts on it die at any moment, with all that they were about to do, and come back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

from edgesim.fleet.transport.network import EnvelopesLostError, PeerUnavailableError


@dataclass(frozen=True)
class Faults:
    """Probabilities, of each thing that is carried, and the longest delay."""

    damage: float = 0.0
    repeat: float = 0.0
    lose: float = 0.0
    lose_answer: float = 0.0
    longest_delay_s: float = 0.01


class Node:
    """A process on the network, that may be down."""

    def __init__(self):
        self.host = None
        self.tasks = set()

    def up(self, host):
        self.host = host

    def down(self):
        """What the process was doing ends with it, whether it is in the middle or not."""
        self.host = None
        for task in self.tasks:
            task.cancel()
        self.tasks = set()

    async def call(self, method, *args):
        """Call a method of the host; the caller learns if the process dies meanwhile."""
        if self.host is None:
            raise PeerUnavailableError("down")
        task = asyncio.create_task(getattr(self.host, method)(*args))
        self.tasks.add(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self.tasks.discard(task)
        if task.cancelled():
            raise PeerUnavailableError("died")
        return task.result()


class FaultyNetwork:
    """The network as one process sees it; what was under way from it dies with it.

    Args:
        nodes: by device, of the whole fleet.
        faults: how bad it is.
        random: decides.
    """

    def __init__(self, nodes, faults, random):
        self.nodes = nodes
        self.faults = faults
        self.random = random
        self.loose = set()

    async def deliver(self, envelope):
        on_wire = replace(envelope, origin=None)  # in another process it has to be decoded

        async def carry():
            return await self._carry(envelope.to, "deliver", self._damaged(on_wire))

        return await self._do(carry)

    async def take_announcement(self, announcement):
        await self._do(lambda: self._carry(announcement.edge[1], "take_announcement", announcement))

    async def answer(self, request):
        await self._do(lambda: self._carry(request.holder, "answer", request))

    async def _do(self, carry):
        if self._happens(self.faults.repeat):
            task = asyncio.create_task(self._later(carry))
            self.loose.add(task)
            task.add_done_callback(self.loose.discard)
        if self._happens(self.faults.lose):
            await self._delay()
            raise PeerUnavailableError("lost")
        answer = await carry()
        await self._delay()
        if self._happens(self.faults.lose_answer):
            raise PeerUnavailableError("the answer was lost")
        return answer

    async def _carry(self, device, method, *args):
        await self._delay()
        return await self.nodes[device].call(method, *args)

    async def _later(self, carry):
        """A copy that comes much later, maybe to a process that was started anew."""
        await asyncio.sleep(self.random.random() * 30 * self.faults.longest_delay_s)
        with suppress(PeerUnavailableError, EnvelopesLostError):
            await carry()

    def _damaged(self, envelope):
        if not self._happens(self.faults.damage):
            return envelope
        data = bytearray(envelope.data)
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return replace(envelope, data=bytes(data))

    async def _delay(self):
        await asyncio.sleep(self.random.random() * self.faults.longest_delay_s)

    def _happens(self, probability):
        return self.random.random() < probability
