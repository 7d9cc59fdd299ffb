"""Copies of own parts' files in a run directory, for resuming and loading the run.

A run that was interrupted goes on with the code that it began with. So a file that has changed
since is refused, and one that is gone is replaced by its copy.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from edgesim.results.run_files import RunDirectoryError, RunFiles
from edgesim.scenario.own_parts import own_parts
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import ContradictionError

FOLDER = "own_parts"


def write_sources(files: RunFiles, scenario: Scenario) -> None:
    """Copy the files that a scenario names into the directory of its run."""
    for _, part in own_parts(scenario):
        if part.source is not None:
            files.write_text(_copy_of(part.place), f"{part.source}\n")


def source_reader(files: RunFiles, *, unchanged: bool) -> Callable[[str], str | None]:
    """A reader of files as they were when the run began; it gives None if there is no copy.

    Args:
        files: of the run.
        unchanged: refuse a file that is there and differs from its copy.

    The reader raises `ContradictionError`, which names the key, if it must refuse, or if a copy is
    damaged.
    """

    def read(path: str) -> str | None:
        name = _copy_of(path)
        if not files.has(name):
            return None
        try:
            source = files.read_text(name).removesuffix("\n")
        except RunDirectoryError as error:
            raise ContradictionError(
                "", f"names {path}, but its copy cannot be used: {error}"
            ) from error
        if unchanged and differs(path, source):
            raise ContradictionError(
                "",
                f"names {path}, which has changed since the run began; bring back what it was "
                f"(a copy is {files.place}/{name}), or start the run anew",
            )
        return source

    return read


def _copy_of(path: str) -> str:
    """Name of a copy: a number, which makes it unique, and the name of the file."""
    return f"{FOLDER}/{blake2b(path.encode(), digest_size=4).hexdigest()}-{Path(path).name}"


def differs(path: str, source: str) -> bool:
    """Whether a file is there and has another text."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig") != source
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True
