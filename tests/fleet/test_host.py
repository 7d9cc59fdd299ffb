"""Hosts on a network that delays, reorders, repeats and damages letters end with the same bits."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
from small_fleets import prepared

from edgesim.assembly import PLAIN, FleetPlan
from edgesim.device import DivergedError
from edgesim.fleet.host import DeliveryError, build_host
from edgesim.fleet.run_directory import RunDirectory
from edgesim.mail import Letter


class FaultyNetwork:
    """Carries letters between hosts of one event loop, badly, by a seeded script."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.hosts = {}
        self.tasks = set()

    async def post(self, letter: Letter) -> bool:
        await asyncio.sleep(self.random.random() * 0.01)
        host = self.hosts[letter.receiver]
        if self.random.random() < 0.2:
            damaged = bytearray(letter.data)
            damaged[self.random.randrange(len(damaged))] ^= 1 << self.random.randrange(8)
            return await host.deliver(bytes(damaged), letter.stamp, letter.receiver)
        if self.random.random() < 0.3:
            task = asyncio.create_task(self._repeat(host, letter))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        return await host.deliver(letter.data, letter.stamp, letter.receiver)

    async def _repeat(self, host, letter):
        # Some come again when the receiver is rounds further.
        await asyncio.sleep(self.random.random() * self.random.choice([0.02, 0.02, 0.5]))
        await host.deliver(letter.data, letter.stamp, letter.receiver)


def run_hosts(folder, seed, groups, monkeypatch, *overrides):
    """Run the small fleet on several hosts over a faulty network; final x of each device."""
    # With a fifth of the letters damaged, three attempts are not always enough.
    monkeypatch.setattr("edgesim.fleet.host.POST_ATTEMPTS", 30)
    folder.mkdir()
    ready = prepared(folder, *overrides)
    directory = RunDirectory.create(folder / "run")
    plan = FleetPlan(
        ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, directory.path
    )
    shards, network = ready.shards(), FaultyNetwork(seed)

    async def conduct():
        hosts = []
        for group in groups:
            own = {device: shards[device] for device in group}
            host = build_host(plan, own, network.post, num_threads=1)
            network.hosts.update(dict.fromkeys(group, host))
            hosts.append(host)
        await asyncio.gather(*(host.run() for host in hosts))

    asyncio.run(asyncio.wait_for(conduct(), 120))
    last = ready.training.num_rounds
    return [directory.read_snapshot(last, device).x.numpy() for device in range(len(shards))]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("topology.kind=random_matching", "gossip.algorithm=deepsqueeze"),
        ("topology.kind=exponential", "fleet.devices=5"),
    ],
    ids=["ring", "matching", "exponential"],
)
def test_faults_of_the_network_do_not_change_a_bit(tmp_path, monkeypatch, overrides):
    n = 5 if "fleet.devices=5" in overrides else 4
    packings = [[list(range(n))], [[i] for i in range(n)], [[0, 2], [1, *range(3, n)]]]
    ends = [
        run_hosts(tmp_path / str(seed), seed, groups, monkeypatch, *overrides)
        for seed, groups in enumerate(packings)
    ]
    for end in ends[1:]:
        for device in range(n):
            np.testing.assert_array_equal(end[device], ends[0][device])


def test_a_letter_that_is_always_refused_ends_the_run_with_its_edge_named(tmp_path):
    ready = prepared(tmp_path)
    directory = RunDirectory.create(tmp_path / "run")
    plan = FleetPlan(
        ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, directory.path
    )

    async def refuse(letter):
        return False

    async def conduct():
        await build_host(plan, dict(enumerate(ready.shards())), refuse, num_threads=1).run()

    with pytest.raises(DeliveryError, match=r"device \d refused message 0 of device \d 3 times"):
        asyncio.run(asyncio.wait_for(conduct(), 60))


def test_divergence_names_device_round_and_remedy(tmp_path):
    ready = prepared(tmp_path, "training.optimizer.lr=1.0e+20", "training.rounds=20")
    directory = RunDirectory.create(tmp_path / "run")
    plan = FleetPlan(
        ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, directory.path
    )

    async def conduct():
        async def post(letter):
            return await host.deliver(letter.data, letter.stamp, letter.receiver)

        host = build_host(plan, dict(enumerate(ready.shards())), post, num_threads=1)
        await host.run()

    with pytest.raises(DivergedError, match=r"device \d diverged in round \d+.*lower training"):
        asyncio.run(asyncio.wait_for(conduct(), 60))


def test_a_host_refuses_what_is_no_message_and_what_is_not_for_it(tmp_path):
    ready = prepared(tmp_path)
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, tmp_path)

    async def post(letter):
        raise AssertionError("nothing is posted here")

    async def conduct():
        shards = ready.shards()
        host = build_host(plan, {0: shards[0]}, post, num_threads=1)
        other = build_host(plan, {1: shards[1]}, post, num_threads=1)
        assert await host.deliver(b"nonsense", None, 0) is False
        device = next(iter(other._devices.values()))
        [letter] = device.train(other._models.get())
        assert letter.receiver == 2
        assert await host.deliver(letter.data, letter.stamp, letter.receiver) is False

    asyncio.run(conduct())
