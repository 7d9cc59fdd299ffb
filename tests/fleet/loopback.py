"""A network that hands everything to one host at once."""

from __future__ import annotations


class Loopback:
    """Set `host` before the host runs."""

    host = None

    async def deliver(self, envelope):
        return await self.host.deliver(envelope)

    async def take_announcement(self, announcement):
        await self.host.take_announcement(announcement)

    async def answer(self, request):
        await self.host.answer(request)
