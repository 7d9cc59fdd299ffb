"""The log of sent letters: what is asked for is found, whatever is written meanwhile."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from edgesim.fleet.network import LettersLostError
from edgesim.fleet.sent_log import MANY_CHECKPOINTS, SentLog
from edgesim.mail import Letter


def letter(sequence, receiver=1):
    return Letter((0, receiver), sequence, bytes(100) + bytes([sequence]), None, receiver)


class Files:
    """Letters by checkpoint; may be slow to read."""

    def __init__(self):
        self.letters, self.states = {}, {}
        self.asked, self.go_on = Event(), Event()
        self.go_on.set()

    def read(self, round_index):
        self.asked.set()
        assert self.go_on.wait(10)
        return self.letters[round_index]

    def checkpoint(self, log, round_index):
        dropped = log.drop_covered()
        self.states[round_index] = log.state()
        self.letters[round_index] = list(log.fresh)
        log.seal(round_index)
        for old in dropped:
            del self.letters[old]

    def gone_on_from(self, round_index):
        """The log of whoever goes on from that checkpoint, and the files that it finds."""
        copies = Files()
        copies.letters = dict(self.letters)
        log = SentLog(copies.read)
        log.restore(self.states[round_index], sorted(copies.letters))
        log.seal_letters(round_index, copies.letters[round_index])
        return log, copies


def test_letters_that_are_sealed_while_older_ones_are_read_are_not_missed():
    files = Files()
    log = SentLog(files.read)
    log.add([letter(0)])
    files.checkpoint(log, 1)
    log.add([letter(1)])
    files.go_on.clear()
    found = []
    asking = Thread(target=lambda: found.extend(log.letters((0, 1), 0)))
    asking.start()
    assert files.asked.wait(10)
    sealing = Thread(target=lambda: files.checkpoint(log, 2))
    sealing.start()
    sealing.join(0.2)  # it must not get between the two places
    files.go_on.set()
    asking.join(10)
    sealing.join(10)
    assert found == [letter(0), letter(1)]
    assert log.letters((0, 1), 0) == [letter(0), letter(1)]


def test_what_is_covered_goes_and_what_is_asked_for_beyond_it_is_refused():
    files = Files()
    log = SentLog(files.read)
    for sequence in range(4):
        log.add([letter(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
    assert sorted(files.letters) == [3, 4]
    assert log.letters((0, 1), 2) == [letter(2), letter(3)]
    with pytest.raises(LettersLostError, match="asks for message 1 of device 0, which keeps"):
        log.letters((0, 1), 1)


def test_a_letter_on_a_silent_edge_moves_on_and_is_still_found():
    files = Files()
    log = SentLog(files.read)
    log.add([letter(0, receiver=2)])
    for sequence in range(30):
        log.add([letter(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
        assert len(files.letters) <= MANY_CHECKPOINTS + 2
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
