"""What workers of edgesim's own Ray begin from: a private folder and a fork server. Without Ray.

The server takes seconds of a core to import torch. It is started as soon as a scenario is read, so
that it does so while the driver imports torch too, and checks the scenario.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from edgesim.fleet.on_ray.fork_server import fork_server
from edgesim.fleet.on_ray.private_folder import (
    PREFIX,
    private_folder,
    safe_parent,
    sweep,
    temporary_folders,
)

# Bytes of the path of a socket, without the zero at its end (macOS allows fewer), and of what Ray
# adds to our folder:
# /r/session_<date>_<time>_<microseconds>_<process>/sockets/dash_MetricsHead
_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
_BELOW_FOLDER = len("/r/session_") + 10 + 1 + 8 + 1 + 6 + 1 + 7 + 25
_FOLDER_NAME = len(f"/{PREFIX}") + 8


@dataclass(frozen=True, slots=True)
class Workers:
    """What workers begin from.

    Attributes:
        folder: private, for all files of the Ray that will have these workers.
        python: the program that Ray runs in place of Python; None if there is no fork server.
    """

    folder: Path
    python: Path | None


@contextmanager
def prepared_workers(console: Console) -> Iterator[Workers]:
    """Start a fork server in a new private folder, and end both.

    Args:
        console: told where Ray's logs are, after a failure.

    Raises:
        TemporaryFolderError: there is no folder that only this user can reach.
    """
    with folder_of_session(console) as folder, fork_server(folder) as python:
        yield Workers(folder, python)


@contextmanager
def folder_of_session(console: Console) -> Iterator[Path]:
    """A private folder for all files of edgesim's own Ray.

    After a failure Ray's logs are copied to a folder that is kept.
    """
    parent = safe_parent(temporary_folders(), _SOCKET_PATH - _BELOW_FOLDER - _FOLDER_NAME)
    sweep(parent)
    with private_folder(parent) as folder:
        try:
            yield folder
        except Exception as error:
            logs = folder / "r" / "session_latest" / "logs"
            if not isinstance(error, ValueError) and logs.is_dir():  # the user's own mistakes
                closed = tempfile.mkdtemp(prefix="ray-logs-of-edgesim-", dir=parent)
                kept = shutil.copytree(logs, Path(closed, "logs"))  # itself open to all, as Ray's
                console.print(f"Ray's logs are in {kept}", soft_wrap=True)
            raise
