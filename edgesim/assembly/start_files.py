"""Initial values in a run directory: the run needs the file no more that they were read from."""

from __future__ import annotations

from edgesim.models.start_values import StartValues
from edgesim.results.run_files import RunFiles

FILE = "start.npz"


def write_start(files: RunFiles, start: StartValues | None) -> None:
    """Keep the values that a run begins with, if they are not random."""
    if start is not None:
        files.write_arrays(FILE, start.arrays, durable=True)


def read_start(files: RunFiles) -> StartValues | None:
    """Values that a run began with; None: random ones.

    Raises:
        RunDirectoryError: the file is damaged.
    """
    if not files.has(FILE):
        return None
    return StartValues(files.read_arrays(FILE), f"{files.place}/{FILE}")
