"""Processes that a run has started, wherever they hang in the process tree."""

from __future__ import annotations

import ipaddress
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "EDGESIM_TEST_MARK"  # a variable that processes inherit


def marked(mark: str) -> list[psutil.Process]:
    """Processes that began with a mark in their environment and have not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get(MARK) == mark
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def with_interrupts(disposition: signal.Handlers, *command: object) -> list[str]:
    """A command line that runs another one, which ignores SIGINT or ends by it.

    A process inherits that from its parent: under `nohup make test &`, pytest ignores SIGINT.
    """
    program = (
        "import os, signal, sys;"
        f"signal.signal(signal.SIGINT, signal.{disposition.name});"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-I", "-S", "-c", program, *map(str, command)]


def tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """A process and all below it, also those whose new name has overwritten their environment."""
    top = psutil.Process(process.pid)
    return [top, *top.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def command_line(process: psutil.Process) -> list[str]:
    """The words of a process's command line; none if it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # or is a zombie
        return []


def open_doors(processes: list[psutil.Process]) -> dict[str, list[str]]:
    """Addresses at which processes wait for others, by the name of the process.

    Those of TCP sockets that listen, and of UDP sockets that are bound.
    """
    found: dict[str, list[str]] = {}
    for process in processes:
        try:
            for socket in process.net_connections(kind="inet"):
                if socket.laddr and socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):
                    found.setdefault(process.name(), []).append(socket.laddr.ip)
        except psutil.NoSuchProcess:
            continue
    return found


def is_loopback(address: str) -> bool:
    """Whether this machine alone reaches an address."""
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def wait_for(
    condition: Callable[[], object],
    process: subprocess.Popen[str] | None,
    seconds: float = 200,
    look_s: float = 0.1,
) -> None:
    """Wait until a condition holds; the limit only ends a test that hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(look_s)


def actors_below(process: psutil.Process) -> list[psutil.Process]:
    """The actors of fleets that a process, or one below it, has started."""
    return [
        child
        for child in process.children(recursive=True)
        if "".join(command_line(child)[:1]).startswith("ray::DeviceActor")
    ]


def wait_until_round(
    run: Path, round_index: int, process: subprocess.Popen[str] | None = None
) -> None:
    """Until all four devices of a run have so many rounds behind them, by their checkpoints."""

    def is_there() -> bool:
        rounds = [
            max((int(path.stem.rpartition("-")[2]) for path in folder.glob("*.ckpt")), default=0)
            for folder in (run / "checkpoints").glob("device-*")
        ]
        return len(rounds) == 4 and min(rounds) >= round_index

    wait_for(is_there, process, look_s=0.02)
