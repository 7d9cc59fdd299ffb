"""When checkpoints are written, which is gone on from, and what senders may forget meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from edgesim.device.mail import Envelope
from edgesim.fleet.recovery import checkpoints as module
from edgesim.fleet.recovery.checkpoints import (
    Checkpoints,
    CheckpointSettings,
    DeviceRecords,
    NoSoundCheckpointError,
)
from edgesim.fleet.recovery.message_log import MessageLog, WrittenEnvelopes
from edgesim.results.run_directory import RunDirectoryError
from edgesim.results.run_files import REMEDY
from edgesim.storage import checkpoint_format as checkpoint
from edgesim.storage.checkpoint_format import OtherFormatError, decode

EDGE, QUIET = (1, 0), (2, 0)


class Device:
    """Stands between two rounds; its state is the round, and 100 bytes."""

    index = 0

    def __init__(self, round_index=0):
        self.round_index = round_index

    def state(self, arrays):
        arrays["x"] = np.zeros(100, np.uint8)
        return {"round_index": self.round_index}

    def restore(self, state, arrays):
        assert arrays["x"].tolist() == [0] * 100
        self.round_index = state["round_index"]


class Folder:
    """Checkpoints of one device in memory; knows no other device."""

    def __init__(self):
        self.files, self.done, self.lost_before = {}, [], 0

    def write_checkpoint(self, device, round_index, data):
        assert device == Device.index
        self.files[round_index] = data

    def checkpoint_rounds(self, device):
        assert device == Device.index
        return sorted(self.files)

    def read_checkpoint(self, device, round_index):
        assert device == Device.index
        return self.files[round_index]

    def drop_checkpoints(self, device, rounds):
        assert device == Device.index
        self.done.append(("drop", *rounds))
        for round_index in rounds:
            del self.files[round_index]

    def drop_parts_from(self, device, round_index):
        self.done.append(("drop parts from", device, round_index))

    def check_records(self, device, round_index, num_rows, evaluations):
        self.done.append(("check", device, round_index, num_rows, list(evaluations)))
        if round_index > self.lost_before:
            return
        raise RunDirectoryError(f"a record is lost; {REMEDY}")

    def checkpoint_place(self, device, round_index):
        assert device == Device.index
        return f"round-{round_index}"


class Watermarks:
    """Of a mailbox: how far it has read on each edge."""

    def __init__(self, next_sequences):
        self.next_sequences = next_sequences

    def take_over(self, next_sequences):
        self.next_sequences = dict(next_sequences)


def records_of(checkpoints, next_sequences):
    log = MessageLog(lambda r: checkpoints.envelopes(0, r))
    return DeviceRecords(Watermarks(next_sequences), log)


@pytest.fixture
def folder():
    return Folder()


def checkpoints_of(folder, *, digest="digest", num_devices=1, **settings):
    return Checkpoints(
        folder, CheckpointSettings(digest, **{"every_s": 1.0} | settings), num_devices
    )


@pytest.fixture
def clock(monkeypatch):
    """This machine's clock, which goes on when told, and while a file is written."""

    class Clock:
        now_s = 1000.0

    monkeypatch.setattr(module, "perf_counter", lambda: Clock.now_s)
    return Clock


def test_checkpoints_by_rounds_are_due_so_many_after_the_last(folder):
    checkpoints = checkpoints_of(folder, every_rounds=3)
    records = records_of(checkpoints, {})

    def due(rounds):
        return [r for r in rounds if checkpoints.is_due(Device(r), records.log)]

    assert due(range(6)) == [3, 4, 5]
    checkpoints.write(Device(4), records)
    assert due(range(4, 9)) == [7, 8]


def test_checkpoints_by_time_are_due_so_long_after_the_last_or_the_start(folder, clock):
    checkpoints = checkpoints_of(folder, every_s=10.0)
    records, seen = records_of(checkpoints, {}), []
    for now_s in (1000.0, 1009.9, 1010.0):
        clock.now_s = now_s
        seen.append(checkpoints.is_due(Device(1), records.log))
    checkpoints.write(Device(1), records)
    for now_s in (1019.9, 1020.0):
        clock.now_s = now_s
        seen.append(checkpoints.is_due(Device(2), records.log))
    assert seen == [False, False, True, False, True]


@pytest.mark.parametrize(("successor", "wait_s"), [(None, 50.0), (3, 1.0)])
def test_checkpoints_take_a_fiftieth_of_the_time_at_most(folder, clock, successor, wait_s):
    """0.5 s each, of two devices: 50 s between two. The last one of a leaver is no measure."""
    checkpoints = checkpoints_of(folder, num_devices=2)
    records = records_of(checkpoints, {})
    records.successor = successor
    write = folder.write_checkpoint

    def write_slowly(*arguments):
        clock.now_s += 0.5
        write(*arguments)

    folder.write_checkpoint = write_slowly
    checkpoints.write(Device(1), records)
    written_s = clock.now_s
    clock.now_s = written_s + wait_s - 0.01
    assert not checkpoints.is_due(Device(2), records.log)
    clock.now_s = written_s + wait_s
    assert checkpoints.is_due(Device(2), records.log)


def envelopes_of(num_bytes, sequence=0):
    return [Envelope((0, 1), sequence, bytes(num_bytes), None, 1)]


def test_envelopes_that_outweigh_memory_and_state_make_one_due_at_any_time(
    folder, clock, monkeypatch
):
    """1,000 bytes for two devices; a state of 100 bytes, and then one that is counted ten times."""
    monkeypatch.setattr(module, "LOG_BYTES", 1000)
    checkpoints = checkpoints_of(folder, num_devices=2)
    records = records_of(checkpoints, {})
    records.log.add(envelopes_of(500))
    assert not checkpoints.is_due(Device(1), records.log)
    records.log.add(envelopes_of(100, 1))
    assert checkpoints.is_due(Device(1), records.log)
    checkpoints.write(Device(1), records)
    assert not checkpoints.is_due(Device(1), records.log), "these are on disk now"
    records.log.add(envelopes_of(700, 2))
    assert checkpoints.is_due(Device(2), records.log)
    monkeypatch.setattr(module, "LOG_PER_STATE", 10)
    assert not checkpoints.is_due(Device(2), records.log)


def test_the_last_checkpoint_of_a_leaver_is_there_twice(folder):
    """Either number may be the one under which it is written: the other is its twin's."""
    for number, twin in ((5, 6), (6, 5)):
        folder.files.clear()
        checkpoints = checkpoints_of(folder)
        records = records_of(checkpoints, {})
        records.successor = 3
        device = Device(number)
        device.state = Device(5).state
        checkpoints.write(device, records)
        assert sorted(folder.files) == [5, 6]
        assert [decode(folder.files[r]).round_index for r in (number, twin)] == [number, twin]
        del folder.files[number]
        again, records = Device(), records_of(checkpoints, {})
        assert checkpoints_of(folder).restore(again, records)
        assert (again.round_index, records.successor) == (5, 3)
        assert sorted(folder.files) == [5, 6], "both are there again"


def three_checkpoints(folder, **settings):
    """After rounds 2, 4 and 6; so many bytes sent, rows recorded and evaluations taken part in."""
    checkpoints = checkpoints_of(folder, **settings)
    records = records_of(checkpoints, {})
    for round_index in (2, 4, 6):
        records.log.add(envelopes_of(10, round_index))  # not covered: no checkpoint can go
        records.sent_bytes, records.num_rows = 100 * round_index, round_index - 1
        records.last_evaluation = round_index
        checkpoints.write(Device(round_index), records)
    folder.done.clear()


def restored(folder, **settings):
    checkpoints = checkpoints_of(folder, **settings)
    device, records = Device(), records_of(checkpoints, {})
    return checkpoints.restore(device, records), device, records


def test_the_newest_is_gone_on_from_with_all_that_it_held(folder):
    three_checkpoints(folder)
    is_there, device, records = restored(folder, evaluations=(2, 5, 6, 9))
    assert is_there
    assert device.round_index == 6
    assert (records.sent_bytes, records.num_rows, records.last_evaluation) == (600, 5, 6)
    assert folder.done == [("check", 0, 6, 5, [2, 5, 6]), ("drop parts from", 0, 6)]


def test_envelopes_of_the_one_that_was_gone_on_from_are_found_in_it_later(folder):
    three_checkpoints(folder)
    checkpoints = checkpoints_of(folder)
    records = records_of(checkpoints, {})
    assert checkpoints.restore(Device(), records)
    records.log.add(envelopes_of(10, 7))
    checkpoints.write(Device(7), records)
    assert records.log.envelopes((0, 1), 6) == [*envelopes_of(10, 6), *envelopes_of(10, 7)]


def test_envelopes_of_a_damaged_one_are_found_in_the_one_that_is_gone_on_from(folder):
    three_checkpoints(folder)
    folder.files[4] = b"damaged"
    checkpoints = checkpoints_of(folder)
    device, records = Device(), records_of(checkpoints, {})
    assert checkpoints.restore(device, records)
    assert device.round_index == 6
    assert records.log.uncovered() == [
        *envelopes_of(10, 2),
        *envelopes_of(10, 4),
        *envelopes_of(10, 6),
    ]
    assert checkpoints.envelopes(0, 6) == WrittenEnvelopes(envelopes_of(10, 4), envelopes_of(10, 6))


def test_what_is_gone_on_from_counts_as_written_just_now(folder, clock):
    three_checkpoints(folder)
    by_rounds, by_time = (
        checkpoints_of(folder, **when) for when in ({"every_rounds": 3}, {"every_s": 10.0})
    )
    records = records_of(by_rounds, {})
    for checkpoints in (by_rounds, by_time):
        assert checkpoints.restore(Device(), records)
    assert [r for r in range(6, 12) if by_rounds.is_due(Device(r), records.log)] == [9, 10, 11]
    clock.now_s += 9.9
    assert not by_time.is_due(Device(7), records.log)
    clock.now_s += 0.1
    assert by_time.is_due(Device(7), records.log)


def test_one_goes_once_two_newer_ones_are_there_and_its_envelopes_are_covered(folder):
    checkpoints = checkpoints_of(folder)
    records = records_of(checkpoints, {})
    records.log.add(envelopes_of(10))
    kept = []
    for round_index in (1, 2, 3, 4):
        if round_index == 4:
            records.log.cover((0, 1), 1)
        checkpoints.write(Device(round_index), records)
        kept.append(sorted(folder.files))
    assert kept == [[1], [1, 2], [1, 2, 3], [3, 4]]


def test_without_any_a_device_begins_anew(folder):
    is_there, device, _ = restored(folder)
    assert not is_there
    assert device.round_index == 0
    assert folder.done == [("drop parts from", 0, 0)]


def test_one_whose_records_are_lost_is_passed_over_and_removed_before_them(folder, caplog):
    three_checkpoints(folder)
    checks = folder.check_records

    def check(device, round_index, num_rows, evaluations):
        checks(device, round_index, num_rows, evaluations)
        if round_index == 6:
            raise RunDirectoryError("a record is lost")

    folder.check_records = check
    _, device, _ = restored(folder)
    assert device.round_index == 4
    assert "device 0 after round 6 can't be used: a record is lost" in caplog.text
    assert folder.done[-2:] == [("drop", 6), ("drop parts from", 0, 4)]


def test_where_records_of_two_are_lost_older_ones_are_not_asked(folder, caplog):
    """Neighbours may have dropped what these would need."""
    three_checkpoints(folder)
    folder.lost_before = 6
    with (
        caplog.at_level("DEBUG"),
        pytest.raises(NoSoundCheckpointError, match=r"none of its 3 .* \(a record is lost\)"),
    ):
        restored(folder)
    assert "checkpoint of device 0 after round 6 can't be used: a record is lost" in caplog.text
    assert [done[2] for done in folder.done] == [6, 4], "and nothing is removed"


def test_checkpoints_of_another_run_device_or_round_are_not_gone_on_from(folder, caplog):
    three_checkpoints(folder)
    folder.files[6] = folder.files[4]
    _, device, _ = restored(folder)
    assert device.round_index == 4
    assert "round-6: of another device or round than its name says" in caplog.text
    with pytest.raises(NoSoundCheckpointError, match="round-4: it belongs to another run"):
        restored(folder, digest="other")


def test_those_of_a_newer_program_are_left_alone(folder, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(checkpoint, "FORMAT_VERSION", checkpoint.FORMAT_VERSION + 1)
        three_checkpoints(folder)
    before = dict(folder.files)
    with pytest.raises(OtherFormatError, match="round-6: "):
        restored(folder)
    assert folder.files == before
    assert folder.done == []


def test_envelopes_are_covered_once_two_checkpoints_have_read_them(folder):
    """The older one is gone on from where the newer one is damaged: envelopes are asked for."""
    checkpoints = checkpoints_of(folder)
    records = records_of(checkpoints, {})
    covered = []
    for round_index, read in enumerate((3, 5, 8), start=1):
        records.mailbox.next_sequences = {EDGE: read}
        checkpoints.write(Device(round_index), records)
        covered.append(checkpoints.covered(0, EDGE))
    assert covered == [0, 3, 5]
    assert checkpoints.covered(0, QUIET) == checkpoints.covered(7, EDGE) == 0


def test_one_that_went_on_from_an_older_checkpoint_still_finds_what_is_not_covered(folder):
    checkpoints = checkpoints_of(folder)
    records = records_of(checkpoints, {})
    for round_index, read in enumerate((3, 5, 8), start=1):
        records.mailbox.next_sequences = {EDGE: read}
        checkpoints.write(Device(round_index), records)
    folder.files[3] = b"damaged"
    again = checkpoints_of(folder)
    device, records = Device(), records_of(again, {})
    assert again.restore(device, records)
    assert (device.round_index, records.mailbox.next_sequences) == (2, {EDGE: 5})
    assert checkpoints.covered(0, EDGE) <= 5, "what it asks for next is still there"
    assert again.covered(0, EDGE) == 0, "of the one before it, nothing was read"
    records.mailbox.next_sequences = {EDGE: 6}
    device.round_index = 3
    again.write(device, records)
    assert again.covered(0, EDGE) == 5
