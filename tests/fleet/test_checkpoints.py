"""Which letters a receiver lets its senders forget: those that no restart of it can need."""

from __future__ import annotations

import pytest

from edgesim.fleet.checkpoints import Checkpoints, CheckpointSettings, DeviceRecords
from edgesim.fleet.sent_log import SentLog

EDGE, QUIET = (1, 0), (2, 0)


class Device:
    """Stands between two rounds; its state is the round."""

    index = 0

    def __init__(self, round_index=0):
        self.round_index = round_index

    def state(self, arrays):
        return {"round_index": self.round_index}

    def restore(self, state, arrays):
        self.round_index = state["round_index"]


class Folder:
    """Checkpoints of one device in memory."""

    def __init__(self):
        self.files = {}

    def write_checkpoint(self, device, round_index, data):
        self.files[round_index] = data

    def checkpoint_rounds(self, device):
        return sorted(self.files)

    def read_checkpoint(self, device, round_index):
        return self.files[round_index]

    def drop_checkpoints(self, device, rounds):
        for round_index in rounds:
            del self.files[round_index]

    def drop_parts_from(self, device, round_index):
        pass

    def check_records(self, device, round_index, num_rows, moments):
        pass

    def checkpoint_place(self, device, round_index):
        return f"round-{round_index}"


class Watermarks:
    """Of a mailbox: how far it has read on each edge."""

    def __init__(self, next_sequences):
        self.next_sequences = next_sequences

    def take_over(self, next_sequences):
        self.next_sequences = dict(next_sequences)


def records_of(checkpoints, next_sequences):
    log = SentLog(lambda r: checkpoints.letters(0, r))
    return DeviceRecords(Watermarks(next_sequences), log)


@pytest.fixture
def folder():
    return Folder()


def checkpoints_of(folder):
    return Checkpoints(folder, CheckpointSettings("digest", every_s=1.0), num_devices=1)


def test_letters_are_covered_once_two_checkpoints_have_read_them(folder):
    """The older one is gone on from where the newer one is damaged, and asks for letters again."""
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
