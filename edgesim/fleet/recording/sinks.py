"""Sinks are told of a run; one that fails is told no more, and the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from threading import RLock

from edgesim.errors import EdgesimError, RunStoppedError
from edgesim.fleet.recording.fleet_state import Sink

_ALIKE = 0.75  # of names: `on_update` and `update` have 0.8, `finish` and `finished` 0.86

_log = logging.getLogger(__name__)


class SinkError(EdgesimError, TypeError):
    """An object that is given as a sink is none."""


class Sinks:
    """Some sinks of a run. Methods may be called by several threads.

    Args:
        sinks: in the order in which they are told.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = list(sinks)
        self._lock = RLock()  # evaluations are told from a thread of theirs

    def close(self) -> None:
        """Tell each sink that nothing follows; done once."""
        with self._lock:
            self.tell("close")
            self._sinks.clear()

    def tell(self, method: str, *args: object) -> None:
        """Call a method of each sink.

        Raises:
            RunStoppedError: a sink stops the run.
        """
        with self._lock:
            for sink in list(self._sinks):
                try:
                    getattr(sink, method)(*args)
                except RunStoppedError:
                    raise
                except Exception as error:  # noqa: BLE001 (whatever it is, training goes on)
                    self._sinks.remove(sink)
                    said = f"{type(error).__name__}: {error}"
                    _log.warning("%s failed and is told no more: %s", type(sink).__name__, said)


def check_sinks(sinks: Iterable[Sink]) -> None:
    """Refuse an object that is no sink, or whose method would never be called, before a run begins.

    Raises:
        SinkError: it is no subclass of `Sink`, or a method seems to be a misspelt one of `Sink`.
    """
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise SinkError(
                f"sinks: {type(sink).__name__} is no edgesim.Sink; make its class a subclass of it"
            )
        _check_names(type(sink))


def _check_names(kind: type[Sink]) -> None:
    """Refuse a method that is named like one of `Sink` that the class does not have."""
    told = [name for name, method in vars(Sink).items() if callable(method) and name[0] != "_"]
    own = {
        name: method
        for base in kind.__mro__
        if base is not Sink and issubclass(base, Sink)
        for name, method in vars(base).items()
    }
    missing = [name for name in told if name not in own]
    for name, method in own.items():
        if name not in told and name[0] != "_" and callable(method):
            for meant in get_close_matches(name, missing, n=1, cutoff=_ALIKE):
                raise SinkError(
                    f"sinks: {kind.__name__} has a method {name}, which nobody calls; did you mean "
                    f"{meant}? a helper needs another name, such as _{name}"
                )
