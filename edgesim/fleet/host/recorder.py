"""Writes records, models and checkpoints of the devices of a host.

Worker threads write them; for each device, one thread at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Literal

from edgesim.device.device import Device
from edgesim.fleet.recovery.checkpoints import Checkpoints, DeviceRecords
from edgesim.results.columns import RoundRecord, RoundReport
from edgesim.results.run_directory import RunDirectory
from edgesim.results.snapshot import Snapshot
from edgesim.results.totals import passed_wait_j

ROUNDS_PER_PART, MESSAGES_PER_PART = 256, 512
"""Most rounds of one device in one part file, and messages above which a part ends.

A recorded message takes some 150 bytes until it is written.
"""


@dataclass(frozen=True, slots=True)
class EvaluationSchedule:
    """When models are kept for evaluation.

    Attributes:
        numbers: increasing numbers of the evaluations. A number is the number of completed rounds;
            with `interval_s`, the number of completed intervals, except for the last, the end of
            the run. Empty without evaluations.
        interval_s: virtual seconds between evaluations; None where they go by rounds.
        gossip_states: evaluations for which the state of the gossip algorithm is kept beside the
            model.
    """

    numbers: Sequence[int]
    interval_s: float | None = None
    gossip_states: Literal["every", "final", "never"] = "never"

    def until(self, round_index: int, now_s: float) -> Sequence[int]:
        """Evaluations, except the last, that are due after `round_index` rounds at time `now_s`."""
        between = self.numbers[:-1]
        if self.interval_s is None:
            return between[: bisect_right(between, round_index)]
        interval_s = self.interval_s
        return between[: bisect_right(between, now_s, key=lambda number: number * interval_s)]


@dataclass(slots=True)
class _Unwritten:
    """Rounds of one device that no file holds yet."""

    reports: list[RoundReport] = field(default_factory=list)
    num_messages: int = 0

    def add(self, report: RoundReport) -> None:
        self.reports.append(report)
        self.num_messages += len(report.messages)

    def clear(self) -> None:
        self.reports.clear()
        self.num_messages = 0

    @property
    def is_a_part(self) -> bool:
        """Whether they are as much as one file should hold."""
        return len(self.reports) >= ROUNDS_PER_PART or self.num_messages >= MESSAGES_PER_PART


class Recorder:
    """Recorder of the devices of one host.

    Args:
        archive: takes records and snapshots.
        schedule: of the evaluations for which a device's model is kept.
        checkpoints: None where none are written.
    """

    def __init__(
        self, archive: RunDirectory, schedule: EvaluationSchedule, checkpoints: Checkpoints | None
    ) -> None:
        self._archive = archive
        self._schedule = schedule
        self._checkpoints = checkpoints
        self._unwritten: dict[int, _Unwritten] = {}
        self._newest: dict[int, RoundRecord] = {}
        self._before: dict[int, Snapshot] = {}  # models between two evaluations by virtual time
        self._began_s: dict[int, float] = {}  # the newest rounds, by virtual time

    @property
    def last_evaluation(self) -> int:
        """Number of the last evaluation; 0 if there is none."""
        return self._schedule.numbers[-1] if self._schedule.numbers else 0

    def begin(self, device: Device) -> None:
        """Begin to record a device, before its first round or the first one after a restart."""
        if self._schedule.interval_s is not None:
            self._before[device.index] = device.snapshot()

    def end_round(self, device: Device) -> list[Snapshot]:
        """Snapshots that are due when a device has absorbed the messages of a round.

        An evaluation by virtual time gets the model that the device had at that time, which is that
        of its round before.
        """
        if self._schedule.interval_s is None:
            number = device.round_index + 1
            if number not in self._schedule.numbers[:-1]:
                return []
            return [device.snapshot_of_round(with_gossip=self._schedule.gossip_states == "every")]
        before, now = self._before[device.index], device.snapshot_of_round()
        self._before[device.index] = now
        self._began_s[device.index] = before.virtual_time_s or 0.0
        num_past = len(self._schedule.until(0, self._began_s[device.index]))
        return [
            replace(before, round_index=number, virtual_time_s=number * self._schedule.interval_s)
            for number in self._schedule.until(0, device.now_s)[num_past:]
        ]

    def newest_round(self, device: int) -> RoundRecord | None:
        """The newest round of a device, with the loss of its newest step; None before the first."""
        return self._newest.get(device)

    def record(
        self,
        report: RoundReport | None,
        snapshots: Sequence[Snapshot],
        sent_bytes: int,
        spent_j: float | None,
    ) -> None:
        """Keep a round, if there was one, and models.

        Args:
            report: of the round.
            snapshots: that `end_round` gave.
            sent_bytes: of the device until now, with this round.
            spent_j: energy of the device until now, with this round; None without a profile.
        """
        spent = [spent_j] * len(snapshots)
        if report is not None and self._schedule.interval_s is not None:  # models from before it
            sent_bytes -= report.round.sent_bytes
            if spent_j is not None:
                before_j = spent_j - (report.round.energy_j or 0.0)
                began_s = self._began_s[report.round.device]
                spent = [before_j + _waited_j(report.round, began_s, one) for one in snapshots]
        if report is not None:
            index = report.round.device
            unwritten = self._unwritten.setdefault(index, _Unwritten())
            unwritten.add(report)
            if unwritten.is_a_part:
                self._write_rounds(index)
            newest, before = report.round, self._newest.get(index)
            if before is not None and isnan(newest.loss):
                newest = replace(newest, loss=before.loss)
            self._newest[index] = newest
        for snapshot, energy_j in zip(snapshots, spent, strict=True):
            self._archive.write_snapshot(
                replace(snapshot, sent_bytes=sent_bytes, energy_j=energy_j)
            )

    def save_if_due(self, device: Device, records: DeviceRecords) -> None:
        """Write a checkpoint of a device between two rounds, if one is due."""
        if self._checkpoints is not None and self._checkpoints.is_due(device, records.log):
            self.save(device, records)

    def save(self, device: Device, records: DeviceRecords) -> None:
        """Write a checkpoint."""
        if self._checkpoints is not None:
            self._write_rounds(device.index)  # a restored device does not repeat them
            self._checkpoints.write(device, records)

    def close(self, device: Device, sent_bytes: int) -> None:
        """Write the remaining records of a device, which has sent so much, after its last round."""
        num_past = len(self._schedule.until(device.round_index, device.now_s))
        with_gossip = self._schedule.gossip_states != "never"
        for number in self._schedule.numbers[num_past:]:
            final = device.final_snapshot(number, with_gossip=with_gossip)
            spent = replace(final, sent_bytes=sent_bytes, energy_j=device.spent_j)
            self._archive.write_snapshot(spent)
        self._write_rounds(device.index)

    def flush(self) -> None:
        """Write all rounds that are not written yet."""
        for index in self._unwritten:
            self._write_rounds(index)

    def _write_rounds(self, index: int) -> None:
        if (unwritten := self._unwritten.get(index)) and unwritten.reports:
            self._archive.write_rounds(index, unwritten.reports)
            unwritten.clear()


def _waited_j(record: RoundRecord, began_s: float, snapshot: Snapshot) -> float:
    """What the wait of a round had taken at the time of a model from within the round."""
    begin_s = began_s + (record.virtual_compute_s or 0.0)
    times_s = snapshot.virtual_time_s, begin_s, record.virtual_time_s
    return float(passed_wait_j(*times_s, record.energy_idle_j))
