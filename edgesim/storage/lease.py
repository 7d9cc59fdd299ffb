"""Keeps a run in an object store to one process at a time.

An object store has no lock that ends with its process. So the process that holds a run rewrites a
small file, its lease, every few seconds. Another process that finds a lease watches whether the
lease changes. If the lease stands still, its holder has ended. No clocks are compared.

Each holder has a lease of its own, with a number. Of all processes that want to be the next holder,
one can create the lease of the next number. A holder that was paused and wakes after another has
taken over finds a higher number, or another name under its own number. The same holds for all
processes that write for that holder: they look every few seconds (`Fence`), and a successor waits
until they have looked.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Self
from uuid import uuid4

from edgesim.errors import EdgesimError
from edgesim.storage.store import StorageError, Store

FOLDER = "leases"
RENEW_S = 5.0
LOOK_S = 5.0
LOOKS = 30
"""Number of looks at a lease that has to stand still; a look that the store delays counts once."""
STILL_S = 30.0

_NUMBERED = re.compile(rf"{FOLDER}/(\d+)\.json")

_log = logging.getLogger(__name__)


class LeaseError(EdgesimError, ValueError):
    """Another process holds the run, or has taken it over."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a run directory.

    Attributes:
        number: number of the holder's lease.
        name: unique name of the holder.
    """

    number: int
    name: str


class Fence:
    """Lets processes write for a holder until another process has taken over.

    Args:
        store: the run directory.
        holder: holder of the run directory.
        look_s: seconds between two looks at the lease.
    """

    def __init__(self, store: Store, holder: Holder, *, look_s: float = LOOK_S) -> None:
        self._store, self._holder, self._look_s = store, holder, look_s
        self._look_again_s = -1.0

    def check(self) -> None:
        """Look at the lease, if the last look was `look_s` ago or longer.

        Raises:
            LeaseError: another process has taken over.
        """
        now_s = time.monotonic()
        if now_s < self._look_again_s:
            return
        if not _is_newest(self._store, self._holder):
            raise LeaseError(
                f"{self._store.url}: another process has taken over this run, since this one was "
                "silent for a while; this process ends here"
            )
        self._look_again_s = now_s + self._look_s


class Lease:
    """Holds a run directory for this process during a `with` block.

    If there is a lease already, entering the block waits until it is clear whether that lease is
    renewed.

    Args:
        store: the run directory.
        renew_s: seconds between two renewals of the lease.
        still_s: seconds without a renewal after which a holder counts as ended.
        look_s: seconds between two looks of processes that write for a holder.

    Attributes:
        holder: the holder that this lease stands for.
    """

    holder: Holder

    def __init__(
        self,
        store: Store,
        *,
        renew_s: float = RENEW_S,
        still_s: float = STILL_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._store = store
        self._renew_s, self._still_s, self._look_s = renew_s, still_s, look_s
        self._renewals = 0
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Take the lease.

        Raises:
            LeaseError: another process holds it.
            StorageError: the store does not answer, or has no conditional puts.
        """
        old = self._await_end()
        self.holder = Holder(max(old, default=-1) + 1, uuid4().hex)
        if not self._create():
            raise self._taken()
        self._thread.start()
        try:
            self._settle(old)
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Give the lease back."""
        self._give_back()

    def _give_back(self) -> None:
        self._ended.set()
        self._thread.join()
        self._delete([self.holder.number])

    def _await_end(self) -> list[int]:
        """Wait until it is clear that no lease is renewed; return the numbers of the old leases.

        Raises:
            LeaseError: a lease was renewed.
        """
        is_told = False
        while numbers := _numbers(self._store):
            if not is_told:
                _log.warning(
                    "%s: another process worked on this run; watching for %g s whether it lives",
                    self._store.url,
                    self._still_s,
                )
            is_told = True
            if self._stands_still(max(numbers)):
                break
        return numbers

    def _stands_still(self, number: int) -> bool:
        """Whether a lease is there and is not renewed; False if it was given back."""
        first = _read(self._store, number)
        for _ in range(LOOKS):
            time.sleep(self._still_s / LOOKS)
            found = _read(self._store, number)
            if found is None:
                return False
            if found != first:
                raise LeaseError(
                    f"{self._store.url}: this run is still going on in another process "
                    f"({found.get('pid')} on {found.get('host')}); wait for it, or end it first"
                )
        return True

    def _create(self) -> bool:
        try:
            return self._store.create(_file(self.holder.number), self._content())
        except StorageError as error:
            raise StorageError(
                f"{error}; a run needs a store with conditional puts (If-None-Match)"
            ) from error

    def _settle(self, old: Sequence[int]) -> None:
        """Wait until processes that wrote for older leases have ended; remove these leases.

        Raises:
            LeaseError: another process took the run directory at the same time, under another
                number, since one of the two saw no older lease.
        """
        if old:
            time.sleep(1.5 * self._look_s)
        if set(_numbers(self._store)) - {*old, self.holder.number}:
            raise self._taken()
        self._delete(old)

    def _keep(self) -> None:
        """Renew the lease, in a thread, until it is given back or another process takes over."""
        while not self._ended.wait(self._renew_s):
            try:
                if not _is_newest(self._store, self.holder):
                    return
                self._renewals += 1
                self._store.write(_file(self.holder.number), self._content())
            except StorageError as error:
                _log.warning("the lease of this run can't be renewed: %s", error)

    def _delete(self, numbers: Iterable[int]) -> None:
        """Remove leases, unless another process holds the run now.

        A failure is only logged: the next process then waits until the lease has stood still.
        """
        try:
            if _is_newest(self._store, self.holder):
                self._store.delete(map(_file, numbers))
        except StorageError as error:
            _log.warning("an ended lease can't be removed, so the next process waits: %s", error)

    def _content(self) -> bytes:
        fields = {
            "name": self.holder.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "renewals": self._renewals,
        }
        return json.dumps(fields).encode()

    def _taken(self) -> LeaseError:
        return LeaseError(f"{self._store.url}: another process has just taken this run over")


def _is_newest(store: Store, holder: Holder) -> bool:
    """Whether a holder is the newest one of a run directory."""
    if max(_numbers(store), default=-1) != holder.number:
        return False
    found = _read(store, holder.number)
    return found is not None and found["name"] == holder.name


def _read(store: Store, number: int) -> dict[str, object] | None:
    """Content of a lease; None if it was given back."""
    try:
        content = store.read(_file(number))
    except StorageError:
        if store.exists(_file(number)):
            raise
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise LeaseError(
            f"{store.url}/{_file(number)}: damaged: it is no lease; if no other process works on "
            "this run, remove it"
        )
    return found


def _numbers(store: Store) -> list[int]:
    matches = (_NUMBERED.fullmatch(name) for name in store.names(f"{FOLDER}/*"))
    return [int(match[1]) for match in matches if match]


def _file(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"
