"""A share of cores that the processes of one machine pass around, so that steps run undisturbed.

With more devices than cores, the operating system would switch between half-done steps every few
milliseconds, and each switch may find its activations gone from the caches. Whoever computes
therefore holds a core of this pool until its step, or its turn of several, is done.

Cores are lock files. A lock ends with its process, so a killed actor never keeps a core, and the
order in which devices compute has no influence on any result. Whoever gives a core back rings a
bell, a named pipe; only the one process that is next in line listens.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

DEAD_HOLDER_S = 0.05  # between looks for the core of a process that died, and so rang no bell
RINGS = 4096  # bytes read at a time


class CorePool:
    """The cores of this machine as far as one run may use them.

    Args:
        folder: the same for all processes of the run on this machine; made if it is absent.
        num_cores: how many may be held at a time.
    """

    def __init__(self, folder: Path, num_cores: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._queue, self._bell = folder / "queue", folder / "bell"
        with suppress(FileExistsError):
            os.mkfifo(self._bell, 0o600)
        self._cores = [folder / f"core-{index}" for index in range(num_cores)]

    @contextmanager
    def core(self) -> Iterator[None]:
        """Hold a core; waits until one is free."""
        with ExitStack() as held:
            bell = os.open(self._bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, bell)
            held.callback(_ring, bell)  # after the core is free
            with _locked(self._queue):  # only the first in line looks for a free core
                while not any(_try_lock(core, held) for core in self._cores):
                    _wait_for(bell)
            yield


def _ring(bell: int) -> None:
    with suppress(BlockingIOError):  # it has rung often enough
        os.write(bell, b"!")


def _wait_for(bell: int) -> None:
    """Until it rings; earlier rings may have been for cores that are taken again."""
    select.select([bell], [], [], DEAD_HOLDER_S)
    with suppress(BlockingIOError):
        os.read(bell, RINGS)


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
