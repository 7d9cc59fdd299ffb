"""A run outlasts those who look at it: a closed terminal, a pipe without a reader, a full disk."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
SHORT = ("training.rounds=2", "evaluation.samples=10", "fleet.devices=4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def start(out: Path, **streams) -> subprocess.Popen[str]:
    changes = [word for change in SHORT for word in ("--set", change)]
    command = [sys.executable, "-m", "edgesim", "run", str(QUICKSTART), "--inline", *changes]
    environment = {**os.environ, "TERM": "xterm"}
    return subprocess.Popen([*command, "--out", str(out)], text=True, env=environment, **streams)


def take_terminal() -> None:
    """Make standard input the terminal that this process hangs on."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def runs(folder):
    """Three runs at once, by what becomes of their output."""
    ours, theirs = os.openpty()
    with Path("/dev/full").open("w") as full:
        started = {
            "disk": start(folder / "disk", stdout=full, stderr=subprocess.PIPE),
            "pipe": start(folder / "pipe", stdout=subprocess.PIPE, stderr=subprocess.PIPE),
            "terminal": start(
                folder / "terminal",
                **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
                start_new_session=True,
                preexec_fn=take_terminal,
            ),
        }
    os.close(theirs)
    started["pipe"].stdout.close()
    said = b""
    while b"reading" not in said:  # what is being done is shown at once
        said += os.read(ours, 1000)
    os.close(ours)  # the kernel sends SIGHUP
    yield started
    for process in started.values():
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize("gone", ["pipe", "terminal"])
def test_a_run_goes_on_where_nobody_reads_any_more(runs, folder, gone):
    assert runs[gone].wait(200) == 0
    assert (folder / gone / "summary.json").is_file()


def test_a_run_goes_on_where_the_disk_behind_its_output_is_full_and_says_so(runs, folder):
    _, said = runs["disk"].communicate(timeout=200)
    assert (folder / "disk" / "summary.json").is_file()
    assert said.splitlines()[-1] == "can't write the answer: no space left on device"
    assert runs["disk"].returncode == 1
