"""Tells of actors whose processes compute with other instructions: last bits go by them.

Kinds of processors differ in instructions, and so may processes on one kind: Linux may refuse the
matrix tiles to some.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Built:
    """An actor that has built its devices.

    Attributes:
        host: name of its machine.
        arithmetic: what it computes with, in words.
    """

    host: str
    arithmetic: str


class Arithmetics:
    """Compares the actors of a fleet with the first one that was built."""

    def __init__(self) -> None:
        self._first: Built | None = None
        self._told: set[Built] = set()

    def note(self, built: Built) -> None:
        """Take note of an actor; warn once of a machine that computes in another way."""
        self._first = self._first or built
        if built.arithmetic == self._first.arithmetic or built in self._told:
            return
        self._told.add(built)
        _log.warning(
            "node %s computes with %s, node %s with %s: last bits may differ from other runs; use "
            "nodes of one kind to repeat them",
            built.host,
            built.arithmetic,
            self._first.host,
            self._first.arithmetic,
        )
