"""A full file system holds a run up; when there is space again it goes on, with the same bits."""

from __future__ import annotations

import errno
import logging

import pytest
from rich.console import Console
from small_fleets import assert_same_bits, train

import edgesim
from edgesim.errors import RunStoppedError
from edgesim.fleet.recording import monitor
from edgesim.fleet.run import resume_run
from edgesim.storage import space
from edgesim.storage.files import LocalFiles
from edgesim.storage.space import NoSpaceError, WaitForSpace
from edgesim.storage.store import StorageError, Store

OFTEN = "recovery.checkpoint_every_rounds=1"


class Disk:
    """The file system of this process: full from the write of certain files on, for a while.

    Attributes:
        fills_at: parts of names; a write of a file with such a name fills the disk, once.
        refusals: number of writes that are refused until there is space again.
        refused: names of files that were refused.
    """

    def __init__(self, monkeypatch):
        self.fills_at, self.refusals, self.refused, self._left = set(), 4, [], 0
        monkeypatch.setattr(space, "PAUSE_S", 0.01)
        for method in ("write", "writer", "move"):
            self._guard(monkeypatch, method, getattr(LocalFiles, method))

    def _guard(self, monkeypatch, method, original):
        def guarded(files, *args, **more):
            self._refuse_if_full(" ".join(args[0].values()) if method == "move" else args[0])
            return original(files, *args, **more)

        monkeypatch.setattr(LocalFiles, method, guarded)

    def _refuse_if_full(self, name):
        for part in [part for part in self.fills_at if part in name]:
            self.fills_at.remove(part)
            self._left = self.refusals
        if self._left > 0:
            self._left -= 1
            self.refused.append(name)
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train(tmp_path_factory.mktemp("undisturbed"), "run", OFTEN, inline=True)


def test_a_run_waits_for_space_wherever_it_writes_and_has_the_same_bits(
    tmp_path, disk, undisturbed
):
    places = {
        "checkpoints/device-000002",
        "parts/device-000001",
        "snapshots/round-000000003-device-000000",
        "evaluations.parquet",
        "messages.parquet",
        "models/device-000003",
        "devices.parquet",
        "summary.json",
    }
    disk.fills_at |= places
    result = train(tmp_path, "run", OFTEN, inline=True)
    assert not disk.fills_at
    assert len(disk.refused) >= disk.refusals
    assert_same_bits(result, undisturbed)


def test_a_run_that_waits_for_space_says_so_once_can_be_ended_and_goes_on(
    tmp_path, disk, undisturbed, caplog, monkeypatch
):
    monkeypatch.setattr(monitor, "pause_s", lambda *_: 0.02)
    disk.fills_at, disk.refusals = {"parts/device-000001"}, 10**9

    class CtrlC(edgesim.Sink):
        """Ends the run some looks after it was said that the disk is full."""

        looks = 0

        def update(self, fleet):
            self.looks += "No space left" in caplog.text
            if self.looks > 5:
                raise RunStoppedError("Ctrl-C")

    with caplog.at_level(logging.WARNING), pytest.raises(RunStoppedError):
        train(tmp_path, "run", OFTEN, inline=True, sinks=[CtrlC()])
    said = [line for line in caplog.messages if "waits until there is space" in line]
    assert len(said) == 1
    assert "parts/device-000001" in said[0]
    assert "(No space left on device); make room there: the run waits" in said[0]
    assert "the last rounds can't be written" in caplog.text
    disk._left = 0
    result = resume_run(tmp_path / "run", console=Console(quiet=True))
    assert_same_bits(result, undisturbed)


def test_a_store_waits_only_while_it_is_patient_and_until_it_is_told_to_stop(tmp_path, disk):
    told = []
    waits = WaitForSpace(told.append)
    store = Store.at(tmp_path).patient(waits)
    disk.fills_at = {"a"}
    store.write("a", b"1")
    assert [bool(text) for text in told] == [True, False]
    assert (waits.problem, waits.num_waits) == (None, 1)
    assert store.read("a") == b"1"
    disk.fills_at = {"b"}
    with pytest.raises(NoSpaceError, match="make room"):
        Store.at(tmp_path).write("b", b"1")
    disk._left = 0
    disk.fills_at = {"c"}
    waits.stop()
    with pytest.raises(NoSpaceError, match="make room"):
        store.write("c", b"1")
    disk._left = 0
    store.write("c", b"1")


def test_other_errors_are_not_waited_for(tmp_path):
    store = Store.at(tmp_path).patient(WaitForSpace())
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="a folder stands in its place"):
        store.write("folder", b"")
