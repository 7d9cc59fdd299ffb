"""Sinks are told of a run; one that fails is told no more, and the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import RLock

from edgesim.errors import EdgesimError, RunStoppedError
from edgesim.fleet.recording.fleet_state import Sink

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
    """Refuse an object that is no sink, before a run begins.

    Raises:
        SinkError: it is no subclass of `Sink`.
    """
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise SinkError(
                f"sinks: {type(sink).__name__} is no edgesim.Sink; make its class a subclass of it"
            )
