"""The host drives the devices of one process through their rounds. Plain asyncio, no Ray.

It knows its peers only through `post(letter)`, so the same host runs inside a Ray actor, inline in
one process, and under a fault-injecting network in tests.

Lockstep: a device enters round t+1 when the round-t messages of all its in-neighbours are absorbed.
There is no barrier and no coordinator; each device waits for its own in-neighbours alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol

from edgesim.assembly import FleetPlan, make_devices, make_flat_model
from edgesim.compression.errors import WireError
from edgesim.compression.wire import decode, encode
from edgesim.costs.metered_model import MeteredModel
from edgesim.data.images import LabelledImages
from edgesim.device import Device, RoundReport
from edgesim.errors import EdgesimError
from edgesim.fleet.mailbox import Mailbox
from edgesim.fleet.run_directory import RunDirectory
from edgesim.hardware.timeline import Stamp
from edgesim.mail import Arrival, Letter
from edgesim.membership import Edge, Will
from edgesim.records import RoundRecord
from edgesim.snapshot import Snapshot

Post = Callable[[Letter], Awaitable[bool]]
"""Carries a letter to its receiver's host and says whether it was accepted there."""

Core = Callable[[], AbstractContextManager[None]]
"""Gives the right to keep a core busy for one step."""

POST_ATTEMPTS = 3
MAX_IN_FLIGHT = 8  # letters on one edge whose acceptance is not known yet
ROWS_PER_PART = 256  # rounds of one device in one part file of rounds.parquet

_log = logging.getLogger(__name__)


class DeliveryError(EdgesimError):
    """A letter was refused at its receiver every time it was sent."""


class Archive(Protocol):
    """Where a host leaves what it records; writes are atomic and may be repeated."""

    def write_rounds(self, device: int, reports: Sequence[RoundReport]) -> None:
        """Keep consecutive rounds of one device, and the messages sent in them."""
        ...

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a model for whoever evaluates it."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the devices of one host are.

    Attributes:
        num_devices: devices of the host.
        rounds_done: rounds completed, summed over its devices.
        slowest_round: fewest rounds that one of them has completed.
        loss: mean over its devices of the loss of their newest round, or NaN before the first.
        sent_bytes: bytes of all messages that they have encoded.
    """

    num_devices: int
    rounds_done: int
    slowest_round: int
    loss: float
    sent_bytes: int


class Host:
    """Runs devices concurrently, as many at a time as it has models to lend.

    Args:
        devices: the devices of this host.
        models: models to compute with, one per thread.
        post: carries a letter to the host of its receiver.
        archive: takes records and snapshots.
        num_rounds: rounds of every device.
        snapshot_rounds: numbers of completed rounds after which a device's model is kept.
        core: entered for each step; by default nobody else wants the cores.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        models: Sequence[MeteredModel],
        *,
        post: Post,
        archive: Archive,
        num_rounds: int,
        snapshot_rounds: frozenset[int],
        core: Core = nullcontext,
    ) -> None:
        self._devices = {device.index: device for device in devices}
        self._layout = models[0].flat.layout
        self._num_models = len(models)
        self._models: SimpleQueue[MeteredModel] = SimpleQueue()
        for model in models:
            self._models.put(model)
        self._post = post
        self._archive = archive
        self._num_rounds = num_rounds
        self._snapshot_rounds = snapshot_rounds
        self._core = core
        self._mailboxes = {index: Mailbox() for index in self._devices}
        self._heirs: dict[int, int] = {}
        self._arrivals = {index: asyncio.Event() for index in self._devices}
        self._unwritten: dict[int, list[RoundReport]] = {index: [] for index in self._devices}
        self._newest: dict[int, RoundRecord] = {}
        self._sent_bytes: dict[int, int] = dict.fromkeys(self._devices, 0)
        self._running: asyncio.Task[None] | None = None
        self._free_slots: defaultdict[tuple[int, int], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_IN_FLIGHT)
        )

    async def run(self) -> None:
        """Run all devices to their last round; all records are written when it returns.

        Raises:
            EdgesimError: of the first device that failed.
        """
        self._running = asyncio.create_task(self._run())
        await self._running

    async def _run(self) -> None:
        with ThreadPoolExecutor(self._num_models, thread_name_prefix="device") as pool:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for device in self._devices.values():
                        tasks.create_task(self._drive(device, pool, tasks))
            except* EdgesimError as errors:
                raise _first(errors) from None

    async def stop(self) -> None:
        """End a run early: let steps under way end, begin no other, write what is recorded."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        for index, reports in self._unwritten.items():
            if reports:
                self._archive.write_rounds(index, reports)
                reports.clear()

    async def deliver(self, data: bytes, stamp: Stamp | None, to: int) -> bool:
        """Take in an encoded message; False asks the sender to send it again.

        What comes for a device that has left goes on to its heir, whose host then answers. Repeated
        delivery does no harm.

        Args:
            data: the message.
            stamp: when it travels in virtual time.
            to: device that it was brought to: the one that it is addressed to, or an heir. An heir
                may not yet know that it is one; what is addressed to others then waits.
        """
        try:
            message = decode(data, self._layout)
        except WireError as error:
            _log.warning("refused a message of %d bytes: %s", len(data), error)
            return False
        device = self._devices.get(to)
        if device is None or not device.expects(message):
            _log.warning(
                "refused a message of device %d to device %d, round %d: none is due here",
                message.sender,
                message.receiver,
                message.round_index,
            )
            return False
        if to in self._heirs:
            return await self._post(
                Letter(message.sender, self._heirs[to], message.sequence, data, stamp)
            )
        if self._mailboxes[to].put(Arrival(message, stamp)):
            self._arrivals[to].set()
        return True

    def progress(self) -> Progress:
        """How far the devices are; may be asked at any time."""
        done = [self._rounds_done(index) for index in self._devices]
        newest = list(self._newest.values())  # worker threads add to the mapping meanwhile
        losses = [record.loss for record in newest]
        return Progress(
            num_devices=len(done),
            rounds_done=sum(done),
            slowest_round=min(done),
            loss=sum(losses) / len(losses) if losses else float("nan"),
            sent_bytes=sum(self._sent_bytes.values()),
        )

    def _rounds_done(self, index: int) -> int:
        """Rounds that need not be waited for: a device that has left owes none."""
        if self._devices[index].has_left:
            return self._num_rounds
        newest = self._newest.get(index)
        return 0 if newest is None else newest.round + 1

    async def _drive(
        self, device: Device, pool: ThreadPoolExecutor, tasks: asyncio.TaskGroup
    ) -> None:
        """One device from its first round to its last."""
        loop = asyncio.get_running_loop()
        letters = await loop.run_in_executor(pool, self._first_turn, device)
        while not device.has_left and device.round_index < self._num_rounds:
            for letter in letters:
                slot = self._free_slots[letter.sender, letter.receiver]
                await slot.acquire()
                tasks.create_task(self._send(letter, slot))
            start = perf_counter()
            arrivals = await self._collect(device)
            waited_s = perf_counter() - start
            letters = await loop.run_in_executor(pool, self._turn, device, arrivals, waited_s)
        if device.has_left and letters:
            await self._take_leave(device, letters)

    async def _take_leave(self, device: Device, letters: list[Letter]) -> None:
        """Send the last letters of a device, then forward its mail to the receiver of the first."""
        heir = letters[0].receiver
        for letter in letters:
            slot = self._free_slots[letter.sender, letter.receiver]
            await slot.acquire()
            await self._send(letter, slot)
        self._heirs[device.index] = heir
        for arrival in self._mailboxes[device.index].empty():
            message = arrival.message
            slot = asyncio.Semaphore(0)  # released once, and not used again
            data = encode(message)
            letter = Letter(message.sender, heir, message.sequence, data, arrival.stamp)
            await self._send(letter, slot)

    async def _send(self, letter: Letter, slot: asyncio.Semaphore) -> None:
        """Post one letter until its receiver's host accepts it."""
        try:
            for _ in range(POST_ATTEMPTS):
                if await self._post(letter):
                    return
        finally:
            slot.release()
        raise DeliveryError(
            f"device {letter.receiver} refused message {letter.sequence} of device "
            f"{letter.sender} {POST_ATTEMPTS} times; its log says why"
        )

    async def _collect(self, device: Device) -> list[Arrival]:
        """Wait until the next message of every in-edge of the round is here, and take them.

        A message may say that more belong to the round: those to a device that has left.
        """
        arrivals: list[Arrival] = []
        edges = device.in_edges()
        while edges:
            taken = await self._take(device.index, edges)
            for message in (arrival.message for arrival in taken):
                if message.kind == "handover":
                    will = Will.from_notes(message.notes)
                    mail = {e: seq for e, seq in will.sequences.items() if e[1] in will.addresses}
                    self._mailboxes[device.index].take_over(mail)
            for message in (arrival.message for arrival in taken):
                if message.kind == "share" and message.round_index != device.round_index:
                    raise DeliveryError(
                        f"device {device.index} in round {device.round_index} received a message "
                        f"of round {message.round_index} from device {message.sender}"
                    )
            arrivals += taken
            edges = device.take_note([arrival.message for arrival in taken])
        return arrivals

    async def _take(self, index: int, edges: Sequence[Edge]) -> list[Arrival]:
        """Wait for one message on each edge, or several where an edge occurs several times."""
        mailbox, arrival = self._mailboxes[index], self._arrivals[index]
        if len(set(edges)) < len(edges):
            return [taken for edge in edges for taken in await self._take(index, [edge])]
        while not mailbox.has_next_of(edges):
            arrival.clear()
            await arrival.wait()
        return mailbox.take_next_of(edges)

    def _first_turn(self, device: Device) -> list[Letter]:
        """In a worker thread: a device's part of round 0 up to its messages."""
        with self._core():
            return self._train(device)

    def _turn(self, device: Device, arrivals: list[Arrival], waited_s: float) -> list[Letter]:
        """In a worker thread: end a round, record it, and begin the next one."""
        start = perf_counter()
        with self._core():
            waited_s += perf_counter() - start
            device.absorb(arrivals)
            is_last = device.round_index + 1 == self._num_rounds
            letters = []
            is_due = device.round_index + 1 in self._snapshot_rounds
            due = device.snapshot_of_round() if is_due else None
            if device.is_exhausted and not is_last:
                letters = device.leave(self._mailboxes[device.index].next_sequences)
            report = device.report()
            report = replace(report, round=replace(report.round, wait_wall_s=waited_s))
            if not (is_last or device.has_left):
                letters = self._train(device)
        if due is not None:
            self._archive.write_snapshot(due)
        if device.has_left:
            for round_index in sorted(r for r in self._snapshot_rounds if r > device.round_index):
                self._archive.write_snapshot(device.snapshot_after_leaving(round_index))
        self._record(device, report, is_last=is_last or device.has_left)
        return letters

    def _record(self, device: Device, report: RoundReport, *, is_last: bool) -> None:
        reports = self._unwritten[device.index]
        reports.append(report)
        if len(reports) == ROWS_PER_PART or is_last:
            self._archive.write_rounds(device.index, reports)
            reports.clear()
        self._sent_bytes[device.index] += report.round.sent_bytes
        self._newest[device.index] = report.round

    def _train(self, device: Device) -> list[Letter]:
        model = self._models.get()
        try:
            return device.train(model)
        finally:
            self._models.put(model)


def build_host(
    plan: FleetPlan,
    shards: Mapping[int, LabelledImages],
    post: Post,
    *,
    num_threads: int,
    core: Core = nullcontext,
) -> Host:
    """Host for some of a fleet's devices.

    Args:
        plan: of the whole fleet.
        shards: of the devices to host, by device.
        post: carries a letter to the host of its receiver.
        num_threads: devices that compute at the same time.
        core: entered for each step.
    """
    models = [make_flat_model(plan.scenario, plan.data, plan.compute) for _ in range(num_threads)]
    return Host(
        make_devices(plan, shards, models[0]),
        [MeteredModel(model) for model in models],
        post=post,
        archive=RunDirectory(plan.run_directory),
        num_rounds=plan.training.num_rounds,
        snapshot_rounds=frozenset(plan.training.evaluation_rounds),
        core=core,
    )


def _first(errors: BaseExceptionGroup[EdgesimError]) -> EdgesimError:
    """The first leaf of a group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, EdgesimError)
    return error
