"""What a cell that was killed at its beginning leaves, and what may be removed of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import RunDirectoryError
from edgesim.storage.store import Store
from edgesim.sweeps.worker import clear_start, has_begun

KILLED_WRITER = """
import os, signal, sys
from edgesim.storage import files
from edgesim.storage.store import Store
files.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Store.at(sys.argv[1]).write("environment.json", b"{}")
"""


@pytest.mark.parametrize("written", [["run.json"], ["run.json", "run.lock", "scenario.yaml"]])
def test_a_cell_that_was_killed_before_its_first_round_starts_anew(tmp_path, written):
    for name in written:
        (tmp_path / name).write_text("{}")
    (tmp_path / "parts").mkdir()
    writer = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(tmp_path)])
    assert writer.wait() == -signal.SIGKILL
    assert list(tmp_path.glob(".environment.json.*"))
    assert not has_begun(Store.at(tmp_path))
    clear_start(Store.at(tmp_path))
    RunDirectory.check_free(tmp_path)


def test_a_cell_that_has_rounds_is_never_removed(tmp_path):
    kept = tmp_path / "parts" / "device-000000" / "rounds-000000000.parquet"
    kept.parent.mkdir(parents=True)
    for path in (kept, tmp_path / "run.json", tmp_path / "scenario.yaml"):
        path.write_text("{}")
    assert not has_begun(Store.at(tmp_path))
    clear_start(Store.at(tmp_path))
    assert kept.is_file()


def test_a_cell_that_another_process_starts_is_not_removed(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with RunDirectory(tmp_path).held(), pytest.raises(RunDirectoryError, match="still going on"):
        clear_start(Store.at(tmp_path))
    assert (tmp_path / "run.json").is_file()
