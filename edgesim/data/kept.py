"""Arrays that take long to make are kept in a folder of the user, for later runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

CacheFolder = Annotated[str, Field(min_length=1)]
_LOG = logging.getLogger(__name__)


def kept_path(cache: str | None, name: str) -> Path:
    """Where arrays are kept.

    Args:
        cache: folder; None: `.cache/edgesim` in the home folder.
        name: of the arrays; it says all that determines them.
    """
    folder = Path(cache).expanduser() if cache else Path.home() / ".cache" / "edgesim"
    return folder / f"{name}.npz"


def kept(path: Path) -> dict[str, NDArray[Any]] | None:
    """Arrays of an earlier run; None if there are none, or they are broken."""
    try:
        # zip files have checksums
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        _LOG.warning("%s can't be read (%s); it is made again", path, error)
        return None


def keep(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays for later runs; several processes may do so at a time."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(arrays))
        unfinished.replace(path)
    except OSError as error:
        _LOG.warning("%s can't be written (%s); later runs make it again", path, error)
        with suppress(OSError):
            unfinished.unlink()
