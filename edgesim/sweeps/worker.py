"""A process that runs cells of a sweep, one after the other, each inline.

It reads cells from its standard input and writes events to its standard output, a line of JSON
each. When the input ends, so does the process, in the midst of a run, too: the sweep that started
it has ended, and any run can be resumed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from rich.console import Console

from edgesim.api.checks import check
from edgesim.errors import EdgesimError
from edgesim.fleet.environment import described_content
from edgesim.fleet.recording.fleet_state import FleetState, Sink
from edgesim.fleet.run import resume_run, run_scenario
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import ABOUT, FIRST_FILES, PARTS
from edgesim.scenario.files import parse_scenario
from edgesim.storage.store import Store
from edgesim.sweeps.sameness import Contents
from edgesim.system import stay_on


class Events(Sink):
    """A sink that writes what happens as lines of JSON.

    Args:
        out: where lines are written.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def say(self, event: str, **fields: object) -> None:
        """Write a line."""
        with self._lock:
            self._out.write(json.dumps({"event": event, **fields}) + "\n")
            self._out.flush()

    def update(self, fleet: FleetState) -> None:
        """Say how much of the training is done, once all devices have been heard of.

        Before that, a run that goes on looks as if it had begun anew.
        """
        if len(fleet.devices) == fleet.facts.num_devices:
            self.say("progress", share=fleet.share_done)


class _Log(logging.Handler):
    """Sends warnings to the sweep, which says of which cell they are."""

    def __init__(self, events: Events) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.say("warning", text=record.getMessage())


def run_cell(
    name: str, scenario: str, place: str, known: Iterable[Sequence[str]], events: Events
) -> dict[str, Any]:
    """Run a cell, or resume its run; return its summary.

    Args:
        name: of the cell.
        scenario: as YAML.
        place: its run directory.
        known: what it must begin with, as `Contents.of_cell` gives it.
        events: told how it goes on.

    Raises:
        EdgesimError: the run failed.
    """
    console = Console(file=StringIO(), quiet=True)
    if has_begun(Store.at(place)):
        return resume_run(place, inline=True, console=console, sinks=[events]).summary
    clear_start(Store.at(place))
    parsed = parse_scenario(scenario, name, Path())
    prepared = check(parsed, name, reads_images=True, is_cell=True).prepared
    begins_with = described_content(prepared)
    Contents.from_rows(known).add(parsed.model_dump(mode="json"), begins_with, "this cell")
    return run_scenario(prepared, place, inline=True, console=console, sinks=[events]).summary


def has_begun(store: Store) -> bool:
    """Whether a run wrote all that is needed to resume it."""
    return all(store.exists(name) for name in (ABOUT, *FIRST_FILES))


def clear_start(store: Store) -> None:
    """Remove the files of a run that was killed before its first round.

    A folder that holds recorded rounds stays as it is.

    Raises:
        RunDirectoryError, LeaseError: another process works on the run.
    """
    if store.is_free() or store.names(PARTS):
        return
    with RunDirectory(store).held():
        for folder in ("parts", "checkpoints", "snapshots", "models", "own_parts"):
            store.delete_tree(folder)
        store.delete([ABOUT, *FIRST_FILES])
        store.sweep()  # unfinished files of the killed process


def main() -> None:
    """Run cells until the input ends. The only argument: processors, such as 0,2."""
    stay_on(map(int, sys.argv[1].split(",")))
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no event
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.simplefilter("ignore")
    events = Events(out)
    logging.basicConfig(handlers=[_Log(events)])
    cells: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(cells,), daemon=True).start()
    events.say("ready")
    try:
        while True:
            cell = json.loads(cells.get())
            try:
                summary = run_cell(**cell, events=events)
            except EdgesimError as error:
                events.say("failed", text=str(error))
            except Exception as error:  # noqa: BLE001 (named by the sweep, which goes on)
                events.say("failed", text=f"{type(error).__name__}: {error}")
            else:
                events.say("done", summary=summary)
    except (KeyboardInterrupt, asyncio.CancelledError, BrokenPipeError):
        os._exit(1)


def _read(cells: SimpleQueue[str]) -> None:
    """Take cells in; end the process with the input."""
    for line in sys.stdin:
        cells.put(line)
    os._exit(0)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
