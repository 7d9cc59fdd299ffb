"""What a device computes in a worker thread, between two waits for messages.

A turn goes from the end of one round to the messages of the next: a core is taken once for both.
Rounds without messages, of the device and for it, are of the same turn, up to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from queue import SimpleQueue
from threading import Event
from time import perf_counter

from edgesim.costs.metered_model import MeteredModel
from edgesim.device.device import Device
from edgesim.device.mail import Arrival, Envelope
from edgesim.fleet.host.recorder import Recorder
from edgesim.fleet.recovery.checkpoints import DeviceRecords

MOST_ROUNDS = 8  # of a turn: others, with neighbours who wait for them, get their core as well

Core = Callable[[], AbstractContextManager[None]]
"""Gives the right to keep a core busy for one turn."""


class Turns:
    """Shared by the devices of a host; its methods may run in several threads, a device in one.

    Args:
        models: models to compute with, lent to one device at a time.
        recorder: where rounds and checkpoints are recorded.
        keeps_envelopes: what is sent is logged, for those who will lack it after a crash.
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
        """Let turns end with the step that is under way, or that they still wait for a core for."""
        self._has_ended.set()

    def first(self, device: Device, records: DeviceRecords) -> list[Envelope]:
        """What a device does up to its first messages, or to those that it has to wait for."""
        self._recorder.begin(device)
        with self._core():
            return self._go_on(device, records, self._train(device, records))

    def next(
        self, device: Device, records: DeviceRecords, arrivals: list[Arrival], waited_s: float
    ) -> list[Envelope]:
        """End a round with what has arrived, record it, and go on to the next messages."""
        start = perf_counter()
        with self._core():
            waited_s += perf_counter() - start
            envelopes = self._round(device, records, arrivals, waited_s)
            return self._go_on(device, records, envelopes)

    def _go_on(
        self, device: Device, records: DeviceRecords, envelopes: list[Envelope]
    ) -> list[Envelope]:
        """End rounds and begin others, as long as the device sends nothing and awaits nothing."""
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
            self._recorder.close(device)
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
        report = device.report()
        if report is not None:
            report = replace(report, round=replace(report.round, wait_wall_s=waited_s))
            records.sent_bytes += report.round.sent_bytes
            records.received_bytes += report.round.received_bytes
            records.num_rows += 1
        self._recorder.record(report, snapshots)
        if snapshots:
            records.last_evaluation = snapshots[-1].round_index
        if not device.is_done:
            self._recorder.save_if_due(device, records)
            envelopes = self._train(device, records)
        return envelopes

    def send(self, device: Device, records: DeviceRecords) -> list[Envelope]:
        """The messages of a step."""
        envelopes = device.send()
        if self._keeps_envelopes:  # before they are sent: nobody may miss one
            records.log.add(envelopes)
        return envelopes

    def _train(self, device: Device, records: DeviceRecords) -> list[Envelope]:
        model = self._models.get()
        try:
            device.step(model)
        finally:
            self._models.put(model)
        return [] if device.pace.listens_first else self.send(device, records)
