"""Real hosts with their threads and files, on a network that delays, repeats and damages envelopes.

tests/faults has more kinds of faults, on hosts in simulated time.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from small_fleets import prepared

from edgesim.assembly.build import PLAIN
from edgesim.fleet.host.build import build_host
from edgesim.fleet.plan import FleetPlan
from edgesim.results.run_directory import RunDirectory


class FaultyNetwork:
    """Carries envelopes between hosts of one event loop, badly, by a seeded script."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.hosts = {}
        self.tasks = set()

    async def deliver(self, envelope):
        await asyncio.sleep(self.random.random() * 0.01)
        host = self.hosts[envelope.to]
        if self.random.random() < 0.2:
            damaged = bytearray(envelope.data)
            damaged[self.random.randrange(len(damaged))] ^= 1 << self.random.randrange(8)
            return await host.deliver(replace(envelope, data=bytes(damaged)))
        if self.random.random() < 0.3:
            task = asyncio.create_task(self._repeat(host, envelope))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        return await host.deliver(envelope)

    async def answer(self, request):
        await asyncio.sleep(self.random.random() * 0.01)
        await self.hosts[request.holder].answer(request)

    async def _repeat(self, host, envelope):
        # Some come again when the receiver is rounds further.
        await asyncio.sleep(self.random.random() * self.random.choice([0.02, 0.02, 0.5]))
        await host.deliver(envelope)


def run_hosts(folder, seed, groups, *overrides):
    """Run the small fleet on several hosts over a faulty network; final x of each device."""
    folder.mkdir()
    ready = prepared(folder, *overrides)
    directory = RunDirectory.create(folder / "run")
    plan = FleetPlan(
        ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, directory.place
    )
    shards, network = ready.shards(), FaultyNetwork(seed)

    async def conduct():
        hosts = []
        for group in groups:
            own = {device: shards[device] for device in group}
            host = build_host(plan, own, network, num_threads=1)
            network.hosts.update(dict.fromkeys(group, host))
            hosts.append(host)
        await asyncio.gather(*(host.run() for host in hosts))

    asyncio.run(asyncio.wait_for(conduct(), 120))
    last = ready.training.num_rounds
    return [directory.read_snapshot(last, device).x.numpy() for device in range(len(shards))]
