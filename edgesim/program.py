"""Commands in messages: how the program is called, and how a lacking package is installed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "edgesim"


def program() -> str:
    """The command's name, or a path where the shell would not find the one that runs by its name.

    A fresh installation in `.venv` is started as `.venv/bin/edgesim`, and its name alone would be
    no command.
    """
    started = sys.argv[0] if sys.argv else ""
    if Path(started).name != NAME or Path(started).parent == Path():
        return NAME  # Python code, a notebook, or a name that the shell has found
    found = shutil.which(NAME)
    return NAME if found and Path(found).samefile(started) else started


def pip_install(*packages: str) -> str:
    """The command that installs packages for the Python that runs.

    It names the packages, not an extra of edgesim: pip knows the extras of a checkout by another
    name than those of an installed wheel.
    """
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *packages])
