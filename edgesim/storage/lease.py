"""Keeps a run in an object store to one process at a time.

Nothing there ends with a process, as the lock of a file does. So whoever holds a run writes a small
file anew every few seconds, and whoever finds such a file looks whether it changes: if it stands
still, its holder has ended. No clocks are compared.

Each holder has a file of its own, numbered. Of all who want to be the next, one can create that
number. A holder that was held up and wakes after it was succeeded finds a higher number, or another
than itself under its own; so do all who write on its behalf, who look every few seconds (`Fence`),
and whom a successor leaves the time to do so.
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
"""Spread over the time that a lease has to stand still; one that the store delays counts once."""
STILL_S = 30.0

_NUMBERED = re.compile(rf"{FOLDER}/(\d+)\.json")

_log = logging.getLogger(__name__)


class LeaseError(EdgesimError, ValueError):
    """Another process holds what was to be held, or has taken it over."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a folder.

    Attributes:
        number: of its lease.
        name: nobody else's.
    """

    number: int
    name: str


class Fence:
    """Lets those write who do so for a holder, until it is succeeded.

    Args:
        store: the folder that is held.
        holder: of it.
        look_s: seconds between two looks.
    """

    def __init__(self, store: Store, holder: Holder, *, look_s: float = LOOK_S) -> None:
        self._store, self._holder, self._look_s = store, holder, look_s
        self._look_again_s = -1.0

    def check(self) -> None:
        """Look, if the last look was some seconds ago.

        Raises:
            LeaseError: another process has taken over.
        """
        now_s = time.monotonic()
        if now_s < self._look_again_s:
            return
        if not _is_newest(self._store, self._holder):
            raise LeaseError(
                f"{self._store.url}: this process was not heard of for a while, and another has "
                "gone on with its run; it ends here"
            )
        self._look_again_s = now_s + self._look_s


class Lease:
    """A folder held by this process for as long as a `with` block takes.

    To enter takes a while if there is a lease: until it is clear whether anybody renews it.

    Args:
        store: the folder.
        renew_s: seconds between two renewals.
        still_s: seconds without one after which a holder counts as ended.
        look_s: seconds between two looks of all who write for a holder.

    Attributes:
        holder: this one.
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
        """Take it.

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
        """Give it back."""
        self._give_back()

    def _give_back(self) -> None:
        self._ended.set()
        self._thread.join()
        self._delete([self.holder.number])

    def _await_end(self) -> list[int]:
        """Numbers of leases that nobody renews, when it is clear that nobody does.

        Raises:
            LeaseError: one was renewed.
        """
        is_told = False
        while numbers := _numbers(self._store):
            if not is_told:
                _log.warning(
                    "%s: a process was at this run; looking for %g s whether it lives",
                    self._store.url,
                    self._still_s,
                )
            is_told = True
            if self._stands_still(max(numbers)):
                break
        return numbers

    def _stands_still(self, number: int) -> bool:
        """Whether a lease is there and nobody renews it; False if it was given back."""
        first = _read(self._store, number)
        for _ in range(LOOKS):
            time.sleep(self._still_s / LOOKS)
            found = _read(self._store, number)
            if found is None:
                return False
            if found != first:
                raise LeaseError(
                    f"{self._store.url}: this run is still going on in another process "
                    f"({found.get('pid')} on {found.get('host')}); wait for it, or end that one "
                    "first"
                )
        return True

    def _create(self) -> bool:
        try:
            return self._store.create(_file(self.holder.number), self._content())
        except StorageError as error:
            raise StorageError(
                f"{error}; to hold a run takes a store with conditional puts (If-None-Match)"
            ) from error

    def _settle(self, old: Sequence[int]) -> None:
        """Let those end who wrote for older leases.

        Raises:
            LeaseError: another process took the folder at the same time, under another number: one
                of the two saw no older lease.
        """
        if old:
            time.sleep(1.5 * self._look_s)
        if set(_numbers(self._store)) - {*old, self.holder.number}:
            raise self._taken()
        self._delete(old)

    def _keep(self) -> None:
        """In a thread: renew it until it is given back, or was taken over."""
        while not self._ended.wait(self._renew_s):
            try:
                if not _is_newest(self._store, self.holder):
                    return
                self._renewals += 1
                self._store.write(_file(self.holder.number), self._content())
            except StorageError as error:
                _log.warning("the lease of this run can't be renewed: %s", error)

    def _delete(self, numbers: Iterable[int]) -> None:
        """Remove leases, unless another process holds the folder now; a failure costs a wait."""
        try:
            if _is_newest(self._store, self.holder):
                self._store.delete(map(_file, numbers))
        except StorageError as error:
            _log.warning("an ended lease can't be removed, who comes next waits for it: %s", error)

    def _content(self) -> bytes:
        fields = {
            "name": self.holder.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "renewals": self._renewals,
        }
        return json.dumps(fields).encode()

    def _taken(self) -> LeaseError:
        return LeaseError(f"{self._store.url}: another process has just gone on with this run")


def _is_newest(store: Store, holder: Holder) -> bool:
    """Whether nobody holds a folder after a holder."""
    if max(_numbers(store), default=-1) != holder.number:
        return False
    found = _read(store, holder.number)
    return found is not None and found["name"] == holder.name


def _read(store: Store, number: int) -> dict[str, object] | None:
    """A lease; None if it was given back."""
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
            f"{store.url}/{_file(number)}: damaged: it is no lease; if no other process is at this "
            "run, remove it"
        )
    return found


def _numbers(store: Store) -> list[int]:
    matches = (_NUMBERED.fullmatch(name) for name in store.names(f"{FOLDER}/*"))
    return [int(match[1]) for match in matches if match]


def _file(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"
