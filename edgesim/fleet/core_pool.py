"""A share of cores that the processes of one machine pass around, so that steps run undisturbed.

With more devices than cores, the operating system would switch between half-done steps every few
milliseconds, and each switch may find its activations gone from the caches. Whoever computes
therefore holds a core of this pool until its step is done.

Cores are lock files. A lock ends with its process, so a killed actor never keeps a core, and the
order in which devices compute has no influence on any result.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

POLL_INTERVAL_S = 0.0005  # by the one process that is next in line


class CorePool:
    """The cores of this machine as far as one run may use them.

    Args:
        folder: the same for all processes of the run on this machine; made if it is absent.
        num_cores: how many may be held at a time.
    """

    def __init__(self, folder: Path, num_cores: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._queue = folder / "queue"
        self._cores = [folder / f"core-{index}" for index in range(num_cores)]

    @contextmanager
    def core(self) -> Iterator[None]:
        """Hold a core; waits until one is free."""
        with ExitStack() as held:
            with _locked(self._queue):  # only the first in line looks for a free core
                while not any(_try_lock(core, held) for core in self._cores):
                    time.sleep(POLL_INTERVAL_S)
            yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file; waits for it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(path: Path, held: ExitStack) -> bool:
    """Take a lock file if it is free, until `held` is closed."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    held.callback(os.close, descriptor)
    return True
