"""Shows on a console how a run goes on: lines now and then, or on a terminal a live display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from edgesim.fleet.recording.device_lines import duration
from edgesim.fleet.recording.fleet_state import FleetState, Sink
from edgesim.fleet.recording.passed_time import PassedTime

FIRST_LINE_S = 5.0  # after which a line of progress comes where the output is no terminal
LINE_INTERVAL_S = 30.0  # between further ones
QUIET_S = 15.0  # without the end of a round, after which this is said
_AS_LONG = 2  # times the longest such time before
_ROUNDING = 1e-6


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
    clock_s = row.get("virtual_time_s")
    clock = "" if clock_s is None else f", clock {duration(clock_s)}"
    return (
        f"epoch {row['epoch']:.4g} (round {row['round']}{clock}): {found}"
        f"loss {row['loss']:.4f}, consensus distance {row['consensus_distance']:.4g}"
    )


@dataclass(slots=True)
class Estimate:
    """Tells how long a training goes on, by its pace since the fleet's first progress.

    What comes before that is start-up, and a run that is gone on with does not begin at 0. Pauses
    are left out, such as a wait for disk space. Where devices repeat rounds, it begins anew.
    """

    _share_before: float | None = None
    _first_share: float | None = None  # what was done at the first progress
    _last_s: float = 0.0  # time of the newest progress
    _last_share: float = 0.0
    _passed: PassedTime = field(default_factory=PassedTime)  # from the first progress to the newest

    def see(self, fleet: FleetState, now_s: float) -> None:
        """Take notice of the newest state, at a time in seconds."""
        share = fleet.share_done
        if self._share_before is None:
            if len(fleet.devices) == fleet.facts.num_devices:
                self._share_before = share
        elif self._first_share is None:
            if share > self._share_before:
                self._first_share, self._last_share, self._last_s = share, share, now_s
        elif share < self._last_share:
            self._share_before, self._first_share = share, None
            self._passed = PassedTime()
        elif share - self._last_share >= (1 - _ROUNDING) / fleet.facts.num_rounds:
            # Steps are of a round of all devices at least: devices may end theirs in bursts.
            self._passed.add(now_s - self._last_s)
            self._last_share, self._last_s = share, now_s

    def seconds_left(self, share_done: float) -> float | None:
        """Seconds until all is done; None while that is not known."""
        if self._first_share is None or not self._passed.seconds:
            return None
        done = self._last_share - self._first_share
        return self._passed.seconds * (1 - share_done) / done


@dataclass(slots=True)
class Standstill:
    """Tells for how long no device has ended a round, if that is longer than it ever was before."""

    _rounds: int = -1
    _moved_s: float = 0.0
    _longest_s: float = 0.0  # between two states with different rounds

    def see(self, fleet: FleetState, now_s: float) -> None:
        """Take notice of the newest state, at a time in seconds."""
        rounds = sum(own.rounds_done for own in fleet.devices.values())
        is_over = all(own.end is not None for own in fleet.devices.values())
        if rounds != self._rounds or is_over:
            if self._rounds >= 0 and not is_over:
                self._longest_s = max(self._longest_s, now_s - self._moved_s)
            self._rounds, self._moved_s = rounds, now_s

    def text(self, now_s: float) -> str:
        """What to say of it; nothing if a round ended lately."""
        quiet_s = now_s - self._moved_s
        if quiet_s < max(QUIET_S, _AS_LONG * self._longest_s):
            return ""
        return f"no round has ended for {duration(quiet_s)}"


class PlainView(View):
    """A line now and then, for files and pipes, which are read in the end.

    Args:
        console: where lines are printed.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next_line_s: float | None = None
        self._estimate = Estimate()
        self._standstill = Standstill()

    def update(self, fleet: FleetState) -> None:
        """Print a line if the last one is some time ago."""
        now_s = monotonic()
        self._estimate.see(fleet, now_s)
        self._standstill.see(fleet, now_s)
        if self._next_line_s is None:
            self._next_line_s = now_s + FIRST_LINE_S
        if now_s <= self._next_line_s or fleet.slowest_round is None:
            return
        self._next_line_s = now_s + LINE_INTERVAL_S
        loss = "-" if fleet.mean_loss is None else f"{fleet.mean_loss:.3f}"
        left_s = self._estimate.seconds_left(fleet.share_done)
        left = "" if left_s is None else f", about {duration(left_s)} left"
        still = self._standstill.text(now_s)
        say(
            self.console,
            f"round {fleet.slowest_round}/{fleet.facts.num_rounds}, loss {loss}, "
            f"sent {decimal(fleet.sent_bytes)}" + (f"; {still}" if still else left),
        )

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print what an evaluation found of the averaged model, whose row is the first."""
        say(self.console, evaluation_line(rows[0]))
