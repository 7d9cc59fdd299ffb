"""Runs a fleet to its end under a monitor and a watchdog, and stops it in order."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

from edgesim.errors import EdgesimError
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.recording.watchdog import WatchedFleet, watch

STOP_TIMEOUT_S = 15.0  # for hosts to end their steps and write what they hold

_log = logging.getLogger(__name__)


class Fleet(WatchedFleet, Protocol):
    """A fleet: runs all devices, and can be asked how far they are."""

    async def run(self) -> None:
        """Run all devices to their last round."""
        ...

    async def stop(self) -> None:
        """End a run early and write the rounds recorded so far."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...


def run_to_its_end(work: Coroutine[None, None, None]) -> None:
    """Run a coroutine from code that is not asynchronous, also where an event loop runs already.

    A notebook has such a loop. There the coroutine runs in a thread of its own. Interrupted, it is
    cancelled and ends in order.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with _sigterm_restored():
            asyncio.run(work)
        return
    cancel: Future[Callable[[], object]] = Future()

    async def noted() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "a coroutine of a task"
        cancel.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        await work

    with ThreadPoolExecutor(1, thread_name_prefix="run") as thread:
        running = thread.submit(asyncio.run, noted())
        try:
            running.result()
        except BaseException:
            if not running.done():
                cancel.result()()
            raise


@contextmanager
def _sigterm_restored() -> Iterator[None]:
    """Bring back the caller's handler of SIGTERM, which `conduct` replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # None: set by other than Python code
            signal.signal(signal.SIGTERM, before)


async def conduct(
    fleet: Fleet, monitor: Monitor, stall_timeout_s: float, names: Sequence[str]
) -> None:
    """Run the fleet under the monitor and the watchdog.

    If the run is interrupted or fails, hosts still write the rounds that they hold.
    """
    _cancel_on_sigterm()
    watching = asyncio.create_task(monitor.watch(fleet.progress))
    running = asyncio.create_task(fleet.run())
    guarding = asyncio.create_task(watch(fleet, stall_timeout_s, names))
    try:
        await _until_one_ends({running, guarding}, watching)
    except BaseException:
        await _cancel(running)
        monitor.close()
        await _stop(fleet)
        await asyncio.wait([watching])
        raise
    finally:
        await _cancel(guarding)
    monitor.stop_watching()
    await watching
    await monitor.take_last_state(fleet.progress)


async def _until_one_ends(tasks: set[asyncio.Task[None]], watching: asyncio.Task[None]) -> None:
    """Wait until a task ends, or until the watching fails; an error of any of them is raised."""
    waited_for = tasks | {watching}
    while not any(task.done() for task in tasks):
        ended, waited_for = await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; ignore its result or error."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def _stop(fleet: Fleet) -> None:
    try:
        await asyncio.wait_for(fleet.stop(), STOP_TIMEOUT_S)
    except TimeoutError:
        _log.warning("some hosts did not end in %g s; their last rounds are lost", STOP_TIMEOUT_S)
    except EdgesimError as error:
        _log.warning("the last rounds can't be written: %s", error)


def _cancel_on_sigterm() -> None:
    """Make SIGTERM act like Ctrl-C; Ray's own handler would end the process at once."""
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine"
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
