"""Processes of this machine that run the cells of a sweep, as many at once as there are cores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from edgesim.errors import EdgesimError
from edgesim.system import usable_cpus

STOP_TIMEOUT_S = 20.0  # for a run to end its steps and write what it holds


class PoolError(EdgesimError):
    """Processes can't be started."""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell to be run.

    Attributes:
        name: of the cell.
        scenario: as YAML.
        place: its run directory.
        known: what it must begin with, as `Contents.of_cell` gives it.
    """

    name: str
    scenario: str
    place: str
    known: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a cell.

    Attributes:
        cell: name of the cell.
        kind: `begun`, `progress`, `warning`, `done` or `failed`.
        fields: of the event: `share`, `text` or `summary`.
    """

    cell: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


class _Worker:
    """One process; it is given a cell whenever it has none."""

    def __init__(self, cpus: Sequence[int], lines: SimpleQueue[tuple[_Worker, str | None]]) -> None:
        self.task: Task | None = None
        self.cpus = cpus
        self._lines = lines
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(  # noqa: S603 (this very Python)
            # -P: PYTHONPATH alone says where modules are. Else -m looks into the working folder
            # first, where a user may have an edgesim/ or a json.py that this process does not use.
            [sys.executable, "-P", "-m", "edgesim.sweeps.worker", ",".join(map(str, cpus))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is for the sweep alone
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def give(self, task: Task | None) -> None:
        """Let the process run a cell; None: let it end."""
        self.task = task
        assert self.process.stdin is not None, "a pipe"
        with suppress(BrokenPipeError):  # it has ended, which its listener tells
            if task is None:
                self.process.stdin.close()
                return
            self.process.stdin.write(json.dumps(asdict(task)) + "\n")
            self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None, "a pipe"
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put((self, line))
        self._lines.put((self, None))

    def close(self) -> None:
        """Wait for the end of the process, and close its input."""
        self.process.wait()
        assert self.process.stdin is not None, "a pipe"
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def said_of_end(self) -> str:
        """How the process ended."""
        status = self.process.wait()
        if status < 0:
            names = {number.value: number.name for number in signal.Signals}
            return f"its process was ended by {names.get(-status, f'signal {-status}')}"
        return f"its process ended with status {status}"


def run_tasks(
    tasks: Iterable[Task], tell: Callable[[Event], None], num_workers: int | None = None
) -> None:
    """Run all cells; one that fails does not stop the others.

    Args:
        tasks: the cells.
        tell: called with what happens, in the thread of the caller.
        num_workers: processes; None: one for each core, but no more than there are cells.

    Interrupted, it ends all processes in order: each run can be resumed.

    Raises:
        PoolError: no process can be started.
    """
    waiting = deque(tasks)
    lines: SimpleQueue[tuple[_Worker, str | None]] = SimpleQueue()
    workers: set[_Worker] = set()
    try:
        for cpus in _shares(len(waiting), num_workers):
            workers.add(_Worker(cpus, lines))
        while workers:
            worker, line = lines.get()
            if line is None:
                workers.discard(worker)
                worker.close()
                if worker.task is not None:
                    tell(Event(worker.task.name, "failed", {"text": worker.said_of_end()}))
                if waiting and worker.task is not None:
                    workers.add(_Worker(worker.cpus, lines))
                continue
            fields = json.loads(line)
            kind = fields.pop("event")
            if worker.task is not None:
                tell(Event(worker.task.name, kind, fields))
            if kind in ("ready", "done", "failed"):
                task = waiting.popleft() if waiting else None
                worker.give(task)
                if task is not None:
                    tell(Event(task.name, "begun"))
        if waiting:
            raise PoolError(
                "the processes that run cells can't be started; "
                "`python -m edgesim.sweeps.worker 0` shows why"
            )
    finally:
        _stop(workers)


def _shares(num_tasks: int, num_workers: int | None) -> list[list[int]]:
    """Cores of each process: all of them, dealt out."""
    cpus = usable_cpus()
    wanted = num_workers or len(cpus)
    count = max(1, min(wanted, num_tasks)) if num_tasks else 0
    return [cpus[place::count] or [cpus[place % len(cpus)]] for place in range(count)]


def _stop(workers: Iterable[_Worker]) -> None:
    """End processes: first in order, then by force."""
    left = list(workers)
    for worker in left:
        worker.process.terminate()
    for worker in left:
        try:
            worker.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
        worker.close()
