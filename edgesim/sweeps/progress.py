"""How a sweep goes on: a bar on a terminal, elsewhere lines now and then; each result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from edgesim.fleet.recording.device_lines import duration
from edgesim.fleet.recording.passed_time import PassedTime
from edgesim.scenario.sweep import Sweep
from edgesim.storage.store import Store
from edgesim.sweeps.directory import is_finished
from edgesim.sweeps.pool import Event

LINE_INTERVAL_S = 60.0
"""Seconds between lines of progress where the output is no terminal."""


class RestOfSweep:
    """How much of the cells is done, and how long the rest takes at the pace so far.

    What a cell has done when it is first heard of is no part of the pace: its run may go on from
    there.

    Args:
        num_cells: that are to be run.
    """

    def __init__(self, num_cells: int) -> None:
        self.num_ended = 0
        self.shares: dict[str, float] = {}
        """Of the cells that are under way: done so far, from 0 to 1."""
        self._num_cells = num_cells
        self._begun_with: dict[str, float] = {}  # shares at the first progress of each cell
        self._last_s = 0.0  # time of the newest progress
        self._passed = PassedTime()  # from the first progress to the newest

    def see(self, event: Event, now_s: float) -> None:
        """Take notice of what happened to a cell, at a time in seconds."""
        if event.kind in ("begun", "progress"):
            self.shares[event.cell] = float(event.fields.get("share", 0.0))
        elif event.kind in ("done", "failed"):
            self.shares.pop(event.cell, None)
            self.num_ended += 1
        if self._begun_with:
            self._passed.add(now_s - self._last_s)
        if event.kind == "progress":
            self._begun_with.setdefault(event.cell, self.shares[event.cell])
        self._last_s = now_s

    @property
    def share_done(self) -> float:
        """Of all cells, from 0 to 1."""
        return (self.num_ended + sum(self.shares.values())) / self._num_cells

    def said(self) -> str:
        """Time left, and each cell that is under way with its share."""
        cells = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        left_s = self._seconds_left()
        return cells if left_s is None else f"about {duration(left_s)} left; {cells}"

    def _seconds_left(self) -> float | None:
        passed_s = self._passed.seconds
        done = self._num_cells * self.share_done - sum(self._begun_with.values())
        left = self._num_cells * (1 - self.share_done)
        return passed_s * left / done if done > 0 and passed_s > 0 else None


@contextmanager
def shown_progress(
    planned: Sweep, console: Console, place: str, clock: Callable[[], float] = monotonic
) -> Iterator[Callable[[Event], None]]:
    """Context that gives a function, which is told of events and shows them.

    Args:
        planned: the sweep.
        console: to print on.
        place: folder of the sweep.
        clock: seconds of a clock that does not go back.
    """
    bar = Progress(
        TextColumn("cells"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[running]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    total = len(planned.wanted)
    store = Store.at(place)
    num_open = sum(not is_finished(store, cell.name) for cell in planned.wanted)
    if num_open < total:
        console.print(f"{total - num_open} of {total} cells are finished already")
    task = bar.add_task("cells", total=total, completed=total - num_open, running="")
    rest = RestOfSweep(num_open)
    next_line_s = clock() + LINE_INTERVAL_S

    def tell(event: Event) -> None:
        nonlocal next_line_s
        now_s = clock()
        rest.see(event, now_s)
        if event.kind == "warning":
            console.print(f"{event.cell}: {event.fields['text']}")
        elif event.kind in ("done", "failed"):
            console.print(f"{rest.num_ended}/{num_open} {event.cell}: {_result(event)}")
            for text in event.fields.get("summary", {}).get("warnings", ()):
                console.print(f"{event.cell}: {text}")
            bar.update(task, advance=1)
        elif not console.is_terminal and now_s > next_line_s:
            next_line_s = now_s + LINE_INTERVAL_S
            console.print(f"{rest.share_done:.0%} done, {rest.said()}", soft_wrap=True)
        bar.update(task, running=rest.said())

    with bar:
        yield tell


def _result(event: Event) -> str:
    if event.kind == "failed":
        return f"failed: {event.fields['text']}"
    summary = event.fields["summary"]
    if summary.get("consensus_accuracy") is None:
        return f"loss {summary['consensus_loss']:.4g}"
    return f"accuracy {summary['consensus_accuracy']:.4f}"
