"""A Ray of our own: who can reach it while it runs, and what is left of it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from process_trees import (
    MARK,
    actors_below,
    alive,
    command_line,
    is_loopback,
    marked,
    open_doors,
    tree,
    wait_for,
    wait_until_round,
    with_interrupts,
)
from rich.console import Console
from small_fleets import assert_same_bits, train
from thorough import THOROUGH

from edgesim.cli.answers import result_table
from edgesim.fleet.on_ray import own_ray
from edgesim.fleet.on_ray.placement import FleetError
from edgesim.fleet.on_ray.workers import Workers, folder_of_session
from edgesim.fleet.run import resume_run

NAMES = ["gateway", "attic", "cellar", "barn"]
LONG = (
    f"training.rounds={60 if THOROUGH else 30}",
    f"fleet.devices=[{{profile: raspberry-pi-4b, names: [{', '.join(NAMES)}]}}]",
    "recovery.checkpoint_every_rounds=2",
    "evaluation.every_rounds=30",
    "fleet.devices_per_actor=2",
)


@pytest.fixture
def common() -> Iterator[Path]:
    """In place of /tmp, with a short path, so that nothing of others is in it."""
    with tempfile.TemporaryDirectory(
        prefix="es-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.fixture
def start(common: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a run of a user who has set nothing; all that is left of it is killed.

    The user's terminal is the leader of a group of processes, which an interrupt reaches.
    """
    home = tmp_path / "home"
    home.mkdir()
    set_here = ("RAY_", "OMP_NUM_THREADS")
    own = {k: v for k, v in os.environ.items() if not k.startswith(set_here)}
    own |= {"TMPDIR": str(common), "HOME": str(home), MARK: str(tmp_path)}
    processes = []

    def run(*words: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            with_interrupts(signal.SIG_DFL, sys.executable, "-m", "edgesim", *words),
            env=own,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
    for left in marked(str(tmp_path)):
        left.kill()
    for process in processes:
        process.communicate()


Start = Callable[..., subprocess.Popen[str]]


def sets(overrides: Sequence[str]) -> list[str]:
    return [f"--set={override}" for override in overrides]


@pytest.mark.ray
@pytest.mark.timeout(600)  # two drivers, one after the other
def test_a_ray_of_our_own_is_closed_to_others_and_leaves_nothing_however_its_run_ends(
    tmp_path: Path,
    common: Path,
    start: Start,
    started_ray: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run whose driver is killed goes on, is interrupted, goes on again, and has the same bits.

    It goes on in the end with the Ray of this process. What is left where all processes are killed
    at once is held by test_private_folder.py. In `make test` it is not interrupted: test_run.py
    interrupts one on the Ray of this process.
    """
    calm = train(tmp_path, "calm", *LONG, inline=True)
    scenario, run = tmp_path / "scenario.yaml", tmp_path / "run"
    first = start("run", scenario, *sets(LONG), "--out", run)
    wait_until_round(run, 4, first)
    (folder,) = common.iterdir()
    processes = tree(first)
    actors = actors_below(processes[0])
    for actor in actors:
        actor.suspend()  # so that the run does not end meanwhile
    check_doors(processes)
    programs = [Path(word).name for process in processes for word in command_line(process)]
    assert "log_monitor.py" in programs
    assert "monitor.py" not in programs, "no autoscaler"
    check_folder(folder, tmp_path / "home")
    url, token = check_token(first, folder)
    check_names(url, token)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(common))
    with folder_of_session(Console(file=io.StringIO())) as mine:
        assert set(common.iterdir()) == {folder, mine}, "nothing of a living run is removed"
    for actor in actors:
        actor.resume()
    first.kill()
    first.wait()
    wait_for(lambda: not alive(processes), None)
    wait_for(lambda: list(common.iterdir()) == [], None)

    if THOROUGH:
        interrupt_once_more(run, common, start)
    with (tmp_path / "log").open("w") as log:
        resumed = resume_run(run, console=Console(file=log))
    assert_same_bits(calm, resumed)
    summary = json.loads((run / "summary.json").read_text())
    resumes = 2 if THOROUGH else 1
    assert (summary["resumes"], summary["actor_restarts"]) == (resumes, 0)
    assert dict(result_table(summary, "").rows)["times resumed"] == str(resumes)


def interrupt_once_more(run: Path, common: Path, start: Start) -> None:
    """The run goes on with a Ray of its own, and all that is left of it are its own files."""
    newest = max(int(path.stem.rpartition("-")[2]) for path in run.glob("checkpoints/*/*.ckpt"))
    second = start("resume", run, "--no-dashboard")
    wait_until_round(run, newest + 4, second)
    os.killpg(second.pid, signal.SIGINT)
    output, _ = second.communicate(timeout=250)
    assert second.returncode == 130, output
    assert "Traceback" not in output
    assert "go on with: edgesim resume" in output
    wait_for(lambda: not marked(str(run.parent)), None)
    assert list(common.iterdir()) == []


def check_doors(processes: list[psutil.Process]) -> None:
    doors = open_doors(processes)
    assert {"gcs_server", "raylet"} <= doors.keys(), doors
    assert any(name.startswith("ray::DeviceActor") for name in doors), doors
    assert any(name.startswith("ray::DashboardAgent") for name in doors), doors
    outer = {name: [a for a in found if not is_loopback(a)] for name, found in doors.items()}
    assert not any(outer.values()), outer


def check_folder(folder: Path, home: Path) -> None:
    """Ray opens its folders to all: ours around them is closed, and all its files are in it."""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert (folder / "r" / "session_latest" / "sockets" / "raylet").is_socket()
    assert (folder / "socket").is_socket(), "of the fork server"
    assert list(folder.glob("edgesim-cores-*/core-0"))
    assert not (home / ".ray").exists(), "where Ray would put a token that all may read"
    longest = max(len(os.fsencode(path)) for path in folder.rglob("sockets/*"))
    assert longest <= 107


def check_token(driver: subprocess.Popen[str], folder: Path) -> tuple[str, str]:
    """Whoever reaches the dashboard learns nothing without the token of this run; both of them."""
    assert driver.stdout is not None
    url = next(found for line in driver.stdout if (found := re.search(r"http://[\w.:]+", line)))
    token = (folder / "token").read_text()
    answers = {}
    for known in (None, "0" * 64, token):
        request = urllib.request.Request(f"{url[0]}/nodes?view=summary")
        if known is not None:
            request.add_header("Authorization", f"Bearer {known}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answers[known] = answer.status
        except urllib.error.HTTPError as error:
            answers[known] = error.code
            error.close()
    assert answers == {None: 401, "0" * 64: 403, token: 200}
    return url[0], token


def check_names(url: str, token: str) -> None:
    """On the dashboard, actors have the names of their devices."""
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}/logical/actors", headers=headers)
    wanted = [f"devices-{i}-{i + 1} ({NAMES[i]}, {NAMES[i + 1]})" for i in (0, 2)]

    def are_there() -> bool:
        with urllib.request.urlopen(request, timeout=60) as answer:
            actors = json.load(answer)["data"]["actors"].values()
        return sorted(actor["reprName"] for actor in actors) == wanted

    wait_for(are_there, None)


@pytest.mark.parametrize(
    ("error", "kept"), [(RuntimeError("an actor was lost"), True), (ValueError("a typo"), False)]
)
def test_logs_of_a_ray_whose_run_failed_are_kept(
    common: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kept: bool
) -> None:
    """What a message about a lost actor points to; the user's own mistakes leave nothing."""
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(common))
    said = io.StringIO()

    def fail() -> None:
        with folder_of_session(Console(file=said)) as folder:
            logs = folder / "r" / "session_1" / "logs"
            logs.mkdir(parents=True, mode=0o777)
            (logs / "worker-1.err").write_text("Killed\n")
            (folder / "r" / "session_latest").symlink_to("session_1")
            raise error

    with pytest.raises(type(error)):
        fail()
    left = list(common.iterdir())
    assert len(left) == kept
    if kept:
        assert stat.S_IMODE(left[0].stat().st_mode) == 0o700
        assert (left[0] / "logs" / "worker-1.err").read_text() == "Killed\n"
        assert said.getvalue() == f"Ray's logs are in {left[0]}/logs\n"


@pytest.mark.parametrize(
    ("variables", "drawn"),
    [
        ({}, True),
        ({"RAY_AUTH_MODE": "token"}, True),
        ({"RAY_AUTH_MODE": "disabled"}, False),
        ({"RAY_AUTH_TOKEN": "f" * 64}, False),
        ({"RAY_AUTH_TOKEN_PATH": "/some/where"}, False),
    ],
)
def test_a_token_is_drawn_unless_the_user_has_chosen_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], drawn: bool
) -> None:
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(own_ray, "read_settings_of_ray", lambda: None)
    with own_ray._token(tmp_path) as path:
        assert (path is not None) == drawn
        if path is not None:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert len(path.read_text()) == 64
            assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(path)
    assert {name: os.environ[name] for name in names if name in os.environ} == variables


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            # As Ray 2.60 raises it where its processes take more than 30 s.
            Exception("The current node timed out during startup. This could happen because ..."),
            "node timed out during startup\ntry again when the machine is less busy, or run",
        ),
        (RuntimeError("\nno space left"), "no space left\nrun without Ray: --inline"),
    ],
)
def test_a_ray_that_does_not_start_is_no_internal_error(
    error: Exception, remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("edgesim.fleet.on_ray.own_ray.ray.init", fail)
    workers = Workers(tmp_path, None)
    with (
        pytest.raises(FleetError, match=remedy),
        own_ray.own_ray(dashboard=False, console=Console(file=io.StringIO()), workers=workers),
    ):
        pass
