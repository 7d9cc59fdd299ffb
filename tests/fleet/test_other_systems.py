"""Systems other than Linux: macOS does not limit processors; Windows lacks what runs need."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from small_fleets import train

import edgesim
from edgesim.fleet.on_ray import workers
from edgesim.sweeps import pool
from edgesim.system import stay_on, usable_cpus


@pytest.fixture
def no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say")
def test_usable_processors_are_those_that_the_system_allows():
    assert usable_cpus() == sorted(os.sched_getaffinity(0))
    stay_on(usable_cpus())


def test_without_limits_all_processors_may_be_used(no_affinity, monkeypatch):
    assert usable_cpus() == [0, 1, 2]
    stay_on([0])
    assert pool._shares(5, None) == [[0], [1], [2]]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus() == [0]


def test_a_fleet_trains_without_limits(no_affinity, tmp_path):
    here = train(tmp_path, "here", inline=True)
    assert here.path.joinpath("summary.json").exists()


def test_nothing_else_asks_the_system_for_processors():
    """Ray's actors and cells of sweeps are other processes, which no test can rid of a function."""
    asking = [
        path.name
        for path in Path(edgesim.__file__).parent.rglob("*.py")
        if "sched_getaffinity" in (text := path.read_text()) or "sched_setaffinity" in text
    ]
    assert asking == ["system.py"]


@pytest.mark.parametrize(("system", "most"), [("linux", 107), ("darwin", 103)])
def test_paths_of_sockets_are_as_short_as_the_system_asks(monkeypatch, system, most):
    """The fields of addresses have 108 and 104 bytes, of which the last is zero."""
    monkeypatch.setattr(sys, "platform", system)
    assert runpy.run_path(workers.__file__)["_SOCKET_PATH"] == most


ON_WINDOWS = """
import asyncio, os, signal, sys  # asyncio, which asks this system of other things than Windows
for name in ("fcntl", "resource"):
    sys.modules[name] = None  # is not there
for name in ("O_DIRECTORY", "O_NOFOLLOW", "mkfifo", "geteuid", "sysconf", "sched_getaffinity"):
    delattr(os, name)
del signal.SIGHUP
import edgesim
from edgesim.cli import main

def call(*arguments):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        print(ended.code)

call("validate", "quickstart")
call("cost", "quickstart", "--short")
print("trains")
sys.platform = "win32"  # what has been imported by now has its modules for this system
call("run", "quickstart", "--inline")
call("resume", "runs/quickstart")
call("sweep", "quickstart")
for name in ("run", "resume", "sweep"):
    try:
        getattr(edgesim, name)
    except edgesim.EdgesimError as error:
        print(error)
"""


def test_windows_checks_and_reckons_and_is_told_where_to_train(tmp_path):
    told = "edgesim trains on Linux and macOS; on Windows use WSL 2\n"
    found = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    answered, trains = found.stdout.split("trains\n")
    assert "valid, can be run" in answered
    assert answered.count("\n0\n") == 2
    assert trains == 3 * "1\n" + 3 * told
    assert found.stderr.endswith(3 * told)
    assert not list(tmp_path.iterdir())
