"""What a host refuses, and how it says so, and its turns; tests/faults has what it survives."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest
from loopback import Loopback
from small_fleets import prepared

from edgesim.assembly.build import PLAIN
from edgesim.device.mail import Envelope
from edgesim.device.trainer import DivergedError
from edgesim.fleet.host.build import build_host
from edgesim.fleet.host.reliable_sender import DeliveryError, ReliableSender
from edgesim.fleet.host.turns import MOST_ROUNDS
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recovery.message_log import MessageLog
from edgesim.fleet.transport.network import Acknowledgement
from edgesim.results.run_directory import RunDirectory


def plan_of(ready, folder):
    return FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, folder)


def test_an_envelope_that_is_always_refused_ends_the_run_with_its_edge_named(tmp_path):
    class Refusing(Loopback):
        async def deliver(self, envelope):
            return Acknowledgement(accepted=False)

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
        nonsense = Envelope((3, 0), 0, b"nonsense", None, 0)
        assert await host.deliver(nonsense) == Acknowledgement(accepted=False)
        device = next(iter(other._devices.values()))
        [envelope] = other._turns.first(device, other._records[1])
        assert envelope.to == 2
        assert await host.deliver(envelope) == Acknowledgement(accepted=False)

    asyncio.run(conduct())


def test_devices_of_one_host_get_each_others_messages_without_the_network(tmp_path):
    class Unused(Loopback):
        async def deliver(self, envelope):
            raise AssertionError(f"{envelope.edge} went by the network")

    ready = prepared(tmp_path)
    plan = plan_of(ready, RunDirectory.create(tmp_path / "run").place)

    async def conduct():
        shards = dict(enumerate(ready.shards()))
        host = build_host(plan, shards, Unused(), num_threads=1, at_once=True)
        await host.run()
        return host.progress()

    progress = asyncio.run(asyncio.wait_for(conduct(), 60))
    assert progress.rounds_done == ready.scenario.fleet.num_devices * ready.training.num_rounds
    assert all(device.received_bytes > 0 for device in progress.devices)


def test_devices_are_told_of_once_they_are_restored(tmp_path):
    """Else a run that is gone on with would seem to begin at round 0."""
    ready = prepared(tmp_path)
    plan = plan_of(ready, RunDirectory.create(tmp_path / "run").place)

    async def conduct():
        network, shards = Loopback(), dict(enumerate(ready.shards()))
        network.host = build_host(plan, shards, network, num_threads=1, recover=True)
        assert network.host.progress().devices == ()
        await network.host.run()
        assert len(network.host.progress().devices) == len(shards)

    asyncio.run(asyncio.wait_for(conduct(), 60))


def test_what_cannot_be_taken_at_once_goes_by_the_network():
    """The others are acknowledged at once, and covered."""
    came = []

    class Noting(Loopback):
        async def deliver(self, envelope):
            came.append(envelope.sequence)
            return Acknowledgement(accepted=True, covered=2)

    def at_once(envelope):
        return Acknowledgement(accepted=True, covered=1) if envelope.sequence == 0 else None

    async def conduct():
        log = MessageLog(lambda _: pytest.fail("nothing is sealed"))
        envelopes = [Envelope((0, 1), sequence, bytes(200), None, 1) for sequence in range(3)]
        async with asyncio.TaskGroup() as tasks:
            under_way = await ReliableSender(Noting(), at_once).send(envelopes, log, tasks)
        assert len(under_way) == 2
        return log.state()["covered"]

    assert asyncio.run(conduct()) == [[0, 1, 2]]
    assert came == [1, 2]


class CountedCores:
    """Cores enough for all; counts how often one was taken."""

    taken = 0

    @contextmanager
    def core(self):
        self.taken += 1
        yield


def test_rounds_without_messages_are_done_in_one_turn(tmp_path):
    ready = prepared(tmp_path, "gossip.local_steps=4", "training.rounds=12")
    plan, cores = plan_of(ready, RunDirectory.create(tmp_path / "run").place), CountedCores()

    async def conduct():
        network, shards = Loopback(), dict(enumerate(ready.shards()))
        network.host = build_host(plan, shards, network, num_threads=1, core=cores.core)
        await network.host.run()
        assert all(device.round_index == 12 for device in network.host._devices.values())

    asyncio.run(asyncio.wait_for(conduct(), 60))
    turns = 1 + 12 // 4  # up to the first exchange, and from each to the next
    assert cores.taken == turns * ready.scenario.fleet.devices


def test_a_turn_is_bounded_and_begins_no_round_once_the_host_is_closed(tmp_path):
    ready = prepared(tmp_path, "gossip.local_steps=50", "training.rounds=50")
    plan = plan_of(ready, RunDirectory.create(tmp_path / "run").place)
    host = build_host(plan, dict(enumerate(ready.shards())), Loopback(), num_threads=1)
    patient, hurried, *_ = host._devices.values()
    assert host._turns.first(patient, host._records[patient.index]) == []
    assert patient.round_index + 1 == MOST_ROUNDS, "of the last one, messages are collected"
    host.close()
    assert host._turns.first(hurried, host._records[hurried.index]) == []
    assert hurried.round_index == 0
