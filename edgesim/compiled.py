"""Functions compiled by numba, which it keeps on disk for the next process.

numba looks at the file of a compiled function alone. A function that calls one of another file
would go on with the old one after a change there, without a word. So the folder of the compiled
functions is named by a digest of all files whose functions they may call.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import numba

from edgesim.code_version import digest_of

PARTS = ("edgesim.quant.kernels", "edgesim.compression")
"""Packages with compiled functions, which call none of another package."""

_ROOT = Path(__file__).resolve().parents[1]
_BESIDE_THE_CODE = _ROOT / "edgesim" / "__pycache__"
_DIGITS = 16  # of a digest, in the name of a folder

_config: Any = numba.config
_given: str = _config.CACHE_DIR  # NUMBA_CACHE_DIR, if it is set
_decorating = Lock()  # modules are imported by several threads

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function, **options: Any) -> Function:  # noqa: ANN401 (numba's)
    """Compile a function without the interpreter's lock when it is first called.

    Args:
        function: of a module in one of `PARTS`.
        options: further ones of `numba.njit`.
    """
    part = next(part for part in PARTS if function.__module__.startswith(f"{part}."))
    with _decorating:
        folder = folder_of(part)
        if folder is not None:
            _config.CACHE_DIR = str(folder)  # read at once; other code's functions go elsewhere
        try:
            made = numba.njit(nogil=True, cache=folder is not None, **options)(function)
        finally:
            _config.CACHE_DIR = _given
    return cast("Function", made)


@cache
def folder_of(part: str) -> Path | None:
    """Folder of a package's compiled functions; None if none can be written or the code not read.

    Args:
        part: one of `PARTS`.
    """
    digest = digest_of(_ROOT, (part.replace(".", "/"),))
    if not digest:
        return None
    stem = f"numba-{part.rpartition('.')[2]}-"
    for place in _places():
        folder = place / f"{stem}{digest[:_DIGITS]}"
        is_new = not folder.exists()
        if not _can_write(folder):
            continue
        if is_new and place == _BESIDE_THE_CODE:  # others may serve several installations
            for other in place.glob(f"{stem}*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
        return folder
    return None


def _places() -> list[Path]:
    """What NUMBA_CACHE_DIR names; else beside the code, or in the user's folder for such files."""
    if _given:
        return [Path(_given) / "edgesim"]
    places = [_BESIDE_THE_CODE]
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    if Path(user).is_absolute():  # not without a home
        places.append(Path(user) / "edgesim")
    return places


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
