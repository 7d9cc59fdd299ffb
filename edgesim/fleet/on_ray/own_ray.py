"""A Ray of edgesim's own on this machine, which no other user and no other machine can reach.

All its files are in one private folder: sockets, logs, its access token, and temporary files of its
processes. Its servers listen on the loopback address alone.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ray
from ray._private import ray_constants  # its switch for the address 127.0.0.1
from ray._private.node import Node
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.exceptions import RayError
from rich.console import Console

from edgesim.fleet.on_ray.access import leave_word
from edgesim.fleet.on_ray.addresses import TOKEN_LOGGER
from edgesim.fleet.on_ray.leaving import PATIENT, leave
from edgesim.fleet.on_ray.placement import FleetError
from edgesim.fleet.on_ray.workers import Workers, prepared_workers
from edgesim.program import program
from edgesim.system import usable_cpus

NAMESPACE = "edgesim"
RAY_FAILURES = (ConnectionError, ValueError, RuntimeError, RayError)
# Without this Ray would start a worker per core in advance, beside those of the job.
_NO_WORKERS_YET = {"RAY_prestart_worker_first_driver": "0"}
# Collecting metrics makes a raylet grow without bound; without the dashboard nothing shows them.
_NO_METRICS = {"RAY_enable_metrics_collection": "0"}
# Statistics of event loops take a quarter of the processor time of an idle worker. The log monitor
# lists all log files ten times a second; above the threshold of "many" files, here 0, only twice a
# second.
_LESS_IDLE_WORK = {"RAY_event_stats": "0", "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0"}
# Ray's nodes get their metrics every ten seconds otherwise: a short run would have hardly any.
_FRESH_METRICS = {"RAY_metrics_report_interval_ms": "2000"}
_LOOPBACK = "127.0.0.1"


@contextmanager
def own_ray(
    *, dashboard: bool, console: Console, run: str = "", workers: Workers | None = None
) -> Iterator[None]:
    """Start a cluster on this machine and end it afterwards.

    Args:
        dashboard: start the dashboard with it.
        console: gets the address of the dashboard, and the place of Ray's logs after a failure.
        run: place of the run that it is for.
        workers: that were prepared before and outlast this context; None: they are prepared here.

    Raises:
        FleetError: Ray can't be started here.
        TemporaryFolderError: there is no folder that only this user can reach.
    """
    with ExitStack() as stack:
        ready = workers or stack.enter_context(prepared_workers(console))
        folder = ready.folder
        token = stack.enter_context(_token(folder))
        stack.push(leave)
        url = _start(folder, ready.python, dashboard=dashboard)
        if url:
            leave_word(folder, f"http://{url}", token, run)
            asked = f"; it asks for the token in {token}" if token else ""
            console.print(f"Ray dashboard: http://{url}{asked}", soft_wrap=True)
            console.print(f"open it with: {program()} dashboard", soft_wrap=True)
        yield


@contextmanager
def _token(folder: Path) -> Iterator[Path | None]:
    """Generate a token for edgesim's own Ray; yield its file, or None if the user has chosen one.

    Ray would keep one token for all clusters in the home folder, in a file that all users can read.
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
        with environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}):
            read_settings_of_ray()
            yield path
    finally:
        read_settings_of_ray()


def read_settings_of_ray() -> None:
    """Make Ray read its variables and its token again; it caches them."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _start(folder: Path, python: Path | None, *, dashboard: bool) -> str | None:
    """Start a cluster with `python` as its interpreter; return the address of its dashboard."""
    # The user need not hear of the token that was just generated.
    logging.getLogger(TOKEN_LOGGER).setLevel(logging.ERROR)
    try:
        settings = (_NO_WORKERS_YET if python else {}) | _LESS_IDLE_WORK | PATIENT
        settings |= _FRESH_METRICS if dashboard else _NO_METRICS
        with (
            environment({name: os.environ.get(name, settings[name]) for name in settings}),
            environment({"TMPDIR": str(folder)}),  # of all processes: they are killed in the end
            # The interpreter of Ray's processes. With Ray's own setting (`py_executable` of a
            # runtime environment) each worker would first import Ray in an ordinary Python, which
            # takes 0.7 s of a core.
            _replaced(sys, "executable", str(python or sys.executable)),
            # Ray's servers listen on the loopback address alone if their node's address is that.
            # Ray replaces it by another, except on systems such as macOS, where it does not support
            # clusters of several machines.
            _replaced(ray_constants, "ENABLE_RAY_CLUSTER", False),
            # No autoscaler, which could add no node to a cluster of one machine. `ray start` has an
            # option for this, `ray.init` has none. Its start takes a second of a core, it holds
            # 80 MB, and Ray waits a second for its end: it ends only when it is killed.
            _replaced(Node, "start_monitor", lambda _: None),
        ):
            context = ray.init(
                address="local",
                namespace=NAMESPACE,
                num_cpus=len(usable_cpus()),
                include_dashboard=dashboard,
                logging_level=logging.WARNING,
                _node_ip_address=_LOOPBACK,
                _temp_dir=str(folder / "r"),  # Ray opens it to all: its parent is private
            )
    except Exception as error:  # Ray raises this very class where its processes start too slowly
        raise FleetError(_not_started(error)) from error
    url: str | None = context.dashboard_url
    return url


def _not_started(error: Exception) -> str:
    """Why Ray can't be started, and what to do."""
    reason = first_line(error).partition(". ")[0].rstrip(".")
    remedy = "run without Ray: --inline"
    if "timed out" in reason:
        remedy = f"try again when the machine is less busy, or {remedy}"
    return f"Ray can't be started on this machine: {reason}\n{remedy}"


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Context that sets variables for this process and its children."""
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
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Context in which an attribute of a module or class has another value."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def first_line(error: Exception) -> str:
    """The first line of a message that is not empty."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
