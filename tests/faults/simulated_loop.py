"""An event loop whose clock jumps to the next timer: hours of waiting take no time.

Nothing runs in threads under it, so what happens depends on the order of events alone, and a fleet
in which everybody waits for somebody else is found at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class StuckError(Exception):
    """Nothing will ever happen any more, and the work is not done."""


class _Selector(selectors.DefaultSelector):
    """Never waits; tells the loop how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.on_wait: Callable[[float], None] = lambda seconds: None

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StuckError("every task waits for another one")
            self.on_wait(timeout)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """See above."""

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        self._now_s = 0.0
        selector.on_wait = self._pass

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._now_s

    def _pass(self, seconds: float) -> None:
        self._now_s += max(seconds, 0.0)


class InlineExecutor(Executor):
    """Does what it is given at once."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **options))
        except BaseException as error:  # noqa: BLE001 (whoever waits for it gets it)
            future.set_exception(error)
        return future


def run_simulated(main: Any) -> Any:
    """As `asyncio.run`, in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
