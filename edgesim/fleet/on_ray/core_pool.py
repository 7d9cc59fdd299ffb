"""A pool of cores that the processes of a run on one machine share, so that steps run undisturbed.

With more devices than cores, the operating system would switch between half-done steps every few
milliseconds, and activations would be evicted from the caches meanwhile. A process therefore holds
a core of this pool until its step, or its turn of several steps, is done.

Cores are lock files. A lock ends with its process, so a killed actor never keeps a core, and the
order in which devices compute has no influence on any result. A process that returns a core writes
to a named pipe, called bell in the code; only the process that is next in line reads from it.

The lock files and the pipe are in a private folder and opened relative to it: no other user can
hold a core, ring the bell, or put something else in their place.
"""

from __future__ import annotations

import fcntl
import os
import select
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from edgesim.fleet.on_ray.private_folder import open_private

DEAD_HOLDER_S = 0.05  # between checks for cores of killed processes, which do not ring the bell
RINGS = 4096  # bytes read at a time

_QUEUE, _BELL = "queue", "bell"  # files
_AS_LOCK = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_AS_PIPE = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class CorePool:
    """The cores of this machine that one run may use.

    Args:
        folder: the same for all processes of the run on this machine; made if it is absent.
        num_cores: how many may be held at a time.

    Raises:
        TemporaryFolderError: another user could reach the folder, or it can't be made.
    """

    def __init__(self, folder: Path, num_cores: int) -> None:
        self._folder = open_private(folder)  # for the life of the process: nobody may remove it
        weakref.finalize(self, os.close, self._folder).atexit = False  # threads may use it then
        with suppress(FileExistsError):
            if os.mkfifo in os.supports_dir_fd:
                os.mkfifo(_BELL, 0o600, dir_fd=self._folder)
            else:  # such as builds for older macOS
                os.mkfifo(folder / _BELL, 0o600)
        self._cores = [f"core-{index}" for index in range(num_cores)]

    @contextmanager
    def core(self) -> Iterator[None]:
        """Hold a core; waits until one is free."""
        with ExitStack() as held:
            bell = os.open(_BELL, _AS_PIPE, dir_fd=self._folder)
            held.callback(os.close, bell)
            held.callback(_ring, bell)  # after the core is free
            with self._locked(_QUEUE):  # only the first in line looks for a free core
                while not any(self._try_lock(core, held) for core in self._cores):
                    _wait_for(bell)
            yield

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Hold a lock file; waits for it."""
        descriptor = os.open(name, _AS_LOCK, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _try_lock(self, name: str, held: ExitStack) -> bool:
        """Take a lock file if it is free, until `held` is closed."""
        descriptor = os.open(name, _AS_LOCK, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        held.callback(os.close, descriptor)
        return True


def _ring(bell: int) -> None:
    with suppress(BlockingIOError):  # it has rung often enough
        os.write(bell, b"!")


def _wait_for(bell: int) -> None:
    """Wait until the bell rings; earlier rings may be of cores that are taken again."""
    ringing = select.poll()  # `select` knows no descriptors above 1023
    ringing.register(bell, select.POLLIN)
    ringing.poll(DEAD_HOLDER_S * 1000)
    with suppress(BlockingIOError):
        os.read(bell, RINGS)
