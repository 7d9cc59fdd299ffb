"""A live display of a run on a terminal, legible at 80 columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.filesize import decimal
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from edgesim.fleet.recording.device_lines import device_lines, duration
from edgesim.fleet.recording.fleet_state import FleetState
from edgesim.fleet.recording.view import Estimate, PlainView, Standstill, View, evaluation_line, say

REFRESHES_PER_S = 2
_SPINNER = "|/-\\"
_BAR_WIDTH = 30
_BOLD, _PLAIN = Style(bold=True), Style()


class TerminalView(View):
    """A `View` that shows a table of the devices and redraws it.

    Args:
        console: a terminal's.
        clock: seconds of this machine.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(console)
        self._clock = clock
        self._start_s = clock()
        self._stage = "starting"
        self._fleet: FleetState | None = None
        self._start_of_training_s = 0.0
        self._share = 0.0
        self._estimate = Estimate()
        self._standstill = Standstill()
        self._figures: list[str] = []
        self._evaluating = ""
        self._lines: list[str] = []
        self._size = (0, 0)
        self._live = Live(
            self,
            console=console,
            transient=True,
            refresh_per_second=REFRESHES_PER_S,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def stage(self, text: str) -> None:
        """Say what is being prepared, until the fleet trains."""
        self._stage = text
        self._live.refresh()

    def update(self, fleet: FleetState) -> None:
        """Show the newest state."""
        if self._fleet is None:
            self._start_of_training_s = self._clock()
        self._estimate.see(fleet, self._clock())
        self._standstill.see(fleet, self._clock())
        self._share, self._figures = fleet.share_done, _figures(fleet)
        self._fleet = fleet
        self._size = (0, 0)

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print what an evaluation found of the averaged model, whose row is the first."""
        say(self.console, evaluation_line(rows[0]))

    def evaluating(self, text: str) -> None:
        """Show how far an evaluation is."""
        self._evaluating = text

    def close(self) -> None:
        """Take the display away; what was printed stays."""
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lines of the display, which fit the terminal."""
        width, height = options.max_width, console.height
        for place, line in enumerate(self._all_lines(width, height)):
            if place:
                yield Segment.line()
            yield Segment(line[:width], _BOLD if line in self._heads else _PLAIN)

    @property
    def _heads(self) -> set[str]:
        return {line for line in self._lines if line.endswith("  waits for")}

    def _all_lines(self, width: int, height: int) -> list[str]:
        now_s = self._clock()
        fleet = self._fleet
        if fleet is None:
            sign = _SPINNER[int(REFRESHES_PER_S * now_s) % len(_SPINNER)]
            return [f"{sign} {self._stage} ({duration(now_s - self._start_s)})"]
        figures = _in_lines(self._figures, width)
        room = height - 4 - len(figures)  # two lines above them, an empty one, that of the cursor
        if self._size != (width, room):
            self._lines = ["", *device_lines(fleet, width, room)]
            self._size = (width, room)
        return [*self._head(fleet, figures, now_s), *self._lines]

    def _head(self, fleet: FleetState, figures: Sequence[str], now_s: float) -> list[str]:
        """What the fleet is, how far it is, its figures, and what else goes on."""
        passed_s = now_s - self._start_of_training_s
        filled = int(_BAR_WIDTH * self._share)
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        left_s = self._estimate.seconds_left(self._share)
        left = "" if left_s is None else f", about {duration(left_s)} left"
        sign = _SPINNER[int(REFRESHES_PER_S * now_s) % len(_SPINNER)]
        last = self._evaluating or self._missing(fleet) or self._standstill.text(now_s)
        return [
            fleet.facts.title,
            f"{sign} [{bar}] {int(100 * self._share)} %  {duration(passed_s)}{left}",
            *figures,
            *([last] if last else []),
        ]

    @staticmethod
    def _missing(fleet: FleetState) -> str:
        """How many devices are still being started."""
        num_devices = fleet.facts.num_devices
        missing = num_devices - len(fleet.devices)
        return f"starting: {missing} of {num_devices} devices are not there yet" if missing else ""


def _in_lines(figures: Sequence[str], width: int) -> list[str]:
    """Figures side by side, in as many lines as they need; none is cut in two."""
    lines: list[str] = []
    for figure in figures:
        if lines and len(lines[-1]) + 2 + len(figure) <= width:
            lines[-1] += f"  {figure}"
        else:
            lines.append(figure)
    return lines


def _figures(fleet: FleetState) -> list[str]:
    """Figures of the whole fleet; of thousands of devices they take a while to add up."""
    devices = fleet.devices.values()
    slowest = "-" if fleet.slowest_round is None else fleet.slowest_round
    loss = "-" if fleet.mean_loss is None else f"{fleet.mean_loss:.4g}"
    figures = [f"round {slowest}/{fleet.facts.num_rounds}", f"loss {loss}"]
    if (accuracy := fleet.evaluation.get("accuracy")) is not None:
        figures.append(f"accuracy {accuracy:.4f}")
    figures.append(f"sent {decimal(fleet.sent_bytes)}")
    if energies := [p.energy_j for p in devices if p.energy_j is not None]:
        figures.append(f"energy {sum(energies):.4g} J")
    if clocks := [p.virtual_time_s for p in devices if p.virtual_time_s is not None]:
        horizon_s = fleet.facts.horizon_s
        end = "" if horizon_s is None else f" of {duration(horizon_s)}"
        figures.append(f"clock {duration(max(clocks))}{end}")
    if restarts := sum(fleet.restarts.values()):
        figures.append(f"restarts {restarts}")
    return figures


def make_view(console: Console) -> View:
    """A live display on a terminal, lines now and then elsewhere.

    A cell of a notebook that begins with `!` passes for a terminal. It would show each state of a
    live display below the last one.
    """
    is_of_cell = "JPY_PARENT_PID" in os.environ  # set by Jupyter's kernels
    can_move = console.is_terminal and not console.is_dumb_terminal and not is_of_cell
    is_live = can_move and not console.quiet
    return TerminalView(console) if is_live else PlainView(console)
