"""A Ray of edgesim's own on this machine, which no other user and no other machine can reach.

All its files are in one private folder: sockets, logs, the token that it asks for, what its
processes keep in temporary files. Its servers listen on the loopback address alone.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ray
from ray._private import ray_constants  # whether this machine's address may be 127.0.0.1
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.exceptions import RayError
from rich.console import Console

from edgesim.fleet.on_ray.fork_server import fork_server
from edgesim.fleet.on_ray.placement import FleetError
from edgesim.fleet.on_ray.private_folder import PREFIX, private_folder, safe_parent, sweep

NAMESPACE = "edgesim"
RAY_FAILURES = (ConnectionError, ValueError, RuntimeError, RayError)
# Ray would start a worker for each core before there is a job, which those of the job have.
_NO_WORKERS_YET = {"RAY_prestart_worker_first_driver": "0"}
# Ray's own metrics, which nobody sees without its dashboard, make a raylet grow and grow.
_NO_METRICS = {"RAY_enable_metrics_collection": "0"}
# Each event loop of each of its processes would count and time all that it does: a quarter of what
# a worker takes that has nothing to do. And what carries workers' output to the driver would list
# all files ten times a second: with "many" of them, that is any, it does so twice.
_LESS_IDLE_WORK = {"RAY_event_stats": "0", "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0"}
_TOKEN_LOGGER = "ray._private.authentication.authentication_token_setup"  # noqa: S105 (a logger)
_LOOPBACK = "127.0.0.1"
# Bytes of the path of a socket, without the zero at its end, and of what Ray adds to our folder:
# /r/session_<date>_<time>_<microseconds>_<process>/sockets/dash_MetricsHead
_SOCKET_PATH, _BELOW_FOLDER = 107, len("/r/session_") + 10 + 1 + 8 + 1 + 6 + 1 + 7 + 25
_FOLDER_NAME = len(f"/{PREFIX}") + 8


@contextmanager
def own_ray(*, dashboard: bool, console: Console) -> Iterator[None]:
    """Start a cluster on this machine and end it afterwards.

    Args:
        dashboard: start the dashboard with it.
        console: told where the dashboard is, and where Ray's logs are if something failed.

    Raises:
        FleetError: Ray can't be started here.
        TemporaryFolderError: there is no folder that only this user can reach.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(_folder_of_session(console))
        python = stack.enter_context(fork_server(folder))
        token = stack.enter_context(_token(folder))
        stack.callback(ray.shutdown)
        url = _start(folder, python, dashboard=dashboard)
        if url:
            needed = f" (it asks for the token in {token})" if token else ""
            console.print(f"Ray dashboard: http://{url}{needed}", soft_wrap=True)
        yield


@contextmanager
def _folder_of_session(console: Console) -> Iterator[Path]:
    """A folder for all files of a Ray of our own, which other users can't reach.

    If something fails, Ray's logs are copied to where they stay.
    """
    parent = safe_parent(_temporary_folders(), _SOCKET_PATH - _BELOW_FOLDER - _FOLDER_NAME)
    sweep(parent)
    with private_folder(parent) as folder:
        try:
            yield folder
        except Exception as error:
            logs = folder / "r" / "session_latest" / "logs"
            if not isinstance(error, ValueError) and logs.is_dir():  # the user's own mistakes
                closed = tempfile.mkdtemp(prefix="ray-logs-of-edgesim-", dir=parent)
                kept = shutil.copytree(logs, Path(closed, "logs"))  # itself open to all, as Ray's
                console.print(f"Ray's logs are in {kept}", soft_wrap=True)
            raise


def _temporary_folders() -> list[Path]:
    """Where users want temporary files, then where they are if that path is too long."""
    wanted = os.environ.get("RAY_TMPDIR", tempfile.gettempdir())
    return [Path(wanted).absolute(), Path("/tmp")]  # noqa: S108 (for a private folder)


@contextmanager
def _token(folder: Path) -> Iterator[Path | None]:
    """Draw a token for a Ray of our own; yields its file, None if the user has chosen one.

    Ray would keep one for all its clusters in the home folder, in a file that all may read.
    """
    is_chosen = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    if is_chosen or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        yield None
        return
    path = folder / "token"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    try:
        with _environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}):
            _read_settings_of_ray()
            yield path
    finally:
        _read_settings_of_ray()


def _read_settings_of_ray() -> None:
    """Let Ray, which remembers what it has read, read its variables and token anew."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _start(folder: Path, python: Path | None, *, dashboard: bool) -> str | None:
    """Start a cluster whose processes are run by a program; where its dashboard is."""
    # A cluster of one's own asks for the token that was just drawn: nothing to tell.
    logging.getLogger(_TOKEN_LOGGER).setLevel(logging.ERROR)
    try:
        settings = (_NO_WORKERS_YET if python else {}) | _LESS_IDLE_WORK
        settings |= {} if dashboard else _NO_METRICS
        with (
            _environment({name: os.environ.get(name, settings[name]) for name in settings}),
            _environment({"TMPDIR": str(folder)}),  # of all processes: they are killed in the end
            _executable(python),
            _loopback(),
        ):
            context = ray.init(
                address="local",
                namespace=NAMESPACE,
                num_cpus=len(os.sched_getaffinity(0)),
                include_dashboard=dashboard,
                logging_level=logging.WARNING,
                _node_ip_address=_LOOPBACK,
                _temp_dir=str(folder / "r"),  # Ray opens it to all: its parent is private
            )
    except RAY_FAILURES as error:
        raise FleetError(f"Ray can't be started on this machine: {first_line(error)}") from error
    url: str | None = context.dashboard_url
    return url


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for this process and those that are started within."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _loopback() -> Iterator[None]:
    """Let the servers of Ray listen where this machine alone reaches them.

    They do so if their node's address is 127.0.0.1. Ray takes another one instead, except where it
    allows for no clusters of several machines, as on macOS.
    """
    original = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = original


@contextmanager
def _executable(python: Path | None) -> Iterator[None]:
    """Let Ray, which starts its processes by the path of this one's Python, start them by another.

    It has a setting for that (`py_executable` of a runtime environment), but then imports itself in
    an ordinary Python before each worker: 0.7 s of a core.
    """
    original = sys.executable
    if python is not None:
        sys.executable = str(python)
    try:
        yield
    finally:
        sys.executable = original


def first_line(error: Exception) -> str:
    """The first line of a message that says something."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
