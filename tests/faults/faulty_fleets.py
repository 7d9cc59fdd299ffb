"""Fleets of many kinds, run undisturbed and under a seeded schedule of faults."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from faulty_network import Faults, FaultyNetwork, Node
from kinds_of_fleets import BASE, KINDS
from memory_archive import CrashError, MemoryArchive
from simulated_loop import InlineExecutor, run_simulated
from tiny_model import HeavyModel, tiny_model

from edgesim.assembly.build import PLAIN
from edgesim.assembly.preparation import prepare
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.host.host import Host
from edgesim.fleet.host.recorder import EvaluationSchedule
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recovery.checkpoints import Checkpoints, CheckpointSettings
from edgesim.scenario.schema import Scenario


@dataclass(frozen=True)
class Schedule:
    """What happens to a fleet, all drawn from a seed."""

    kind: str
    seed: int
    hosts: tuple[tuple[int, ...], ...]
    every_rounds: int | None
    faults: Faults
    crashes: tuple[tuple[float, tuple[int, ...]], ...] = ()
    crash_before: frozenset[int] = frozenset()
    crash_after: frozenset[int] = frozenset()
    damage: float = 0.0
    damage_living: float = 0.0
    crash_in_drop: frozenset[int] = frozenset()


@dataclass
class Undisturbed:
    """What a fleet comes to, and how much there was to disturb."""

    outcome: dict
    num_writes: int
    end_s: float


@dataclass
class Log:
    """What was done to a fleet."""

    crashes: int = 0
    damaged: int = 0


@cache
def prepared(kind):
    scenario = {**BASE, **KINDS[kind]}
    return prepare(Scenario.model_validate(scenario))


@cache
def shards(kind):
    return prepared(kind).shards()


@cache
def models():
    """The initial model, whose vectors are copied, and the one that all devices borrow."""
    return tiny_model(), HeavyModel(tiny_model())


def draw(seed, kinds=KINDS):
    """The schedule of a seed, of one of these kinds of fleets."""
    chance = random.Random(seed)
    kind = chance.choice(sorted(kinds))
    devices = list(range(prepared(kind).scenario.fleet.num_devices))
    chance.shuffle(devices)
    cuts = sorted(chance.sample(range(1, len(devices)), chance.randrange(len(devices))))
    hosts = [devices[a:b] for a, b in zip([0, *cuts], [*cuts, len(devices)], strict=True)]
    calm = undisturbed(kind)
    crashes = []
    for _ in range(chance.choice([0, 1, 2, 3, 6])):
        # Later than an undisturbed run: a run under faults takes longer.
        at_s = chance.random() * calm.end_s * chance.choice([1, 4])
        victims = chance.sample(range(len(hosts)), chance.randint(1, len(hosts)))
        crashes.append((at_s, tuple(victims)))
    writes = range(1, 3 * calm.num_writes)
    return Schedule(
        kind=kind,
        seed=seed,
        hosts=tuple(map(tuple, hosts)),
        every_rounds=chance.choice([1, 1, 2, 3, None]),
        faults=Faults(
            damage=chance.choice([0, 0.2]),
            repeat=chance.choice([0, 0.3]),
            lose=chance.choice([0, 0.1]),
            lose_answer=chance.choice([0, 0.2]),
            longest_delay_s=chance.choice([0.001, 0.01, 0.1]),
        ),
        crashes=tuple(sorted(crashes)),
        crash_before=frozenset(chance.sample(writes, min(len(writes), chance.choice([0, 0, 3])))),
        crash_after=frozenset(chance.sample(writes, min(len(writes), chance.choice([0, 0, 3])))),
        damage=chance.choice([0, 0.5]),
        damage_living=chance.choice([0, 0, 0.3]),
        crash_in_drop=frozenset(chance.sample(range(1, 60), chance.choice([0, 0, 3]))),
    )


@cache
def undisturbed(kind):
    """All devices on one host, on a network without faults."""
    n = prepared(kind).scenario.fleet.num_devices
    calm = Schedule(kind, 0, (tuple(range(n)),), 1, Faults())
    outcome, archive, end_s, _ = run(calm)
    return Undisturbed(outcome, archive.num_writes, end_s)


def run(schedule):
    """Run a fleet under a schedule of faults: outcome, archive, simulated seconds, log."""
    torch.set_num_threads(1)
    archive = MemoryArchive()
    archive.crash_before, archive.crash_after = schedule.crash_before, schedule.crash_after
    archive.crash_in_drop = schedule.crash_in_drop
    log = Log()
    fleet = _FaultyFleet(schedule, archive, log)
    end_s = run_simulated(fleet.run())
    return archive.outcome(), archive, end_s, log


@dataclass
class _FaultyFleet:
    schedule: Schedule
    archive: MemoryArchive
    log: Log
    nodes: dict = field(default_factory=dict)

    async def run(self):
        self.random = random.Random(self.schedule.seed + 1)
        self.shards = shards(self.schedule.kind)
        own = [Node() for _ in self.schedule.hosts]
        for node, devices in zip(own, self.schedule.hosts, strict=True):
            self.nodes.update(dict.fromkeys(devices, node))
        self.killed = [asyncio.Event() for _ in own]
        self.done = [asyncio.Event() for _ in own]
        lives = [asyncio.create_task(self._live(place, node)) for place, node in enumerate(own)]
        killer = asyncio.create_task(self._kill())
        waiting = [asyncio.create_task(self._all_done())]
        try:
            ended, _ = await asyncio.wait([*lives, *waiting], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
            return asyncio.get_running_loop().time()
        finally:
            for task in (*lives, *waiting, killer):
                task.cancel()
            await asyncio.gather(*lives, *waiting, killer, return_exceptions=True)

    async def _all_done(self):
        while not all(done.is_set() for done in self.done):
            for done in self.done:
                await done.wait()

    async def _kill(self):
        for at_s, victims in self.schedule.crashes:
            await asyncio.sleep(at_s - asyncio.get_running_loop().time())
            for place in victims:
                self.killed[place].set()

    async def _live(self, place, node):
        """One process after the other, until the last is not killed any more."""
        devices, born = self.schedule.hosts[place], 0
        while True:
            network = FaultyNetwork(self.nodes, self.schedule.faults, self.random)
            host = self._host(devices, network, recover=born > 0)
            node.up(host)
            born += 1
            running = asyncio.create_task(host.run())
            killed = asyncio.create_task(self.killed[place].wait())
            await asyncio.wait({running, killed}, return_when=asyncio.FIRST_COMPLETED)
            if running.done() and not _is_crash(running.exception()):
                running.result()
                self.done[place].set()
                await killed  # it may still have to answer, or to die
            self.log.crashes += 1
            self.done[place].clear()
            self.killed[place].clear()
            await self._bury(node, host, network, running, killed)
            for device in devices:
                if self.random.random() < self.schedule.damage:
                    self.log.damaged += self.archive.damage_newest(device, self.random)
            self._damage_living()
            await asyncio.sleep(self.random.random() * 0.2)

    def _damage_living(self):
        """Of those who may be asked for envelopes in it, before they die themselves."""
        if self.schedule.damage_living:  # otherwise nothing is drawn
            for device, node in self.nodes.items():
                lives = node.host is not None
                if lives and self.random.random() < self.schedule.damage_living:
                    self.log.damaged += self.archive.damage_newest(device, self.random)

    async def _bury(self, node, host, network, running, killed):
        node.down()
        tasks = {running, killed, *host._resending, *network.loose}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _host(self, devices, network, *, recover):
        ready = prepared(self.schedule.kind)
        plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, "")
        initial, metered = models()
        evaluations = ready.training.evaluation_rounds
        settings = CheckpointSettings("run", 1e9, self.schedule.every_rounds, evaluations)
        return Host(
            make_devices(plan, {d: self.shards[d] for d in devices}, initial),
            [metered],
            network=network,
            archive=self.archive,
            num_rounds=ready.training.num_rounds,
            evaluation_schedule=EvaluationSchedule(
                ready.training.evaluation_rounds, ready.training.evaluation_interval_s
            ),
            checkpoints=Checkpoints(self.archive, settings, len(devices)),
            recover=recover,
            presumed_dead_after_s=ready.scenario.fleet.timeout_s,
            core=nullcontext,
            executor=InlineExecutor(),
            at_once=self.schedule.seed % 2 == 0,
        )


def restored_device(schedule, archive, index):
    """One device of a fleet, as it goes on from what a run has left."""
    fleet = _FaultyFleet(schedule, archive, Log())
    fleet.shards = shards(schedule.kind)
    host = fleet._host([index], None, recover=True)
    host._checkpoints.restore(host._devices[index], host._records[index])
    return host._devices[index]


def _is_crash(error):
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(CrashError) is not None
    return isinstance(error, CrashError)


def check(seed, kinds=KINDS, **changes):
    """Run the schedule of a seed, but for these changes; says what differs, or nothing."""
    schedule = replace(draw(seed, kinds), **changes)
    outcome, _, _, log = run(schedule)
    expected = undisturbed(schedule.kind).outcome
    different = [key for key in expected if expected[key] != outcome[key]]
    return schedule, log, different
