"""Checkpoints of the devices of one host: content, times of writing, choice when reading.

A checkpoint holds a device between two rounds: its state, the number of the next message on each
edge, and the envelopes that it has sent since the last checkpoint but one. The time of writing
depends on the wall clock and never changes a result: a restored device repeats the rounds after its
checkpoint.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from edgesim.device.device import Device
from edgesim.device.membership import Edge
from edgesim.errors import EdgesimError
from edgesim.fleet.recovery.message_log import (
    KEPT_CHECKPOINTS,
    MessageLog,
    WrittenEnvelopes,
    describe_envelope,
    read_envelope,
)
from edgesim.fleet.transport.mailbox import Mailbox
from edgesim.fleet.transport.time_bounds import Inbox
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import REMEDY, RunDirectoryError
from edgesim.storage.checkpoint_format import (
    Checkpoint,
    CheckpointError,
    OtherFormatError,
    decode,
    encode,
)
from edgesim.storage.space import WaitForSpace
from edgesim.storage.state_tree import Arrays

LOG_BYTES = 32 * 2**20  # new envelopes in memory of a host, above which checkpoints are written;
LOG_PER_STATE = 1  # but only when they are larger than the state of the device
MAX_SHARE = 0.02  # of a host's time that checkpoints may take

_log = logging.getLogger(__name__)


class NoSoundCheckpointError(EdgesimError):
    """A device's checkpoints are all damaged."""


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """When checkpoints are written.

    Attributes:
        run_digest: names what is trained; a checkpoint of another run is not read.
        every_s: seconds between two checkpoints of a device; more if they would take too much time.
        every_rounds: rounds between two checkpoints; None to go by seconds.
        evaluations: numbers of the evaluations, increasing.
    """

    run_digest: str
    every_s: float
    every_rounds: int | None = None
    evaluations: Sequence[int] = ()


@dataclass(slots=True)
class DeviceRecords:
    """Data that a host keeps for one device, beside the device itself.

    Attributes:
        mailbox: messages that wait to be absorbed.
        log: envelopes that may be asked for again.
        successor: device that took the place of this one; None if there is none.
        sent_bytes: of all messages that it has encoded.
        received_bytes: of all messages that it has absorbed.
        num_rows: rounds that it has recorded.
        last_evaluation: number of the last evaluation for which it has written a snapshot; 0 if
            none.
    """

    mailbox: Mailbox | Inbox
    log: MessageLog
    successor: int | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    num_rows: int = 0
    last_evaluation: int = 0


@dataclass(slots=True)
class _Written:
    """The newest checkpoint of a device.

    Attributes:
        round_index: round of the checkpoint.
        at_s: time of writing, by the wall clock.
        watermarks: next sequence by edge.
        state_bytes: bytes of the vectors.
        covered: watermarks of the checkpoint before, which is read if this one is damaged.
    """

    round_index: int
    at_s: float
    watermarks: Mapping[Edge, int]
    state_bytes: int
    covered: Mapping[Edge, int] = field(default_factory=dict)


class Checkpoints:
    """Writes and reads the checkpoints of one host's devices.

    Args:
        folder: where they lie.
        settings: when they are written.
        num_devices: of this host.
        space: what the folder waits by while its file system is full.
    """

    def __init__(
        self,
        folder: RunDirectory,
        settings: CheckpointSettings,
        num_devices: int,
        space: WaitForSpace | None = None,
    ) -> None:
        self._space = space or WaitForSpace()
        self._folder = folder
        self._settings = settings
        self._num_devices = num_devices
        self._start_s = perf_counter()
        self._written: dict[int, _Written] = {}
        self._cost_s = 0.0

    def is_due(self, device: Device, log: MessageLog) -> bool:
        """Whether a checkpoint of a device between two rounds is due."""
        last = self._written.get(device.index)
        every = self._settings.every_rounds
        if every is not None:
            return device.round_index - (last.round_index if last else 0) >= every
        state_bytes = last.state_bytes if last else 0
        if log.fresh_bytes > max(LOG_BYTES / self._num_devices, LOG_PER_STATE * state_bytes):
            return True  # the only limit of the log's memory
        passed_s = perf_counter() - (last.at_s if last else self._start_s)
        # Checkpoints of all devices together must not take more than their share of the time.
        share_s = self._cost_s * self._num_devices / MAX_SHARE
        return passed_s >= max(self._settings.every_s, share_s)

    def covered(self, device: int, edge: Edge) -> int:
        """Sequence below which the device will never request envelopes of an edge."""
        last = self._written.get(device)
        return last.covered.get(edge, 0) if last else 0

    def write(self, device: Device, records: DeviceRecords) -> None:
        """Write a checkpoint of a device between two rounds."""
        start_s, waits = perf_counter(), self._space.num_waits
        arrays: Arrays = {}
        log, watermarks = records.log, dict(records.mailbox.next_sequences)
        dropped = log.drop_covered()
        envelopes = log.to_write()
        in_order = [*envelopes.copies, *envelopes.own]
        fields = {
            "device": device.state(arrays),
            "watermarks": [[*edge, sequence] for edge, sequence in watermarks.items()],
            "log": log.state(),
            "envelopes": [describe_envelope(envelope) for envelope in in_order],
            "copies": len(envelopes.copies),
            "successor": records.successor,
            "sent_bytes": records.sent_bytes,
            "received_bytes": records.received_bytes,
            "num_rows": records.num_rows,
            "last_evaluation": records.last_evaluation,
        }
        index, round_index = device.index, device.round_index
        checkpoint = Checkpoint(
            device=index,
            round_index=round_index,
            run_digest=self._settings.run_digest,
            fields=fields,
            arrays=arrays,
            blobs=[envelope.data for envelope in in_order],
        )
        self._folder.write_checkpoint(index, round_index, encode(checkpoint))
        log.seal(round_index)
        if records.successor is not None:
            self._write_twin(checkpoint)
        before = self._written.get(index)
        self._written[index] = _Written(
            round_index,
            perf_counter(),
            watermarks,
            sum(array.nbytes for array in arrays.values()),
            before.watermarks if before else {},
        )
        if dropped:
            self._folder.drop_checkpoints(index, dropped)
        # The last two checkpoints of a leaver, and those that waited for space, are not typical.
        if records.successor is None and waits == self._space.num_waits:
            self._cost_s = perf_counter() - start_s

    def _write_twin(self, checkpoint: Checkpoint) -> None:
        """Write the last checkpoint of a leaver a second time, numbered as of the round after.

        Other devices soon drop the messages that the leaver would need to repeat its last round. So
        an older checkpoint could not replace a damaged last one; the copy can.
        """
        last = checkpoint.fields["device"]["round_index"]
        number = last + 1 if checkpoint.round_index == last else last
        twin = replace(checkpoint, round_index=number)
        self._folder.write_checkpoint(checkpoint.device, number, encode(twin))

    def restore(self, device: Device, records: DeviceRecords) -> bool:
        """Restore a new device from its newest usable checkpoint; return False if it has none.

        Records of later rounds are removed, since the device repeats these rounds. Newer
        checkpoints are removed too: one of them might become usable again, and its records would be
        missing.

        Raises:
            NoSoundCheckpointError: there are checkpoints, but none is usable; nothing is removed. A
                checkpoint is not usable if it is damaged or records from before it are lost.
            StorageError: the place does not answer; nothing is removed.
            OtherFormatError: an edgesim with another format wrote them; nothing is removed.
        """
        rounds = self._folder.checkpoint_rounds(device.index)
        checkpoint = self._newest_sound(device.index, rounds)
        round_index = checkpoint.round_index if checkpoint else 0
        for newer in reversed([number for number in rounds if number > round_index]):
            # Newest first: if this is interrupted, the remaining records have no gap.
            self._folder.drop_checkpoints(device.index, [newer])
        self._folder.drop_parts_from(device.index, round_index)
        if checkpoint is None:
            return False
        fields = checkpoint.fields
        device.restore(fields["device"], checkpoint.arrays)
        watermarks = {(s, r): sequence for s, r, sequence in fields["watermarks"]}
        records.mailbox.take_over(watermarks)
        records.log.restore(fields["log"], round_index, _envelopes(checkpoint), rounds)
        records.successor, records.sent_bytes = fields["successor"], fields["sent_bytes"]
        records.received_bytes = fields["received_bytes"]
        records.num_rows, records.last_evaluation = fields["num_rows"], fields["last_evaluation"]
        if records.successor is not None:  # one of the two may be damaged
            self._write_twin(checkpoint)
        self._written[device.index] = _Written(
            round_index,
            perf_counter(),
            watermarks,
            sum(array.nbytes for array in checkpoint.arrays.values()),
        )
        return True

    def envelopes(self, device: int, round_index: int) -> WrittenEnvelopes:
        """Envelopes in a checkpoint.

        Raises:
            CheckpointError: it is damaged.
        """
        return _envelopes(self._read(device, round_index))

    def _newest_sound(self, device: int, rounds: list[int]) -> Checkpoint | None:
        """The newest usable checkpoint; None if there is none.

        A checkpoint is not usable if envelopes that receivers may still need are lost, as after two
        damaged files in a row: a device restored from an older checkpoint sends them again. It is
        not usable either if a record or a snapshot from before it is lost: the device repeats the
        rounds since an older checkpoint and writes it again.
        """
        refused: list[tuple[int, str]] = []
        reasons: list[str] = []
        for round_index in reversed(rounds):
            try:
                checkpoint = self._read(device, round_index)
                older = MessageLog(lambda r: self.envelopes(device, r))
                older.restore(checkpoint.fields["log"], round_index, _envelopes(checkpoint), rounds)
                older.uncovered()
                self._check_records(checkpoint)
            except OtherFormatError:
                raise
            except (CheckpointError, RunDirectoryError) as error:
                refused.append((round_index, str(error)))
                reasons.append(str(error).removesuffix(f"; {REMEDY}"))
                if isinstance(error, RunDirectoryError) and len(reasons) >= KEPT_CHECKPOINTS:
                    break
                continue
            _tell_refused(device, refused, logging.WARNING)
            return checkpoint
        _tell_refused(device, refused, logging.DEBUG)  # the error gives the reason
        if rounds:
            raise NoSoundCheckpointError(
                f"device {device}: none of its {len(rounds)} checkpoints can be used "
                f"({reasons[0]}), and its neighbours no longer have what it would need to begin "
                "anew; bring back from a copy what is lost, or start the run anew"
            )
        return None

    def _check_records(self, checkpoint: Checkpoint) -> None:
        """Check that the records from before a checkpoint exist; they would not be written again.

        Raises:
            RunDirectoryError: something is missing or damaged.
        """
        fields, evaluations = checkpoint.fields, self._settings.evaluations
        left = evaluations[: bisect_right(evaluations, fields["last_evaluation"])]
        self._folder.check_records(
            checkpoint.device, checkpoint.round_index, fields["num_rows"], left
        )

    def _read(self, device: int, round_index: int) -> Checkpoint:
        place = self._folder.checkpoint_place(device, round_index)
        try:
            checkpoint = decode(self._folder.read_checkpoint(device, round_index))
        except CheckpointError as error:
            raise type(error)(f"{place}: {error}") from error
        if checkpoint.run_digest != self._settings.run_digest:
            raise CheckpointError(f"{place}: it belongs to another run")
        if (checkpoint.device, checkpoint.round_index) != (device, round_index):
            raise CheckpointError(f"{place}: of another device or round than its name says")
        return checkpoint


def _tell_refused(device: int, refused: Sequence[tuple[int, str]], level: int) -> None:
    for round_index, reason in refused:
        _log.log(
            level,
            "checkpoint of device %d after round %d can't be used: %s",
            device,
            round_index,
            reason,
        )


def _envelopes(checkpoint: Checkpoint) -> WrittenEnvelopes:
    described = checkpoint.fields["envelopes"]
    envelopes = [
        read_envelope(envelope, data)
        for envelope, data in zip(described, checkpoint.blobs, strict=True)
    ]
    num_copies = checkpoint.fields["copies"]
    return WrittenEnvelopes(envelopes[:num_copies], envelopes[num_copies:])
