"""Checks of a file before it is read."""

from __future__ import annotations

from pathlib import Path

from topologies.errors import TopologyError

MOST_BYTES = 16 * 2**20  # some hundred thousand lines, read in seconds


def check_file(path: Path) -> None:
    """Refuse what is no file, or would take minutes to read.

    Raises:
        TopologyError: it is no file or too large. A missing or unreadable file is refused by the
            reader.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return
    if path.is_dir():
        return
    if not path.is_file():
        raise TopologyError(f"{path}: is no file; name one that holds text")
    if size > MOST_BYTES:
        raise TopologyError(
            f"{path}: has {size / 2**20:,.0f} MiB; must be at most {MOST_BYTES // 2**20} MiB: "
            "leave out what the fleet does not need"
        )
