"""Contestants that have a machine in turns, for a slice of time each, while all others are stopped.

A machine's speed drifts within minutes, by more than the differences that are looked for. Whoever
is measured one after the other meets different machines; slice by slice, all meet the same.

The first and last moments of a slice do not count. Timers that were due while a process was stopped
fire in a burst when it goes on (Ray's, a hundred times a second in each worker: counted in, they
made its overhead three times what it is), and caches are cold. What was done when a slice begins
and ends to count is known from the next reports: they are asked for, and bear their own time. One
that comes in the next slice only, of a process that waited for its turn, is as good: the time in
which nothing ran is taken out.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import numpy as np
import psutil
from numpy.typing import NDArray

REPORT_S = 0.1  # between two reports of a process
DRAIN_S = 0.2  # between two readings of reports, before they fill their pipe
LEAD_S, TAIL_S = 1.0, 0.7  # of a slice, beside what counts
START_TIMEOUT_S = 600.0


class Reporter:
    """What a contestant's process tells of its progress: counts of steps, with their time.

    It reports often, or listens for being asked.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._next_s = 0.0

    def report(self, steps: int) -> None:
        """So many steps are done by now."""
        self._pipe.send((time.monotonic(), steps))

    def report_at_times(self, steps: int) -> None:
        """The same, where it is called after each step: most calls do nothing."""
        if time.monotonic() >= self._next_s:
            self.report(steps)
            self._next_s = time.monotonic() + REPORT_S

    def wait_to_be_asked(self, timeout_s: float) -> None:
        """Return when a report is asked for, or after so many seconds."""
        if self._pipe.poll(timeout_s):
            self._pipe.recv()


@dataclass
class Contestant:
    """Processes that do the same work together.

    Attributes:
        name: in what is printed.
        warm_up: steps of each process before it is measured.
        steps: of each process, after which nothing more is measured.
        processes: the roots; what they start belongs to them.
        slices: of time that count.
        processor_s: of its processes in these slices, by what they call themselves.
    """

    name: str
    warm_up: int
    steps: float
    processes: list[SpawnProcess] = field(default_factory=list)
    _pipes: list[Connection] = field(default_factory=list)
    _reports: list[list[tuple[float, int]]] = field(default_factory=list)
    _stops: list[tuple[float, float]] = field(default_factory=list)
    _stopped_s: float = 0.0
    slices: list[tuple[float, float]] = field(default_factory=list)
    processor_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def start(self, target: Callable[..., None], *args: object) -> None:
        """Add a process, which does `target(*args, reporter)`."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(*args, Reporter(theirs)))
        process.start()
        theirs.close()
        self.processes.append(process)
        self._pipes.append(ours)
        self._reports.append([])

    def tree(self) -> list[psutil.Process]:
        """All processes, those first that started others."""
        found: list[psutil.Process] = []
        for process in self.processes:
            if process.is_alive():
                root = psutil.Process(process.pid)
                found += [root, *root.children(recursive=True)]
        return found

    def drain(self) -> None:
        """Read what was reported."""
        for pipe, reports in zip(self._pipes, self._reports, strict=True):
            with suppress(EOFError, ConnectionResetError):  # it has ended
                while pipe.poll():
                    reports.append(pipe.recv())

    def least_done(self) -> int:
        """Steps of the process that did fewest, as last reported."""
        return min(reports[-1][1] if reports else 0 for reports in self._reports)

    def run_for(self, seconds: float) -> None:
        """Let it run, and stop it; so many seconds count."""
        tree = self._continue()
        self._wait(LEAD_S)
        start_s, before = self._look(tree)
        self._wait(seconds)
        end_s, after = self._look(tree)
        self._wait(TAIL_S)
        self._stop(tree)
        self.slices.append((start_s, end_s))
        for process, spent_s in after.items():
            title = process.name().split(".")[0]  # Ray adds the method that is running
            self.processor_s[title] += spent_s - before[process]

    def _stop(self, tree: Iterable[psutil.Process]) -> None:
        self._stopped_s = time.monotonic()
        _signal(tree, signal.SIGSTOP)

    def _continue(self) -> list[psutil.Process]:
        """All processes, which run from now on."""
        tree = self.tree()
        self._stops.append((self._stopped_s, time.monotonic()))
        _signal(reversed(tree), signal.SIGCONT)
        return tree

    def _look(self, tree: Iterable[psutil.Process]) -> tuple[float, dict[psutil.Process, float]]:
        """Ask for reports; the time, and what the processes have spent by now."""
        for pipe in self._pipes:
            pipe.send(None)
        return time.monotonic(), _processor_s(tree)

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, DRAIN_S))
            self.drain()

    def get_warm(self) -> None:
        """Let it run until it is warm, and stop it.

        Raises:
            RuntimeError: it ended before, or takes too long.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self.least_done() < self.warm_up:
            if not all(process.is_alive() for process in self.processes):
                raise RuntimeError(f"{self.name} ended before it was warm")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.name} was not warm after {START_TIMEOUT_S:g} s")
            time.sleep(DRAIN_S)
            self.drain()
        self._stop(self.tree())

    def rates(self) -> NDArray[np.float64]:
        """Steps per second in each slice, of all its processes together."""
        edges = np.array(self.slices)
        rates = np.zeros(len(edges))
        for reports in self._reports:
            times, steps = np.array(reports, float).T
            at = np.searchsorted(times, edges).clip(max=len(times) - 1)
            rates += (np.diff(steps[at]) / np.diff(self._ran_s(times[at])))[:, 0]
        return rates

    def _ran_s(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds that it had run by then, but for a constant."""
        stopped = np.zeros_like(times)
        for start, end in self._stops:
            stopped += times.clip(start, end) - start
        return times - stopped

    def finish(self) -> None:
        """Let it run to its end."""
        self._continue()
        for process in self.processes:
            while process.is_alive():
                self.drain()
                process.join(DRAIN_S)
            if process.exitcode:
                raise RuntimeError(f"{self.name} ended with {process.exitcode}")

    def kill(self) -> None:
        """End it, with all that it started."""
        _signal(self.tree(), signal.SIGSTOP)  # so that nothing begins while it is looked at
        _signal(self.tree(), signal.SIGKILL)
        for process in self.processes:
            process.join()


def take_turns(contestants: Collection[Contestant], seconds: float, turns: int) -> None:
    """Run the contestants slice by slice, until one of them has done its steps.

    Args:
        contestants: warm ones.
        seconds: of a slice that count.
        turns: at most.
    """
    for _ in range(turns):
        for contestant in contestants:
            contestant.run_for(seconds)
        if any(contestant.least_done() >= contestant.steps for contestant in contestants):
            return


@contextmanager
def ended(contestants: Mapping[str, Contestant]) -> Iterator[None]:
    """Nothing of those that are there by then is left after the block."""
    try:
        yield
    finally:
        for contestant in contestants.values():
            contestant.kill()


def _processor_s(tree: Iterable[psutil.Process]) -> dict[psutil.Process, float]:
    """Processor seconds of processes since each of them began; without those that have ended."""
    spent = {}
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent[process] = times.user + times.system
    return spent


def _signal(tree: Iterable[psutil.Process], number: int) -> None:
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
