"""What a host refuses, and how it says so; tests/faults has what it survives."""

from __future__ import annotations

import asyncio

import pytest
from loopback import Loopback
from small_fleets import prepared

from edgesim.assembly import PLAIN, FleetPlan
from edgesim.fleet.build import build_host
from edgesim.fleet.network import Receipt
from edgesim.fleet.post_office import DeliveryError
from edgesim.fleet.run_directory import RunDirectory
from edgesim.mail import Letter
from edgesim.trainer import DivergedError


def plan_of(ready, folder):
    return FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, folder)


def test_a_letter_that_is_always_refused_ends_the_run_with_its_edge_named(tmp_path):
    class Refusing(Loopback):
        async def post(self, letter):
            return Receipt(accepted=False)

    ready = prepared(tmp_path)
    plan = plan_of(ready, RunDirectory.create(tmp_path / "run").place)

    async def conduct():
        shards = dict(enumerate(ready.shards()))
        await build_host(plan, shards, Refusing(), num_threads=1).run()

    with pytest.raises(DeliveryError, match=r"device \d refused message 0 of device \d 20 times"):
        asyncio.run(asyncio.wait_for(conduct(), 60))


def test_divergence_names_device_round_and_remedy(tmp_path):
    ready = prepared(tmp_path, "training.optimizer.lr=1.0e+20", "training.rounds=20")
    plan = plan_of(ready, RunDirectory.create(tmp_path / "run").place)

    async def conduct():
        network = Loopback()
        shards = dict(enumerate(ready.shards()))
        network.host = build_host(plan, shards, network, num_threads=1)
        await network.host.run()

    with pytest.raises(DivergedError, match=r"device \d diverged in round \d+.*lower training"):
        asyncio.run(asyncio.wait_for(conduct(), 60))


def test_a_host_refuses_what_is_no_message_and_what_is_not_for_it(tmp_path):
    ready = prepared(tmp_path)
    plan = plan_of(ready, tmp_path)

    async def conduct():
        shards = ready.shards()
        host = build_host(plan, {0: shards[0]}, Loopback(), num_threads=1)
        other = build_host(plan, {1: shards[1]}, Loopback(), num_threads=1)
        nonsense = Letter((3, 0), 0, b"nonsense", None, 0)
        assert await host.deliver(nonsense) == Receipt(accepted=False)
        device = next(iter(other._devices.values()))
        [letter] = other._turns.first(device, other._records[1])
        assert letter.to == 2
        assert await host.deliver(letter) == Receipt(accepted=False)

    asyncio.run(conduct())
