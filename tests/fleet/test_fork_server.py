"""Workers that begin as forks are what Ray started: arguments, files, environment, signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from process_trees import command_line, wait_for

from edgesim.fleet.on_ray import fork_server as module
from edgesim.fleet.on_ray.fork_server import fork_server
from edgesim.fleet.on_ray.private_folder import MARK, private_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux alone")

LIGHT = ("wave",)  # a module that nothing else imports
WORKER = "report.py"
REPORT = """
import json, os, resource, signal, sys
print(json.dumps({
    "arguments": sys.argv,
    "first_on_path": sys.path[0],
    "input": sys.stdin.readline(),
    "variable": os.environ.get("OF_THE_CLIENT"),
    "threads": os.environ.get("OMP_NUM_THREADS"),
    "folder": os.getcwd(),
    "blocked": [int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "is_fork": "wave" in sys.modules,
    "is_main": __name__ == "__main__",
    "parent": os.getppid(),
    "leads_a_group": os.getpgrp() == os.getpid(),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
}))
print("to stderr", file=sys.stderr)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "scripts" / WORKER
    path.parent.mkdir()
    path.write_text(REPORT)
    return path


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a short name: those of sockets must be short."""
    with private_folder(Path("/tmp")) as made:
        yield made


@pytest.fixture
def python(folder: Path) -> Iterator[Path]:
    with fork_server(folder, LIGHT, (), WORKER) as program:
        assert program is not None
        yield program


def _run(program: Path, script: Path, **options: Any) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [program, "-u", str(script), "one", "--two=2"],
        input="a line\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )
    return json.loads(done.stdout), done.stderr


def test_a_fork_is_what_its_client_was_started_as(
    python: Path, script: Path, tmp_path: Path
) -> None:
    def prepare() -> None:
        import resource

        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT})
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, hard))
        Path("/proc/self/oom_score_adj").write_text("900")

    environment = {**os.environ, "OF_THE_CLIENT": "ä \n", "OMP_NUM_THREADS": "7"}
    found, errors = _run(python, script, env=environment, cwd=tmp_path, preexec_fn=prepare)
    assert found.pop("parent") != os.getpid()
    assert found == {
        "arguments": [str(script), "one", "--two=2"],
        "first_on_path": str(script.parent),
        "input": "a line\n",
        "variable": "ä \n",
        "threads": "7",
        "folder": str(tmp_path),
        "blocked": [signal.SIGINT],
        "open_files": 123,
        "oom": "900",
        "is_fork": True,
        "is_main": True,
        "leads_a_group": True,
        "descriptors": [0, 1, 2],
    }
    assert errors == "to stderr\n"


def test_without_its_server_a_worker_is_an_ordinary_python(python: Path, script: Path) -> None:
    forked, _ = _run(python, script)
    psutil.Process(forked["parent"]).kill()
    ordinary, errors = _run(python, script)
    assert not ordinary["is_fork"]
    same = ("arguments", "first_on_path", "input", "folder", "blocked", "open_files", "is_main")
    assert {name: ordinary[name] for name in same} == {name: forked[name] for name in same}
    assert errors == "to stderr\n"


@pytest.mark.parametrize(("name", "niceness"), [("other.py", 0), ("log_monitor.py", 19)])
def test_any_other_program_is_run_by_python(
    python: Path, tmp_path: Path, name: str, niceness: int
) -> None:
    """And the one of Ray that nobody waits for, after all others."""
    script = tmp_path / name
    script.write_text(f"{REPORT}print(os.nice(0), sys.executable)\n")
    done = subprocess.run(
        [python, script], input="", capture_output=True, text=True, check=True, timeout=120
    )
    found, last_line = done.stdout.splitlines()
    assert not json.loads(found)["is_fork"]
    assert last_line == f"{min(19, os.nice(0) + niceness)} {sys.executable}"


@pytest.mark.parametrize(
    "modules", [((*LIGHT, "has_a_thread"), ()), (LIGHT, ("has_a_thread",))], ids=["at once", "late"]
)
def test_a_server_that_has_threads_leaves_workers_to_python(
    modules: tuple[tuple[str, ...], tuple[str, ...]],
    folder: Path,
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "has_a_thread.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with fork_server(folder, *modules, WORKER) as program:
        assert program is not None
        found = [_run(program, script)[0]["is_fork"] for _ in range(2)]
    assert found == [False, False]
    assert "an import has started threads" in capfd.readouterr().err


def test_what_reads_its_environment_as_it_is_loaded_reads_that_of_the_first_worker(
    folder: Path,
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And workers with other variables for Ray are no forks of it."""
    (tmp_path / "reads_a_job.py").write_text("import os\nJOB = os.environ['RAY_JOB_ID']\n")
    script.write_text(
        "import json, os, sys\n"
        "is_fork = 'reads_a_job' in sys.modules\n"
        "job = sys.modules['reads_a_job'].JOB if is_fork else None\n"
        "print(json.dumps([is_fork, job, os.environ['RAY_JOB_ID'], os.environ.get('OTHER')]))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with fork_server(folder, LIGHT, ("reads_a_job",), WORKER) as program:
        assert program is not None
        environments: list[dict[str, str]] = [
            {"RAY_JOB_ID": "01"},
            {"RAY_JOB_ID": "01", "OTHER": "yes"},
            {"RAY_JOB_ID": "02"},
            {"RAY_JOB_ID": "01", "RAY_MORE": "1"},
            {"RAY_JOB_ID": "01"},
        ]
        found = [_run(program, script, env={**os.environ, **own})[0] for own in environments]
    assert found == [
        [True, "01", "01", None],
        [True, "01", "01", "yes"],
        [False, None, "02", None],
        [False, None, "01", None],
        [True, "01", "01", None],
    ]
    warnings = capfd.readouterr().err
    assert "a worker has another RAY_JOB_ID than the first" in warnings
    assert "a worker has another RAY_MORE than the first" in warnings


def test_who_connects_and_says_nothing_sensible_does_no_harm(python: Path, script: Path) -> None:
    path = str(python.with_name("socket"))
    size = b"\x02\0\0\0\0\0\0\0"
    for words in (b"", size + b"}{", size + b"[]", size + b"{}", b"\xff"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(words)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(path)
        found, _ = _run(python, script)
    assert found["is_fork"]


def test_a_server_that_fails_leaves_workers_to_python(
    folder: Path,
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "is_of_no_use.py").write_text("raise RuntimeError('another version')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with fork_server(folder, LIGHT, ("is_of_no_use",), WORKER) as program:
        assert program is not None
        found = [_run(program, script)[0]["is_fork"] for _ in range(2)]
    assert found == [False, False]
    assert "RuntimeError: another version" in capfd.readouterr().err


def test_a_server_ends_with_its_driver_even_one_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        f"from {module.__name__} import fork_server\n"
        f"from {private_folder.__module__} import private_folder\n"
        "with private_folder(Path('/tmp')) as folder,"
        f" fork_server(folder, {LIGHT}, ()) as program:\n"
        "    print(program, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert driver.stdout is not None
    folder = Path(driver.stdout.readline()).parent
    (server,) = psutil.Process(driver.pid).children()
    assert folder.exists()
    driver.kill()
    driver.wait()
    server.wait(60)
    assert not folder.exists()
    driver.stdout.close()
    assert driver.stdin is not None
    driver.stdin.close()


def servers_of(folder: Path) -> list[psutil.Process]:
    """Children that serve it; a child has no command line for a moment after it has begun."""
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = [p for p in psutil.Process().children() if str(folder) in command_line(p)]
        return bool(found)

    wait_for(look, None)
    return found


def test_leaving_ends_the_server_and_spares_the_workers(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / WORKER
    script.write_text("import sys\nprint('here', flush=True)\nprint(sys.stdin.readline())\n")
    with fork_server(folder, LIGHT, (), WORKER) as program:
        assert program is not None
        (server,) = servers_of(folder)
        client = subprocess.Popen(
            [program, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "here\n"
        assert client.wait(60) == 0  # its fork took over
    assert not server.is_running()
    assert (folder / MARK).exists(), "the driver removes what it has made"
    rest, _ = client.communicate("and alive\n", timeout=60)
    assert rest == "and alive\n\n"


def test_elsewhere_than_on_linux_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with fork_server(folder, LIGHT, ()) as program:
        assert program is None


def test_where_no_socket_can_be_there_is_none(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with fork_server(deep) as program:
        assert program is None


def test_where_no_program_may_be_run_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a file system mounted noexec
    with fork_server(folder, LIGHT, ()) as program:
        assert program is None


@pytest.mark.ray
def test_workers_of_a_ray_of_our_own_are_forks_and_there_are_no_others(started_ray: None) -> None:
    import ray  # its import takes long

    def is_loaded() -> bool:
        # In a worker that has imported Ray itself, the program of workers is no module.
        loaded = sys.modules.keys() >= {
            "edgesim.fleet.host.build",
            "ray._private.workers.default_worker",
        }
        return loaded and os.environ["RAY_JOB_ID"] == ray.get_runtime_context().get_job_id()

    class Actor:
        def pid(self) -> int:
            return os.getpid()

    assert "RAY_prestart_worker_first_driver" not in os.environ
    assert Path(sys.executable).name.startswith("python"), "of an environment, not ours"
    assert "edgesim-fork" not in sys.executable
    assert ray.get(ray.remote(is_loaded).remote())
    me = psutil.Process()
    below = {p: command_line(p) for p in me.children(recursive=True)}
    titles = ("ray::IDLE", "ray::is_loaded")
    workers = [p for p, words in below.items() if words and words[0].startswith(titles)]
    servers = {worker.parent() for worker in workers}
    assert workers
    assert len(servers) == 1
    assert servers <= set(me.children())
    (raylet,) = (p for p, words in below.items() if words and words[0].endswith("/raylet"))
    assert raylet.environ()["RAY_enable_metrics_collection"] == "0", "without a dashboard"
    assert "RAY_enable_metrics_collection" not in os.environ
    assert raylet.environ()["RAY_event_stats"] == "0"
    program = "log_monitor.py"
    (carrier,) = (p for p, words in below.items() if any(x.endswith(program) for x in words))
    assert carrier.environ()["RAY_LOG_MONITOR_MANY_FILES_THRESHOLD"] == "0"
    actor = ray.remote(num_cpus=0.1, max_restarts=1, max_task_retries=1)(Actor)
    killed, other = actor.remote(), actor.remote()
    first_pids = ray.get([killed.pid.remote(), other.pid.remote()])
    psutil.Process(first_pids[0]).kill()
    while (new_pid := ray.get(killed.pid.remote())) == first_pids[0]:
        time.sleep(0.1)
    time.sleep(2)  # Ray may take that to sweep up after a worker
    assert ray.get(other.pid.remote()) == first_pids[1], "one that is killed takes no other along"
    assert {psutil.Process(new_pid).parent()} == servers, "nor the server"


@pytest.mark.parametrize("agent", ["dashboard/agent.py", "runtime_env/agent/main.py"])
def test_an_agent_ends_with_the_process_that_started_it(
    python: Path, tmp_path: Path, agent: str
) -> None:
    path = tmp_path / agent
    path.parent.mkdir(parents=True)
    path.write_text("import time\nprint('it runs', flush=True)\ntime.sleep(1000)\n")
    code = f"import subprocess; subprocess.run([{str(python)!r}, '-u', {str(path)!r}])"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as raylet:
        assert raylet.stdout is not None
        assert raylet.stdout.readline() == "it runs\n"
        (process,) = psutil.Process(raylet.pid).children()
        raylet.kill()
        try:
            process.wait(timeout=60)
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()
