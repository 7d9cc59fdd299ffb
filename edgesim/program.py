"""How the program is called on the command line, for commands in messages."""

from __future__ import annotations

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
