"""Writers of a run wait while a file system is full, and go on when there is space again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

from edgesim.errors import EdgesimError

PAUSE_S = 1.0  # between two attempts to write

Result = TypeVar("Result")


class StorageError(EdgesimError, ValueError):
    """A file cannot be written, read or removed; its former content is still there."""


class NoSpaceError(StorageError):
    """A file cannot be written because the file system is full or a quota is used up."""


class WaitForSpace:
    """Repeats what a full file system prevents, until there is space or `stop` is called.

    Any number of threads may use one object.

    Args:
        tell: called with the error's text when the first writer begins to wait, and with None when
            no writer waits any more.
    """

    def __init__(self, tell: Callable[[str | None], None] = lambda _: None) -> None:
        self._tell = tell
        self._lock = Lock()
        self._num_waiting = 0
        self._has_stopped = Event()
        self.problem: str | None = None
        """What is full, while somebody waits."""
        self.num_waits = 0
        """How often a writer began to wait."""

    def stop(self) -> None:
        """Let those who wait fail now, and others at their first attempt."""
        self._has_stopped.set()

    def repeated(self, work: Callable[[], Result]) -> Result:
        """Do something that may be done repeatedly; while there is no space, try again.

        Raises:
            NoSpaceError: there is no space, and `stop` was called.
        """
        try:
            return work()
        except NoSpaceError as error:
            newest = error
        with self._waiting(newest):
            while not self._has_stopped.wait(PAUSE_S):
                try:
                    return work()
                except NoSpaceError as error:
                    newest = error
        raise newest

    @contextmanager
    def _waiting(self, error: NoSpaceError) -> Iterator[None]:
        if self._has_stopped.is_set():
            raise error
        with self._lock:
            self._num_waiting += 1
            self.num_waits += 1
            if self._num_waiting == 1:
                self.problem = str(error)
                self._tell(self.problem)
        try:
            yield
        finally:
            with self._lock:
                self._num_waiting -= 1
                if not self._num_waiting:
                    self.problem = None
                    self._tell(None)
