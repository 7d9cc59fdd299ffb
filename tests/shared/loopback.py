"""A network that hands everything to one host at once."""

from __future__ import annotations

import asyncio

from edgesim.fleet.host.host import Host
from edgesim.fleet.host.recorder import EvaluationSchedule


class Loopback:
    """Set `host` before the host runs."""

    host = None

    async def deliver(self, envelope):
        return await self.host.deliver(envelope)

    async def take_announcement(self, announcement):
        await self.host.take_announcement(announcement)

    async def answer(self, request):
        await self.host.answer(request)


def run_in_one_host(devices, model, archive, num_rounds):
    """Run devices to their end in a host without Ray; `model` is lent to one at a time."""

    async def conduct():
        network = Loopback()
        host = Host(
            devices,
            [model],
            network=network,
            archive=archive,
            num_rounds=num_rounds,
            evaluation_schedule=EvaluationSchedule(()),
        )
        network.host = host
        await host.run()

    asyncio.run(asyncio.wait_for(conduct(), 200))
