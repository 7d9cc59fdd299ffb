"""Shows on a console how a run goes on: lines now and then, or on a terminal a live display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from edgesim.fleet.recording.fleet_state import FleetState, Sink

LINE_INTERVAL_S = 30.0  # between lines of progress where the output is no terminal


class View(Sink):
    """A sink that a person looks at. What is printed on its console meanwhile stays readable.

    Args:
        console: where it shows.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def stage(self, text: str) -> None:
        """Say what is being prepared, until the fleet trains."""

    def evaluating(self, text: str) -> None:
        """Say how far an evaluation is; nothing if there is none."""

    def warn(self, text: str) -> None:
        """Say what is wrong."""
        say(self.console, f"warning: {text}")


def say(console: Console, line: str) -> None:
    """Print a line as it is: whole, and without taking a path's brackets for a style."""
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def evaluation_line(row: Mapping[str, Any]) -> str:
    """What an evaluation found of the averaged model."""
    found = "" if row["accuracy"] is None else f"consensus accuracy {row['accuracy']:.4f}, "
    if row.get("own_accuracy") is not None:
        found += f"on devices' own samples {row['own_accuracy']:.4f}, "
    return (
        f"epoch {row['epoch']:.4g} (round {row['round']}): {found}"
        f"loss {row['loss']:.4f}, consensus distance {row['consensus_distance']:.4g}"
    )


class PlainView(View):
    """A line now and then, for files and pipes, which are read in the end.

    Args:
        console: where lines are printed.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._start_s = self._next_line_s = 0.0
        self._share_at_start: float | None = None

    def update(self, fleet: FleetState) -> None:
        """Print a line if the last one is some time ago."""
        now_s = monotonic()
        if self._share_at_start is None:  # a run that is gone on with does not begin at 0
            self._start_s, self._share_at_start = now_s, fleet.share_done
            self._next_line_s = now_s + LINE_INTERVAL_S
        if now_s <= self._next_line_s or fleet.slowest_round is None:
            return
        self._next_line_s = now_s + LINE_INTERVAL_S
        loss = "-" if fleet.mean_loss is None else f"{fleet.mean_loss:.3f}"
        left_s = seconds_left(self._share_at_start, fleet.share_done, now_s - self._start_s)
        left = "" if left_s is None else f", about {left_s:.0f} s left"
        say(
            self.console,
            f"round {fleet.slowest_round}/{fleet.facts.num_rounds}, loss {loss}, "
            f"sent {decimal(fleet.sent_bytes)}{left}",
        )

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print what an evaluation found of the averaged model, whose row is the first."""
        say(self.console, evaluation_line(rows[0]))


def seconds_left(share_before: float, share_now: float, passed_s: float) -> float | None:
    """Seconds until all is done at the pace up to now; None while that is not known.

    Args:
        share_before: what was done when the time began.
        share_now: what is done now.
        passed_s: time between the two.
    """
    if share_now <= share_before or passed_s <= 0:
        return None
    return passed_s * (1 - share_now) / (share_now - share_before)
