"""Chooses how a run is shown on a console."""

from __future__ import annotations

from rich.console import Console

from edgesim.fleet.recording.terminal_view import TerminalView
from edgesim.fleet.recording.view import PlainView, View


def make_view(console: Console) -> View:
    """A live display on a terminal, lines now and then elsewhere."""
    is_live = console.is_terminal and not console.is_dumb_terminal and not console.quiet
    return TerminalView(console) if is_live else PlainView(console)
