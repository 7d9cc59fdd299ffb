"""The host drives the devices of one process through their rounds. Plain asyncio, no Ray.

The host reaches the rest of the fleet only through a `Network`, so the same host runs inside a Ray
actor, inline in one process, and under a fault-injecting network in tests.

Lockstep: a device enters round t+1 when the round-t messages of all its in-neighbours are absorbed.
There is no barrier and no coordinator; each device waits for its own in-neighbours alone.

Recovery: a host may be killed at any moment and built anew. It reads its devices' checkpoints,
sends all messages again that a receiver may lack, requests the messages that its devices lack, and
repeats the lost rounds. Receivers ignore messages that they already have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from edgesim.compression.errors import WireError
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Message, decode_one_of, encode
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.device import Device
from edgesim.device.mail import Announcement, Arrival, Envelope
from edgesim.device.membership import Edge
from edgesim.errors import EdgesimError
from edgesim.fleet.host.device_progress import device_progress
from edgesim.fleet.host.paces import PACES, Intake
from edgesim.fleet.host.recorder import EvaluationSchedule, Recorder
from edgesim.fleet.host.reliable_sender import LONGEST_PAUSE_S, ReliableSender
from edgesim.fleet.host.turns import Core, Turns
from edgesim.fleet.recovery.checkpoints import Checkpoints, DeviceRecords
from edgesim.fleet.recovery.message_log import MessageLog, WrittenEnvelopes
from edgesim.fleet.transport.network import (
    Acknowledgement,
    EnvelopesLostError,
    Network,
    PeerUnavailableError,
    Request,
)
from edgesim.fleet.transport.progress import Progress, Waiting
from edgesim.gossip.optional_members import message_layouts
from edgesim.hardware.timeline import Stamp
from edgesim.results.run_directory import RunDirectory
from edgesim.storage.space import WaitForSpace

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Host:
    """Runs devices concurrently; as many compute at a time as there are models.

    Args:
        devices: the devices of this host.
        models: models to compute with, one per thread.
        network: carries envelopes to the hosts of their receivers; None if this host has all
            devices.
        archive: takes records and snapshots.
        num_rounds: rounds of every device.
        evaluation_schedule: of the evaluations for which a device's model is kept.
        checkpoints: writes and reads checkpoints; None for a fleet without recovery.
        recover: restore devices from their checkpoints.
        presumed_dead_after_s: at free pace, time-out of life signs (liveness.py).
        core: context manager around each turn, which holds a core; by default cores are not shared.
        executor: runs steps; by default as many threads as there are models.
        space: what the archive waits by while its file system is full.
        at_once: bring messages between devices of this host to them without the network.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        models: Sequence[MeteredModel],
        *,
        network: Network | None,
        archive: RunDirectory,
        num_rounds: int,
        evaluation_schedule: EvaluationSchedule,
        checkpoints: Checkpoints | None = None,
        recover: bool = False,
        presumed_dead_after_s: float = 0.0,
        core: Core = nullcontext,
        executor: Executor | None = None,
        space: WaitForSpace | None = None,
        at_once: bool = False,
    ) -> None:
        self._space = space or WaitForSpace()
        self._devices = {device.index: device for device in devices}
        layouts = message_layouts(devices[0].participant.algorithm)
        self._layouts = {layout.digest: layout for layout in layouts}
        # While a device holds a payload, other receivers of the same payload need not decode it
        # again.
        self._payloads: WeakValueDictionary[bytes, Payload] | None = (
            WeakValueDictionary() if len(devices) > 1 else None
        )
        self._network: Network = network or self
        self._sender = ReliableSender(self._network, *([self._take_at_once] if at_once else []))
        self._num_rounds = num_rounds
        self._recorder = Recorder(archive, evaluation_schedule, checkpoints)
        keeps_envelopes = checkpoints is not None
        self._turns = Turns(models, self._recorder, keeps_envelopes=keeps_envelopes, core=core)
        self._checkpoints = checkpoints
        self._recover = recover
        self._presumed_dead_after_s = presumed_dead_after_s
        self._executor = executor or ThreadPoolExecutor(len(models), thread_name_prefix="device")
        self._intakes = {device.index: self._make_intake(device) for device in devices}
        self._records = {device.index: self._new_records(device) for device in devices}
        self._is_ready = {index: asyncio.Event() for index in self._devices}
        if not recover:
            for ready in self._is_ready.values():
                ready.set()
        self._running: asyncio.Task[None] | None = None
        self._resending: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def _new_records(self, device: Device) -> DeviceRecords:
        def read(round_index: int) -> WrittenEnvelopes:
            assert self._checkpoints is not None, "envelopes are sealed in checkpoints alone"
            return self._checkpoints.envelopes(device.index, round_index)

        return DeviceRecords(self._intakes[device.index].mailbox, MessageLog(read))

    def _make_intake(self, device: Device) -> Intake:
        def inherit() -> None:
            # The leaver forwards the messages to it, also those of later rounds. They may be lost
            # if its process dies before, or if this host was restarted after it had received them.
            edges = device.membership.possible_in_edges()
            self._spawn(
                self._request_all(device, [edge for edge in edges if edge[1] != device.index])
            )

        timeout_s = self._presumed_dead_after_s
        return PACES[device.pace.name].make_intake(device.pace, inherit, timeout_s)

    async def run(self) -> None:
        """Run all devices to their last round; all records are written when it returns.

        Afterwards the host still answers requests, since other devices may have to repeat rounds.

        Raises:
            EdgesimError: of the first device that failed.
        """
        self._running = asyncio.create_task(self._run())
        try:
            await self._running
        except asyncio.CancelledError:
            if self._failure is None:
                raise
            raise self._failure from None

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for device in self._devices.values():
                    tasks.create_task(self._drive(device, tasks))
        except BaseExceptionGroup as errors:
            if (known := errors.subgroup(EdgesimError)) is not None:
                raise _first(known) from None
            raise _first(errors) from errors

    async def stop(self) -> None:
        """End a run early: finish current steps, begin no new ones, write the records."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self._end()
        await asyncio.to_thread(self._executor.shutdown)  # the event loop runs on
        self._recorder.flush()

    def close(self) -> None:
        """End everything that the host has started; steps under way end first."""
        self._end()
        self._executor.shutdown()

    def _end(self) -> None:
        self._turns.end()
        self._space.stop()
        for task in self._resending:
            task.cancel()

    async def deliver(self, envelope: Envelope) -> Acknowledgement:
        """Accept an envelope as soon as there is room for it.

        The acknowledgement may request the envelope again. Envelopes to a device that has left are
        forwarded to its successor, whose host then answers. Repeated delivery does no harm. All
        parts of a message are checked, unless it was encoded in this very process.
        """
        try:
            message = envelope.message or decode_one_of(
                envelope.data, self._layouts, self._payloads
            )
        except WireError as error:
            _log.warning("refused a message of %d bytes: %s", len(envelope.data), error)
            return Acknowledgement(accepted=False)
        index = envelope.to
        device = self._devices.get(index)
        if device is None or not device.pace.expects(message):
            _log.warning(
                "refused a message of device %d to device %d, round %d: none is due here",
                message.sender,
                message.receiver,
                message.round_index,
            )
            return Acknowledgement(accepted=False)
        await self._is_ready[index].wait()
        edge = message.sender, message.receiver
        records = self._records[index]
        if records.successor is None:
            await self._intakes[index].room(edge, message.sequence, envelope.stamp)
        # What the device had absorbed before it left is not passed on again. Its successor may
        # itself repeat rounds before the handover, and would have no room for it.
        is_repeated = message.sequence < records.mailbox.next_sequences.get(edge, 0)
        if records.successor is not None and not is_repeated:
            return await self._sender.deliver(replace(envelope, to=records.successor))
        return self._accept(index, message, envelope.stamp)

    def _take_at_once(self, envelope: Envelope) -> Acknowledgement | None:
        """Accept an envelope of a device of this host, where `deliver` would wait for nothing."""
        message, index = envelope.message, envelope.to
        device = self._devices.get(index)
        if message is None or device is None or not self._is_ready[index].is_set():
            return None
        edge, stamp = (message.sender, message.receiver), envelope.stamp
        if self._records[index].successor is not None or not device.pace.expects(message):
            return None
        if not self._intakes[index].has_room(edge, message.sequence, stamp):
            return None
        return self._accept(index, message, stamp)

    def _accept(self, index: int, message: Message, stamp: Stamp | None) -> Acknowledgement:
        """Put a message into the mailbox of a device, which has room for it."""
        self._intakes[index].put(Arrival(message, stamp))
        edge = message.sender, message.receiver
        covered = self._checkpoints.covered(index, edge) if self._checkpoints else 0
        return Acknowledgement(accepted=True, covered=covered)

    async def take_announcement(self, announcement: Announcement) -> None:
        """Take in a time bound of a sender, or a life sign of a receiver, at free pace.

        May be repeated.
        """
        receiver = announcement.edge[1]
        await self._is_ready[receiver].wait()
        self._intakes[receiver].take_announcement(announcement)

    async def answer(self, request: Request) -> None:
        """Send envelopes again in the background; returns before they have arrived.

        Raises:
            EnvelopesLostError: the requested envelopes are no longer kept.
        """
        await self._is_ready[request.holder].wait()
        records = self._records[request.holder]
        envelopes = await self._in_thread(
            records.log.envelopes, request.edge, request.next_sequence
        )
        self._spawn(self._sender.send_again(_to(envelopes, request.asker), records.log))
        self._sender.announce_again(request.edge, self._spawn)
        if records.successor is not None:  # the successor sends in the name of this device
            sequence = max(
                [request.next_sequence, *(envelope.sequence + 1 for envelope in envelopes)]
            )
            await self._forward(replace(request, holder=records.successor, next_sequence=sequence))

    def waiting(self) -> list[Waiting]:
        """Devices that wait for messages."""
        return [
            Waiting(index, self._devices[index].round_index, tuple(missing))
            for index, intake in self._intakes.items()
            if (missing := intake.missing)
        ]

    def progress(self) -> Progress:
        """How far the devices are; may be asked at any time.

        A device that is being restored is left out: its rounds are not known yet.
        """
        return Progress(
            self._num_rounds,
            tuple(
                device_progress(
                    device,
                    self._records[index],
                    self._intakes[index],
                    self._recorder.newest_round(index),
                )
                for index, device in self._devices.items()
                if self._is_ready[index].is_set()
            ),
            full=self._space.problem,
        )

    async def _drive(self, device: Device, tasks: asyncio.TaskGroup) -> None:
        """Run one device from its first round to its last."""
        records, intake = self._records[device.index], self._intakes[device.index]
        if self._recover:
            await self._restore(device)
        envelopes: list[Envelope] = []
        if not device.is_done:
            envelopes = await self._in_thread(self._turns.first, device, records)
        while not device.is_done:
            intake.end_step()
            if device.pace.listens_first:
                self._announce(device, ())
                await intake.before_sending()
                envelopes = await self._in_thread(self._turns.send, device, records)
            # Announced before the envelopes are sent: these may have to wait for room, while other
            # devices wait for the time bounds.
            self._announce(device, envelopes)
            await self._sender.send(envelopes, records.log, tasks)
            start = perf_counter()
            arrivals = await intake.collect()
            waited_s = perf_counter() - start
            envelopes = await self._in_thread(self._turns.next, device, records, arrivals, waited_s)
        if device.pace.is_succeeded and envelopes:
            await self._hand_over(device, envelopes, tasks)
        else:
            intake.end()
            self._announce(device, envelopes)
            await self._sender.send(envelopes, records.log, tasks)

    def _announce(self, device: Device, envelopes: Sequence[Envelope]) -> None:
        """Send the announcements of the device that go with these envelopes."""
        self._sender.announce(device.pace.announce(envelopes), self._spawn)

    async def _restore(self, device: Device) -> None:
        """Restore a device from its checkpoint, and request the messages that it lacks."""
        records = self._records[device.index]
        if self._checkpoints is not None:
            await self._in_thread(self._checkpoints.restore, device, records)
        self._is_ready[device.index].set()
        self._announce(device, ())
        uncovered = await self._in_thread(records.log.uncovered)
        self._spawn(self._sender.send_again(uncovered, records.log))
        if records.successor is None:
            told_on = self._intakes[device.index].told_by_receivers
            edges = {*device.membership.possible_in_edges(), *told_on}
            self._spawn(self._request_all(device, sorted(edges)))

    async def _request_all(self, device: Device, edges: Iterable[Edge]) -> None:
        """Request, on each edge, all envelopes from the next missing one on."""
        await asyncio.gather(*(self._request_on(device, edge) for edge in edges))

    async def _request_on(self, device: Device, edge: Edge) -> None:
        """Request envelopes of an edge until there is an answer; stop if the device has left."""
        records = self._records[device.index]
        mailbox = records.mailbox
        while records.successor is None:
            request = Request(edge, mailbox.next_sequences.get(edge, 0), edge[0], device.index)
            try:
                await self._network.answer(request)
            except PeerUnavailableError:
                await asyncio.sleep(LONGEST_PAUSE_S)
            except EnvelopesLostError:
                is_lacking = request.next_sequence == mailbox.next_sequences.get(edge, 0)
                if is_lacking and records.successor is None:
                    raise
                # The lacking envelopes have arrived in another way meanwhile.
            else:
                return

    async def _forward(self, request: Request) -> None:
        """Ask a leaver's successor for envelopes that it sent in the leaver's name."""
        while True:
            try:
                await self._network.answer(request)
            except PeerUnavailableError:
                await asyncio.sleep(LONGEST_PAUSE_S)
            else:
                return

    async def _hand_over(
        self, device: Device, envelopes: list[Envelope], tasks: asyncio.TaskGroup
    ) -> None:
        """Send the last envelopes of a device, then forward its mail to the receiver of the first.

        The leave is saved before any other device can know of it: afterwards the successor lets
        other devices drop messages that the leaver would need to repeat its last round.
        """
        records = self._records[device.index]
        records.successor = successor = envelopes[0].to
        await self._in_thread(self._recorder.save, device, records)
        await asyncio.gather(*await self._sender.send(envelopes, records.log, tasks))
        mail = [_forwarded(arrival, successor) for arrival in self._intakes[device.index].leave()]
        await self._sender.send_again(mail, records.log)

    async def _in_thread(
        self, work: Callable[Parameters, Result], *args: Parameters.args, **kw: Parameters.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(work, *args, **kw))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        """Start a task in the background; an error in it ends the run."""
        task = asyncio.create_task(work)
        self._resending.add(task)
        task.add_done_callback(self._spawned_has_ended)

    def _spawned_has_ended(self, task: asyncio.Task[None]) -> None:
        self._resending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            if self._running is None or self._running.done():  # nobody is there to raise it
                _log.warning("envelopes could not be sent again: %s", error)
            else:
                self._running.cancel()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first single exception of an exception group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _to(envelopes: Iterable[Envelope], device: int) -> list[Envelope]:
    return [replace(envelope, to=device) for envelope in envelopes]


def _forwarded(arrival: Arrival, successor: int) -> Envelope:
    message = arrival.message
    edge = message.sender, message.receiver
    return Envelope(edge, message.sequence, encode(message), arrival.stamp, successor)
