"""Functions of the user that are told of evaluations, as a sink of the monitor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgesim.errors import RunStoppedError
from edgesim.fleet.recording.fleet_state import Sink
from edgesim.results.evaluation import Callback, Evaluation


class CallbackError(RunStoppedError):
    """A callback raised an error, which is the cause of this one; it stops the run."""


class Callbacks(Sink):
    """A sink that calls functions with each evaluation, one after the other.

    Args:
        callbacks: the functions.
        place: path or URI of the run directory.
    """

    def __init__(self, callbacks: Sequence[Callback], place: str) -> None:
        self._callbacks = callbacks
        self._place = place

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Call all functions.

        Raises:
            CallbackError: one of them raised an error.
        """
        evaluation = Evaluation.of(rows, self._place)
        for callback in self._callbacks:
            try:
                callback(evaluation)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                raise CallbackError(f"a callback failed: {said}") from error
