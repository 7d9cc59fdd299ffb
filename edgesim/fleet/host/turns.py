"""Turns: computation of a device in a worker thread between two waits for messages.

A turn goes from the end of one round to the messages of the next; it takes a core once for both.
Rounds in which the device neither sends nor receives belong to the same turn, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from threading import Event
from time import perf_counter

from edgesim.assembly.parts.own_errors import own_code
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.device import Device
from edgesim.device.mail import Arrival, Envelope
from edgesim.fleet.host.recorder import Recorder
from edgesim.fleet.recovery.checkpoints import DeviceRecords

MOST_ROUNDS = 8  # of a turn, so that other devices get a core, too

Core = Callable[[], AbstractContextManager[None]]
"""Gives the right to keep a core busy for one turn."""


class Turns:
    """Turns of the devices of a host. Methods may run in several threads, but each device in one.

    Args:
        models: models to compute with, lent to one device at a time.
        recorder: where rounds and checkpoints are recorded.
        keeps_envelopes: whether sent envelopes are logged for recovery.
        core: entered for each turn.
    """

    def __init__(
        self,
        models: Sequence[MeteredModel],
        recorder: Recorder,
        *,
        keeps_envelopes: bool,
        core: Core,
    ) -> None:
        self._models: SimpleQueue[MeteredModel] = SimpleQueue()
        for model in models:
            self._models.put(model)
        self._recorder = recorder
        self._keeps_envelopes = keeps_envelopes
        self._core = core
        self._has_ended = Event()

    def end(self) -> None:
        """Let each turn end after its current step, also if the step still waits for a core."""
        self._has_ended.set()

    def first(self, device: Device, records: DeviceRecords) -> list[Envelope]:
        """Run a device until it sends its first messages or has to wait for messages."""
        self._recorder.begin(device)
        with self._core(), own_code(partial(_when, device)):
            return self._run_on(device, records, self._train(device, records))

    def next(
        self, device: Device, records: DeviceRecords, arrivals: list[Arrival], waited_s: float
    ) -> list[Envelope]:
        """Absorb what has arrived, end and record the round, and run until the next messages."""
        start = perf_counter()
        with self._core(), own_code(partial(_when, device)):
            waited_s += perf_counter() - start
            envelopes = self._round(device, records, arrivals, waited_s)
            return self._run_on(device, records, envelopes)

    def _run_on(
        self, device: Device, records: DeviceRecords, envelopes: list[Envelope]
    ) -> list[Envelope]:
        """End and begin rounds until the device sends messages or waits for some."""
        for _ in range(MOST_ROUNDS - 1):
            if (
                envelopes
                or device.is_done
                or device.pace.waits_for_mail
                or self._has_ended.is_set()
            ):
                break
            envelopes = self._round(device, records, [], 0.0)
        if device.is_done:
            self._recorder.close(device, records.sent_bytes)
            records.last_evaluation = self._recorder.last_evaluation
        return envelopes

    def _round(
        self, device: Device, records: DeviceRecords, arrivals: list[Arrival], waited_s: float
    ) -> list[Envelope]:
        device.absorb(arrivals)
        envelopes: list[Envelope] = []
        snapshots = self._recorder.end_round(device)
        if device.pace.must_leave:
            envelopes = device.pace.leave(records.mailbox.next_sequences)
            records.log.add(envelopes)
        report = device.report(waited_s)
        if report is not None:
            records.sent_bytes += report.round.sent_bytes
            records.received_bytes += report.round.received_bytes
            records.num_rows += 1
        self._recorder.record(report, snapshots, records.sent_bytes, device.spent_j)
        if snapshots:
            records.last_evaluation = snapshots[-1].round_index
        if not device.is_done:
            self._recorder.save_if_due(device, records)
            envelopes = self._train(device, records)
        return envelopes

    def send(self, device: Device, records: DeviceRecords) -> list[Envelope]:
        """The messages of a step."""
        with own_code(partial(_when, device)):
            envelopes = device.send()
        if self._keeps_envelopes:  # logged before they are sent: a receiver may request any of them
            records.log.add(envelopes)
        return envelopes

    def _train(self, device: Device, records: DeviceRecords) -> list[Envelope]:
        model = self._models.get()
        try:
            device.step(model)
        finally:
            self._models.put(model)
        return [] if device.pace.listens_first else self.send(device, records)


def _when(device: Device) -> str:
    """Where in a run a device is, in messages."""
    return f"on {device.participant.trainer.label} in round {device.round_index}"
