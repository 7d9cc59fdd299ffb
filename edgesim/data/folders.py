"""Files of folders. Unlike `Path.glob`, a folder that can't be read is an error, not empty."""

from __future__ import annotations

import os
from pathlib import Path


def files_in(folder: Path, suffix: str) -> list[Path]:
    """Paths in a folder that end with a suffix, in order; none if there is no such folder.

    Raises:
        OSError: the folder can't be read.
    """
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))


def files_below(folder: Path) -> list[Path]:
    """Files in a folder and all folders below it, without hidden files and folders, in order.

    There are none if there is no such folder. Hidden folders hold thumbnails and deleted files.

    Raises:
        OSError: a folder can't be read.
    """
    files: list[Path] = []
    if not folder.is_dir():
        return files
    for place, folders, names in os.walk(folder, onerror=_fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        files += [path for path in paths if path.is_file()]
    return sorted(files)


def _fail(error: OSError) -> None:
    raise error
