"""Contestants that have a machine in turns, for a slice of time each, while all others are stopped.

A machine's speed drifts within minutes, by more than the differences that are looked for. Whoever
is measured one after the other meets different machines; slice by slice, all meet the same.

A virtual machine's host may take its cores away for seconds at a time, and more often from those
who use them all. The guest's kernel counts that ("steal"), so a slice is cut into pieces, and goes
on until enough of them were calm: those count in which the host took least.

The first and last moments of a slice do not count. Timers that were due while a process was stopped
fire in a burst when it goes on (Ray's, a hundred times a second in each worker: counted in, they
made its overhead three times what it is), and caches are cold. What was done when a piece begins
and ends is known from the next reports: they are asked for, and bear their own time.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

REPORT, LEAVE = "report", "leave"  # what processes are asked for
REPORT_S = 0.1  # between two reports of a process
DRAIN_S = 0.2  # between two readings of reports, before they fill their pipe
LEAD_S, TAIL_S = 1.0, 0.7  # of a slice, beside what counts
PIECE_S = 1.1  # of a slice, which counts or does not
CALM = 0.01  # of the cores' time, which the host may take in a piece that is calm
PATIENCE = 3  # times the pieces that count: how long calm ones are waited for
START_TIMEOUT_S = 600.0
REPORT_TIMEOUT_S = 30.0  # after it was asked for


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
            while self._pipe.poll():  # asked or not; what nobody reads would fill the pipe
                self._pipe.recv()
            self.report(steps)
            self._next_s = time.monotonic() + REPORT_S

    def wait_to_be_asked(self, timeout_s: float) -> bool:
        """Wait until a report is asked for, or so many seconds; whether to go on after that."""
        return not self._pipe.poll(timeout_s) or self._pipe.recv() != LEAVE


@dataclass(frozen=True, slots=True)
class Look:
    """What a machine's clocks show.

    Attributes:
        at_s: time.
        stolen_s: that the machine's host has taken from its cores.
        spent_s: processor seconds of each process that is looked at.
    """

    at_s: float
    stolen_s: float
    spent_s: Mapping[psutil.Process, float]

    @classmethod
    def at(cls, processes: Iterable[psutil.Process]) -> Look:
        """What they show now."""
        spent_s = {}
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # it has ended
                times = process.cpu_times()
                spent_s[process] = times.user + times.system
        cores = psutil.cpu_times(percpu=True)
        ours = [cores[index] for index in os.sched_getaffinity(0)]
        stolen_s = sum(getattr(core, "steal", 0.0) for core in ours)  # Linux counts it
        return cls(time.monotonic(), stolen_s, spent_s)


@dataclass(frozen=True, slots=True)
class Piece:
    """Of a slice.

    Attributes:
        turn: which slice.
        before, after: what the clocks showed when it began and when it ended.
    """

    turn: int
    before: Look
    after: Look

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.after.at_s - self.before.at_s

    @property
    def stolen_s(self) -> float:
        """Of all cores together, in which the host did something else."""
        return self.after.stolen_s - self.before.stolen_s

    def processor_s(self) -> dict[psutil.Process, float]:
        """What each process spent."""
        return {
            process: spent_s - self.before.spent_s[process]
            for process, spent_s in self.after.spent_s.items()
        }


@dataclass
class Contestant:
    """Processes that do the same work together.

    Attributes:
        name: in what is printed.
        warm_up: steps of each process before it is measured.
        steps: of each process, after which nothing more is measured.
        processes: the roots; what they start belongs to them.
        pieces: of its slices, that count.
        processor_s: of its processes in these pieces, by what they call themselves.
    """

    name: str
    warm_up: int
    steps: float
    processes: list[SpawnProcess] = field(default_factory=list)
    _pipes: list[Connection] = field(default_factory=list)
    _reports: list[list[tuple[float, int]]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
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

    def run_for(self, seconds: float, turn: int) -> None:
        """Let it run until so many seconds were calm, but not for ever, and stop it."""
        tree = self._continue()
        titles = {}
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                titles[process] = process.name().split(".")[0]
        self._wait(LEAD_S)
        num_wanted, num_cores = math.ceil(seconds / PIECE_S), len(os.sched_getaffinity(0))
        pieces, look = [], self._look(tree)
        for _ in range(PATIENCE * num_wanted):
            self._wait(PIECE_S)
            before, look = look, self._look(tree)
            pieces.append(Piece(turn, before, look))
            calm = [piece for piece in pieces if piece.stolen_s <= CALM * num_cores * piece.seconds]
            if len(calm) == num_wanted:
                break
        pieces.sort(key=lambda piece: piece.stolen_s)
        self.pieces += pieces[:num_wanted]
        for piece in pieces[:num_wanted]:
            for process, spent_s in piece.processor_s().items():
                self.processor_s[titles[process]] += spent_s
        self._wait(TAIL_S)
        self._wait_for_reports(look.at_s)
        self._stop(tree)

    def _alive(self) -> list[bool]:
        return [process.is_alive() for process in self.processes]

    def _stop(self, tree: Iterable[psutil.Process]) -> None:
        _signal(tree, signal.SIGSTOP)

    def _continue(self) -> list[psutil.Process]:
        """All processes, which run from now on."""
        tree = self.tree()
        _signal(reversed(tree), signal.SIGCONT)
        return tree

    def _look(self, tree: Iterable[psutil.Process]) -> Look:
        """What the clocks show by now; then ask for reports, which are later than that."""
        look = Look.at(tree)
        for pipe in self._pipes:
            with suppress(BrokenPipeError):  # it has ended, and will be missed
                pipe.send(REPORT)
        return look

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, DRAIN_S))
            self.drain()

    def _wait_for_reports(self, since_s: float) -> None:
        """Until all its processes have reported since then.

        Raises:
            RuntimeError: one did not.
        """
        while min(reports[-1][0] if reports else 0.0 for reports in self._reports) < since_s:
            if time.monotonic() > since_s + REPORT_TIMEOUT_S or not all(self._alive()):
                raise RuntimeError(
                    f"{self.name} did not report at the end of its slice: give more rounds"
                )
            self._wait(DRAIN_S)

    def get_warm(self) -> None:
        """Let it run until it is warm, and stop it.

        Raises:
            RuntimeError: it ended before, or takes too long.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self.least_done() < self.warm_up:
            if not all(self._alive()):
                raise RuntimeError(f"{self.name} ended before it was warm")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.name} was not warm after {START_TIMEOUT_S:g} s")
            time.sleep(DRAIN_S)
            self.drain()
        self._stop(self.tree())

    def rates(self) -> NDArray[np.float64]:
        """Steps per second in each turn, of all its processes together."""
        edges = np.array([(piece.before.at_s, piece.after.at_s) for piece in self.pieces])
        turns = [piece.turn for piece in self.pieces]
        rates = np.zeros(max(turns) + 1)
        for reports in self._reports:
            times, steps = np.array(reports, float).T
            at = np.searchsorted(times, edges)
            done, took_s = np.diff(steps[at])[:, 0], np.diff(times[at])[:, 0]
            rates += np.bincount(turns, done) / np.bincount(turns, took_s)
        return rates

    def thrifts(self) -> NDArray[np.float64]:
        """Steps per second of processor time in each turn, of all its processes together."""
        spent_s = [sum(piece.processor_s().values()) for piece in self.pieces]
        seconds = [piece.seconds for piece in self.pieces]
        turns = [piece.turn for piece in self.pieces]
        return self.rates() * np.bincount(turns, seconds) / np.bincount(turns, spent_s)

    def leave(self) -> None:
        """End processes that listen, before their work is done."""
        for pipe in self._pipes:
            pipe.send(LEAVE)
        self.finish()

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

    Every other turn begins with the last, so that nobody always comes after the same one.

    Args:
        contestants: warm ones.
        seconds: of a slice that count, in whole pieces.
        turns: at most.
    """
    for turn in range(turns):
        for contestant in list(contestants)[:: -1 if turn % 2 else 1]:
            contestant.run_for(seconds, turn)
        if any(contestant.least_done() >= contestant.steps for contestant in contestants):
            return


def ratio_of_means(rates: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[float, float]:
    """Of rates that were measured in turn; with its standard error."""
    ratio = rates.mean() / others.mean()
    error = (rates - ratio * others).std(ddof=1) / others.mean() / len(rates) ** 0.5
    return float(ratio), float(error)


@contextmanager
def ended(contestants: Mapping[Any, Contestant]) -> Iterator[None]:
    """Nothing of those that are there by then is left after the block, nor after SIGTERM in it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for contestant in contestants.values():
            contestant.kill()


def _signal(tree: Iterable[psutil.Process], number: int) -> None:
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
