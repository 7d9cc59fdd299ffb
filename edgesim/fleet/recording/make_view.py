"""Chooses how a run is shown on a console."""

from __future__ import annotations

import os

from rich.console import Console

from edgesim.fleet.recording.terminal_view import TerminalView
from edgesim.fleet.recording.view import PlainView, View


def make_view(console: Console) -> View:
    """A live display on a terminal, lines now and then elsewhere.

    A cell of a notebook that begins with `!` passes for a terminal. It would show each state of a
    live display below the last one.
    """
    is_of_cell = "JPY_PARENT_PID" in os.environ  # set by Jupyter's kernels
    can_move = console.is_terminal and not console.is_dumb_terminal and not is_of_cell
    is_live = can_move and not console.quiet
    return TerminalView(console) if is_live else PlainView(console)
