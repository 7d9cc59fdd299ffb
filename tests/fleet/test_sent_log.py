"""The log of sent letters: what is asked for is found, whatever is written meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Event, Thread

import pytest

from edgesim.compression.wire import HEADER
from edgesim.device.mail import Letter
from edgesim.fleet.recovery.sent_log import (
    MANY_CHECKPOINTS,
    SentLog,
    WrittenLetters,
    describe_letter,
    read_letter,
)
from edgesim.fleet.transport.network import LettersLostError
from edgesim.hardware.timeline import Stamp
from edgesim.storage.checkpoint_format import CheckpointError
from edgesim.storage.store import StorageError


def letter(sequence, receiver=1):
    return Letter((0, receiver), sequence, bytes(100) + bytes([sequence]), None, receiver)


class Files:
    """Letters by checkpoint; may be slow to read, or damaged."""

    def __init__(self):
        self.letters, self.states, self.damaged = {}, {}, set()
        self.error = CheckpointError
        self.asked, self.go_on = Event(), Event()
        self.go_on.set()

    def read(self, round_index):
        self.asked.set()
        assert self.go_on.wait(10)
        if round_index in self.damaged:
            raise self.error("damaged")
        return self.letters[round_index]

    def checkpoint(self, log, round_index):
        dropped = log.drop_covered()
        self.states[round_index] = log.state()
        self.letters[round_index] = log.to_write()
        log.seal(round_index)
        for old in dropped:
            del self.letters[old]

    def gone_on_from(self, round_index):
        """The log of whoever goes on from that checkpoint, and the files that it finds."""
        copies = Files()
        copies.letters = dict(self.letters)
        log = SentLog(copies.read)
        copies.damaged, copies.error = set(self.damaged), self.error
        log.restore(
            self.states[round_index], round_index, self.letters[round_index], sorted(self.letters)
        )
        return log, copies


def test_letters_that_are_sealed_while_older_ones_are_read_are_not_missed():
    files = Files()
    log = SentLog(files.read)
    log.add([letter(0)])
    files.checkpoint(log, 1)
    log.add([letter(1)])
    files.checkpoint(log, 2)
    log.add([letter(2)])
    files.go_on.clear()
    found = []
    asking = Thread(target=lambda: found.extend(log.letters((0, 1), 0)))
    asking.start()
    assert files.asked.wait(10)
    sealing = Thread(target=lambda: files.checkpoint(log, 3))
    sealing.start()
    sealing.join(0.2)  # it must not get between the two places
    files.go_on.set()
    asking.join(10)
    sealing.join(10)
    assert found == [letter(0), letter(1), letter(2)]
    assert log.letters((0, 1), 0) == found


def test_what_is_covered_goes_and_what_is_asked_for_beyond_it_is_refused():
    files = Files()
    log = SentLog(files.read)
    for sequence in range(4):
        log.add([letter(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
    assert sorted(files.letters) == [3, 4]
    assert log.letters((0, 1), 2) == [letter(2), letter(3)]
    with pytest.raises(LettersLostError, match="asks for message 1 of device 0, which keeps") as e:
        log.letters((0, 1), 1)
    assert str(e.value).endswith("damaged; bring them back from a copy, or start the run anew")


def test_a_letter_on_a_silent_edge_moves_on_and_is_still_found():
    files = Files()
    log = SentLog(files.read)
    log.add([letter(0, receiver=2)])
    for sequence in range(30):
        log.add([letter(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
        assert len(files.letters) <= MANY_CHECKPOINTS + 1
        assert log.letters((0, 2), 0) == [letter(0, receiver=2)]
    assert 1 not in files.letters


def test_a_letter_that_has_moved_on_is_found_from_the_newest_checkpoint_and_the_one_before():
    files = Files()
    log = SentLog(files.read)
    silent = letter(0, receiver=2)
    log.add([silent])
    for sequence in range(30):
        log.add([letter(sequence)])
        log.cover((0, 1), sequence)
        newest = sequence + 1
        files.checkpoint(log, newest)
        for round_index in (newest, newest - 1)[: 1 + sequence]:
            again, copies = files.gone_on_from(round_index)
            assert again.letters((0, 2), 0) == [silent]
            assert silent in again.uncovered()
            for later in range(round_index + 1, round_index + 10):
                copies.checkpoint(again, later)
            assert silent in again.uncovered()


@pytest.mark.parametrize("error", [CheckpointError, StorageError])
@pytest.mark.parametrize("damaged", [1, 2, 3, 4])
def test_one_damaged_file_takes_no_letter_along(damaged, error, caplog):
    files = Files()
    files.error = error
    log = SentLog(files.read)
    sent = [letter(sequence, receiver) for sequence in range(5) for receiver in (1, 2)]
    for sequence in range(5):
        if sequence:
            files.checkpoint(log, sequence)
        log.add(sent[2 * sequence : 2 * sequence + 2])
    files.damaged = {damaged}
    assert log.letters((0, 1), 0) == sent[::2]
    assert log.uncovered() == sent
    assert ("damaged; the letters in it are taken" in caplog.text) == (damaged < 4)
    if damaged < 4:  # otherwise the one before is gone on from
        again, _ = files.gone_on_from(4)
        assert again.letters((0, 2), 1) == sent[3:-2:2]
        assert again.uncovered() == sent[:-2]


def test_two_damaged_files_in_a_row_are_not_passed_over():
    files = Files()
    log = SentLog(files.read)
    for sequence in range(4):
        log.add([letter(sequence)])
        files.checkpoint(log, sequence + 1)
    files.damaged = {2, 3}
    assert log.letters((0, 2), 0) == [], "nothing of that edge is in them"
    with pytest.raises(CheckpointError):
        log.letters((0, 1), 0)
    with pytest.raises(CheckpointError):
        log.uncovered()
    log.cover((0, 1), 3)
    assert log.letters((0, 1), 3) == log.uncovered() == [letter(3)]


def test_files_without_copies_make_up_for_no_damaged_one():
    files = Files()
    log = SentLog(files.read)
    for sequence in range(3):
        log.add([letter(sequence)])
        files.checkpoint(log, sequence + 1)
        files.letters[sequence + 1] = WrittenLetters([], files.letters[sequence + 1].own)
    assert log.letters((0, 1), 0) == [letter(0), letter(1), letter(2)]
    files.damaged = {1}
    with pytest.raises(CheckpointError):
        log.letters((0, 1), 0)


def test_covered_letters_that_went_with_a_damaged_file_are_no_hole_in_what_is_sent():
    files = Files()
    log = SentLog(files.read)
    silent = letter(0, receiver=2)
    log.add([letter(0), silent])
    files.checkpoint(log, 1)
    log.add([letter(1)])
    files.checkpoint(log, 2)
    log.cover((0, 1), 2)
    log.add([letter(2)])
    files.checkpoint(log, 3)
    assert log.letters((0, 1), 0) == [letter(0), letter(1), letter(2)]
    files.damaged = {2}
    with pytest.raises(LettersLostError, match="asks for message 1 of device 0, which keeps"):
        log.letters((0, 1), 0)
    assert log.letters((0, 1), 2) == [letter(2)]


def test_in_memory_are_what_no_checkpoint_holds_and_one_payload_for_all_receivers():
    files = Files()
    log = SentLog(files.read)
    log.add([letter(0), letter(0, receiver=2)])
    assert log.fresh_bytes == 101 + HEADER.size
    assert [kept.letter.data for kept in log._fresh] == [b"", b""]
    files.checkpoint(log, 1)
    assert log.fresh_bytes == 0
    log.add([letter(1)])
    assert log.fresh_bytes == 101


@pytest.mark.parametrize("stamp", [None, Stamp(1.0, 2.0, 3.0, 0.5, 4, 500, 0.75, 6.0)])
def test_a_letter_is_read_as_it_was_described(stamp):
    sent = replace(letter(3), stamp=stamp)
    described = json.loads(json.dumps(describe_letter(sent)))
    assert read_letter(described, sent.data) == sent


def test_what_is_covered_stays_so_and_nothing_else_is():
    log = SentLog(Files().read)
    sent = [letter(sequence) for sequence in range(3)]
    log.add(sent)
    log.cover((0, 1), 0)
    assert log.uncovered() == sent
    log.cover((0, 1), 2)
    log.cover((0, 1), 1)
    assert log.uncovered() == sent[2:]


def test_what_is_asked_for_below_what_is_covered_is_refused_also_where_nothing_is_kept():
    log = SentLog(Files().read)
    log.cover((0, 1), 3)
    with pytest.raises(LettersLostError, match=r"asks for message 1 of device 0, .* from 3 on"):
        log.letters((0, 1), 1)
    assert log.letters((0, 1), 3) == []
    assert log.letters((0, 2), 0) == []


def test_covered_letters_are_written_once():
    files = Files()
    log = SentLog(files.read)
    log.add([letter(0), letter(0, receiver=2)])
    files.checkpoint(log, 1)
    log.cover((0, 1), 1)
    log.add([letter(1)])
    files.checkpoint(log, 2)
    assert files.letters[2] == WrittenLetters([letter(0, receiver=2)], [letter(1)])


def test_a_letter_on_a_silent_edge_outlives_a_damaged_file():
    files = Files()
    log = SentLog(files.read)
    silent = letter(0, receiver=2)
    log.add([silent])
    for sequence in range(40):
        log.add([letter(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
        if sequence % 3 == 0:
            files.damaged.add(sequence + 1)
        assert log.letters((0, 2), 0) == [silent]
        own = sum(silent in written.own for written in files.letters.values())
        assert own <= 2  # it moves on as one, however often it is copied
