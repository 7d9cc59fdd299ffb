"""Says once that a run or a sweep waits because a file system is full, and once that it goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from threading import Lock

_log = logging.getLogger(__name__)


class FullDisk:
    """Which processes of a run wait for space.

    Args:
        what: that waits, in words.
        command: that goes on with it after Ctrl-C.
    """

    def __init__(self, what: str = "run", command: str = "edgesim resume") -> None:
        self._what, self._command = what, command
        self._lock = Lock()
        self._problems: dict[str, str] = {}

    def told_by(self, who: str) -> Callable[[str | None], None]:
        """Function by which `who` tells what is full, and None when that is over."""
        return partial(self._note, who)

    def _note(self, who: str, problem: str | None) -> None:
        with self._lock:
            waited = bool(self._problems)
            if problem is None:
                self._problems.pop(who, None)
            else:
                self._problems[who] = problem
            waits = bool(self._problems)
        if waits and not waited:
            _log.warning(
                "%s: the %s waits until there is space (Ctrl-C ends it, `%s` goes on)",
                problem,
                self._what,
                self._command,
            )
        elif waited and not waits:
            _log.warning("there is space again: the %s goes on", self._what)
