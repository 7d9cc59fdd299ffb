"""Keeps a run in an object store to one process at a time.

Nothing there ends with a process, as the lock of a file does. So whoever holds a run writes a small
file anew every few seconds, and whoever finds such a file looks whether it changes: if it stands
still, its holder has ended. No clocks are compared.

Each holder has a file of its own, numbered. Of all who want to be the next, one can create that
number; a holder that was held up and wakes after it was succeeded sees the higher number, and
ends. What its devices have written meanwhile are the bits that its successor's write, too.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from threading import Event, Thread
from types import TracebackType
from typing import Self
from uuid import uuid4

from edgesim.errors import EdgesimError
from edgesim.storage import StorageError, Store

FOLDER = "leases"
RENEW_S = 5.0
STILL_S = 30.0
LOOKS = 30  # while a lease stands still

_NUMBERED = re.compile(rf"{FOLDER}/(\d+)\.json")

_log = logging.getLogger(__name__)


class LeaseError(EdgesimError, ValueError):
    """Another process holds what was to be held, or has taken it over."""


class Lease:
    """A folder held by this process for as long as a `with` block takes.

    To enter takes a while if there is a lease: until it is clear whether anybody renews it.

    Args:
        store: the folder.
        renew_s: between two renewals.
        still_s: without one, after which a holder counts as ended; all who hold one folder have
            the same.
    """

    def __init__(self, store: Store, *, renew_s: float = RENEW_S, still_s: float = STILL_S) -> None:
        self._store, self._renew_s, self._still_s = store, renew_s, still_s
        self._identity = {"host": socket.gethostname(), "pid": os.getpid(), "id": uuid4().hex}
        self._number = self._renewals = 0
        self._is_lost = False
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            LeaseError: another process holds it.
        """
        place, numbers = self._store.url, self._numbers()
        if numbers:
            _log.warning("%s: a process was at this run; does it live? %g s", place, self._still_s)
            self._await_standstill(max(numbers))
            self._number = max(numbers) + 1
        if not self._store.create(_name(self._number), self._content()):
            raise LeaseError(f"{place}: another process has just gone on with this run")
        self._store.delete(_name(number) for number in numbers)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Give it back."""
        self._ended.set()
        self._thread.join()
        if not self._is_lost:
            self._store.delete(_name(n) for n in self._numbers() if n <= self._number)

    def check(self) -> None:
        """Do nothing as long as it is held.

        Raises:
            LeaseError: it was taken over.
        """
        if self._is_lost:
            raise LeaseError(
                f"{self._store.url}: this process was not heard of for a while, and another has "
                "gone on with its run; it ends here"
            )

    def _keep(self) -> None:
        """In a thread: renew it."""
        while not self._ended.wait(self._renew_s):
            try:
                # A successor removes what was before it, of which a late write may bring some back.
                if max(self._numbers(), default=-1) != self._number:
                    self._is_lost = True
                    return
                self._renewals += 1
                self._store.write(_name(self._number), self._content())
            except StorageError as error:
                _log.warning("the lease of this run can't be renewed: %s", error)

    def _await_standstill(self, number: int) -> None:
        """Return when a lease was not renewed for long enough, or is gone.

        Raises:
            LeaseError: it was renewed.
        """
        first, start_s = self._read(number), time.monotonic()
        while (found := self._read(number)) is not None:
            if found != first:
                holder = json.loads(found)
                raise LeaseError(
                    f"{self._store.url}: this run is still going on in another process "
                    f"({holder['pid']} on {holder['host']}); wait for it, or end that one first"
                )
            if time.monotonic() - start_s > self._still_s:
                return
            time.sleep(self._still_s / LOOKS)

    def _read(self, number: int) -> bytes | None:
        try:
            return self._store.read(_name(number))
        except StorageError:
            if self._store.exists(_name(number)):
                raise
            return None  # given back

    def _numbers(self) -> list[int]:
        matches = (_NUMBERED.fullmatch(name) for name in self._store.names(f"{FOLDER}/*"))
        return [int(match[1]) for match in matches if match]

    def _content(self) -> bytes:
        return json.dumps({**self._identity, "renewals": self._renewals}).encode()


def _name(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"
