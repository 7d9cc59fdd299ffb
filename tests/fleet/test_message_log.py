"""The message log: what is asked for is found, whatever is written meanwhile."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from threading import Event, Thread

import pytest

from edgesim.compression.wire import HEADER
from edgesim.device.mail import Envelope
from edgesim.fleet.recovery import message_log
from edgesim.fleet.recovery.message_log import (
    MANY_CHECKPOINTS,
    MessageLog,
    WrittenEnvelopes,
    describe_envelope,
    read_envelope,
)
from edgesim.fleet.transport.network import EnvelopesLostError
from edgesim.hardware.timeline import Stamp
from edgesim.storage.checkpoint_format import CheckpointError
from edgesim.storage.store import StorageError


def envelope(sequence, receiver=1):
    return Envelope((0, receiver), sequence, bytes(100) + bytes([sequence]), None, receiver)


class Files:
    """Envelopes by checkpoint; may be slow to read, or damaged."""

    def __init__(self):
        self.envelopes, self.states, self.damaged = {}, {}, set()
        self.error = CheckpointError
        self.asked, self.go_on = Event(), Event()
        self.go_on.set()

    def read(self, round_index):
        self.asked.set()
        assert self.go_on.wait(10)
        if round_index in self.damaged:
            raise self.error("damaged")
        return self.envelopes[round_index]

    def checkpoint(self, log, round_index):
        dropped = log.drop_covered()
        self.states[round_index] = log.state()
        self.envelopes[round_index] = log.to_write()
        log.seal(round_index)
        for old in dropped:
            del self.envelopes[old]

    def gone_on_from(self, round_index):
        """The log of whoever goes on from that checkpoint, and the files that it finds."""
        copies = Files()
        copies.envelopes = dict(self.envelopes)
        log = MessageLog(copies.read)
        copies.damaged, copies.error = set(self.damaged), self.error
        log.restore(
            self.states[round_index],
            round_index,
            self.envelopes[round_index],
            sorted(self.envelopes),
        )
        return log, copies


def test_envelopes_that_are_sealed_while_older_ones_are_read_are_not_missed():
    files = Files()
    log = MessageLog(files.read)
    log.add([envelope(0)])
    files.checkpoint(log, 1)
    log.add([envelope(1)])
    files.checkpoint(log, 2)
    log.add([envelope(2)])
    files.go_on.clear()
    found = []
    asking = Thread(target=lambda: found.extend(log.envelopes((0, 1), 0)))
    asking.start()
    assert files.asked.wait(10)
    sealing = Thread(target=lambda: files.checkpoint(log, 3))
    sealing.start()
    sealing.join(0.2)  # it must not get between the two places
    files.go_on.set()
    asking.join(10)
    sealing.join(10)
    assert found == [envelope(0), envelope(1), envelope(2)]
    assert log.envelopes((0, 1), 0) == found


def test_what_is_covered_goes_and_what_is_asked_for_beyond_it_is_refused():
    files = Files()
    log = MessageLog(files.read)
    for sequence in range(4):
        log.add([envelope(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
    assert sorted(files.envelopes) == [3, 4]
    assert log.envelopes((0, 1), 2) == [envelope(2), envelope(3)]
    with pytest.raises(
        EnvelopesLostError, match="asks for message 1 of device 0, which keeps"
    ) as e:
        log.envelopes((0, 1), 1)
    assert str(e.value).endswith("damaged; bring them back from a copy, or start the run anew")


def test_an_envelope_on_a_silent_edge_moves_on_and_is_still_found():
    files = Files()
    log = MessageLog(files.read)
    log.add([envelope(0, receiver=2)])
    for sequence in range(30):
        log.add([envelope(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
        assert len(files.envelopes) <= MANY_CHECKPOINTS + 1
        assert log.envelopes((0, 2), 0) == [envelope(0, receiver=2)]
    assert 1 not in files.envelopes


def test_an_envelope_that_has_moved_on_is_found_from_the_newest_checkpoint_and_the_one_before():
    files = Files()
    log = MessageLog(files.read)
    silent = envelope(0, receiver=2)
    log.add([silent])
    for sequence in range(30):
        log.add([envelope(sequence)])
        log.cover((0, 1), sequence)
        newest = sequence + 1
        files.checkpoint(log, newest)
        for round_index in (newest, newest - 1)[: 1 + sequence]:
            again, copies = files.gone_on_from(round_index)
            assert again.envelopes((0, 2), 0) == [silent]
            assert silent in again.uncovered()
            for later in range(round_index + 1, round_index + 10):
                copies.checkpoint(again, later)
            assert silent in again.uncovered()


@pytest.mark.parametrize("error", [CheckpointError, StorageError])
@pytest.mark.parametrize("damaged", [1, 2, 3, 4])
def test_one_damaged_file_takes_no_envelope_along(damaged, error, caplog):
    files = Files()
    files.error = error
    log = MessageLog(files.read)
    sent = [envelope(sequence, receiver) for sequence in range(5) for receiver in (1, 2)]
    for sequence in range(5):
        if sequence:
            files.checkpoint(log, sequence)
        log.add(sent[2 * sequence : 2 * sequence + 2])
    files.damaged = {damaged}
    assert log.envelopes((0, 1), 0) == sent[::2]
    assert log.uncovered() == sent
    assert ("damaged; the envelopes in it are taken" in caplog.text) == (damaged < 4)
    if damaged < 4:  # otherwise the one before is gone on from
        again, _ = files.gone_on_from(4)
        assert again.envelopes((0, 2), 1) == sent[3:-2:2]
        assert again.uncovered() == sent[:-2]


def test_two_damaged_files_in_a_row_are_not_passed_over():
    files = Files()
    log = MessageLog(files.read)
    for sequence in range(4):
        log.add([envelope(sequence)])
        files.checkpoint(log, sequence + 1)
    files.damaged = {2, 3}
    assert log.envelopes((0, 2), 0) == [], "nothing of that edge is in them"
    with pytest.raises(CheckpointError):
        log.envelopes((0, 1), 0)
    with pytest.raises(CheckpointError):
        log.uncovered()
    log.cover((0, 1), 3)
    assert log.envelopes((0, 1), 3) == log.uncovered() == [envelope(3)]


def test_files_without_copies_make_up_for_no_damaged_one():
    files = Files()
    log = MessageLog(files.read)
    for sequence in range(3):
        log.add([envelope(sequence)])
        files.checkpoint(log, sequence + 1)
        files.envelopes[sequence + 1] = WrittenEnvelopes([], files.envelopes[sequence + 1].own)
    assert log.envelopes((0, 1), 0) == [envelope(0), envelope(1), envelope(2)]
    files.damaged = {1}
    with pytest.raises(CheckpointError):
        log.envelopes((0, 1), 0)


def test_covered_envelopes_that_went_with_a_damaged_file_are_no_hole_in_what_is_sent():
    files = Files()
    log = MessageLog(files.read)
    silent = envelope(0, receiver=2)
    log.add([envelope(0), silent])
    files.checkpoint(log, 1)
    log.add([envelope(1)])
    files.checkpoint(log, 2)
    log.cover((0, 1), 2)
    log.add([envelope(2)])
    files.checkpoint(log, 3)
    assert log.envelopes((0, 1), 0) == [envelope(0), envelope(1), envelope(2)]
    files.damaged = {2}
    with pytest.raises(EnvelopesLostError, match="asks for message 1 of device 0, which keeps"):
        log.envelopes((0, 1), 0)
    assert log.envelopes((0, 1), 2) == [envelope(2)]


def test_in_memory_are_what_no_checkpoint_holds_and_one_payload_for_all_receivers():
    files = Files()
    log = MessageLog(files.read)
    log.add([envelope(0), envelope(0, receiver=2)])
    assert log.fresh_bytes == 101 + HEADER.size
    files.checkpoint(log, 1)
    assert log.fresh_bytes == 0
    log.add([envelope(1)])
    assert log.fresh_bytes == 101


def test_the_memory_of_a_log_is_little_more_than_the_bytes_of_its_envelopes():
    """A device of a large fleet keeps a thousand envelopes; as objects they would take far more."""
    log = MessageLog(Files().read)
    payload, receivers = bytes(1300), range(1, 25)  # Python keeps freed tuples of up to 20 entries
    heads = {receiver: bytes([receiver]) * HEADER.size for receiver in receivers}
    tracemalloc.start()
    try:
        for sequence in range(100):
            log.add(
                Envelope((0, receiver), sequence, head + payload, None, receiver)
                for receiver, head in heads.items()
            )
        allocated = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    by_log = allocated.filter_traces([tracemalloc.Filter(True, message_log.__file__)])
    held = sum(trace.size for trace in by_log.traces)
    assert log.fresh_bytes == 100 * (len(payload) + 24 * HEADER.size)
    # Beside the bytes: eight for each sequence, and 300 for the four objects of a round.
    assert held <= log.fresh_bytes + 100 * (24 * 8 + 300)


def test_what_was_logged_together_is_given_back_one_by_one():
    stamps = [Stamp(1.0, 2.0, 3.0, 0.5, 4, 500, 0.75, 6.0), None]
    sent = [
        Envelope((0, receiver), 7, bytes([receiver]) * 100 + bytes(50), stamp, receiver)
        for receiver, stamp in zip((1, 2), stamps, strict=True)
    ]
    log = MessageLog(Files().read)
    log.add(sent)
    assert log.uncovered() == sent
    assert [log.envelopes(each.edge, 7) for each in sent] == [[sent[0]], [sent[1]]]


@pytest.mark.parametrize("stamp", [None, Stamp(1.0, 2.0, 3.0, 0.5, 4, 500, 0.75, 6.0)])
def test_an_envelope_is_read_as_it_was_described(stamp):
    sent = replace(envelope(3), stamp=stamp)
    described = json.loads(json.dumps(describe_envelope(sent)))
    assert read_envelope(described, sent.data) == sent


def test_what_is_covered_stays_so_and_nothing_else_is():
    log = MessageLog(Files().read)
    sent = [envelope(sequence) for sequence in range(3)]
    log.add(sent)
    log.cover((0, 1), 0)
    assert log.uncovered() == sent
    log.cover((0, 1), 2)
    log.cover((0, 1), 1)
    assert log.uncovered() == sent[2:]


def test_what_is_asked_for_below_what_is_covered_is_refused_also_where_nothing_is_kept():
    log = MessageLog(Files().read)
    log.cover((0, 1), 3)
    with pytest.raises(EnvelopesLostError, match=r"asks for message 1 of device 0, .* from 3 on"):
        log.envelopes((0, 1), 1)
    assert log.envelopes((0, 1), 3) == []
    assert log.envelopes((0, 2), 0) == []


def test_covered_envelopes_are_written_once():
    files = Files()
    log = MessageLog(files.read)
    log.add([envelope(0), envelope(0, receiver=2)])
    files.checkpoint(log, 1)
    log.cover((0, 1), 1)
    log.add([envelope(1)])
    files.checkpoint(log, 2)
    assert files.envelopes[2] == WrittenEnvelopes([envelope(0, receiver=2)], [envelope(1)])


def test_an_envelope_on_a_silent_edge_outlives_a_damaged_file():
    files = Files()
    log = MessageLog(files.read)
    silent = envelope(0, receiver=2)
    log.add([silent])
    for sequence in range(40):
        log.add([envelope(sequence)])
        log.cover((0, 1), sequence)
        files.checkpoint(log, sequence + 1)
        if sequence % 3 == 0:
            files.damaged.add(sequence + 1)
        assert log.envelopes((0, 2), 0) == [silent]
        own = sum(silent in written.own for written in files.envelopes.values())
        assert own <= 2  # it moves on as one, however often it is copied
