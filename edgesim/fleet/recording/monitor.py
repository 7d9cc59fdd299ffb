"""The monitor looks on: it tells how the fleet goes on, and evaluates what devices leave.

It reads snapshots from the run directory and asks for progress now and then. The fleet neither
waits for it nor needs it alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import RLock
from time import thread_time
from typing import Any, Literal

from edgesim.errors import EdgesimError, RunStoppedError
from edgesim.fleet.recording.evaluation import (
    EvaluationStoppedError,
    Evaluator,
    with_totals_so_far,
)
from edgesim.fleet.recording.evaluation_progress import EvaluationProgress
from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState, Sink
from edgesim.fleet.recording.sinks import Sinks
from edgesim.fleet.recording.view import View
from edgesim.fleet.transport.progress import Progress
from edgesim.results.columns import (
    CONSENSUS,
    EVALUATIONS,
    GOSSIPED_EVALUATIONS,
    OWN_EVALUATIONS,
    VIRTUAL_EVALUATIONS,
    Column,
    columns_that_hold,
)
from edgesim.results.run_directory import RunDirectory

MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 5.0  # between questions to the actors how far they are
QUESTIONS_PER_S = 4  # each takes some milliseconds of the actors' and this process's time
DEVICES_PER_S = 600  # what is said of one takes about 15 us of its actor and this process
MAX_SHARE = 0.01  # of a core's time that sinks may take

_log = logging.getLogger(__name__)

Poll = Callable[[], Awaitable[Sequence[Progress]]]


def pause_s(num_actors: int, num_devices: int = 0) -> float:
    """Seconds between two looks at so many actors and devices: the more there are, the rarer."""
    pause = min(max(num_actors / QUESTIONS_PER_S, MIN_PAUSE_S), MAX_PAUSE_S)
    return max(pause, num_devices / DEVICES_PER_S)


class Monitor:
    """Tells sinks how a fleet goes on, and evaluates its models.

    Args:
        directory: of the run.
        evaluator: evaluates snapshots.
        facts: of the fleet.
        evaluation_rounds: rounds whose snapshots will come, increasing.
        device_models: when devices' own models are evaluated.
        num_test_samples: that each of them is evaluated on.
        noun: what samples are called.
        view: where progress is shown.
        sinks: who else is told.
        warn: says what is wrong with the rows of evaluations.parquet up to now, if anything.
        tell_full: told at each look what is full, while hosts wait for space; else None.
    """

    def __init__(
        self,
        directory: RunDirectory,
        evaluator: Evaluator,
        *,
        facts: FleetFacts,
        evaluation_rounds: Sequence[int],
        device_models: Literal["every", "final", "never"],
        num_test_samples: int,
        view: View,
        noun: str = "images",
        sinks: Iterable[Sink] = (),
        warn: Callable[[Sequence[dict[str, Any]]], str | None] = lambda _: None,
        tell_full: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._directory = directory
        self._evaluator = evaluator
        self._facts = facts
        self._pending = list(evaluation_rounds)
        self._device_models = device_models
        self._views, self._sinks = Sinks([view]), Sinks(sinks)
        self._warn = warn
        self._tell_full = tell_full
        self._has_warned = False
        self._shown = EvaluationProgress(
            view.console, facts.num_devices, num_test_samples, noun, facts.gossip_rounds
        )
        self._fleet = FleetState(facts)
        self._restarts: dict[int, int] = {}
        self._slowest_round: int | None = 0
        self._telling_s = 0.0
        self._pause_s = MIN_PAUSE_S
        self._lock = RLock()  # evaluations tell sinks from a thread of theirs
        self._stopping = asyncio.Event()

    @property
    def rounds_done(self) -> int | None:
        """Rounds that every device has completed, when last asked; None if that is not known."""
        return self._slowest_round

    def go_on(self) -> None:
        """Take over what was evaluated before the run was interrupted."""
        self._slowest_round = None
        optional: dict[str, float | None] = {column.name: None for column in VIRTUAL_EVALUATIONS}
        rows = self._directory.read_rows("evaluations.parquet")
        self.rows = [{**optional, **row} for row in rows]
        del self._pending[: sum(row["device"] == CONSENSUS for row in self.rows)]
        self._fleet = self._with_rows(self.rows)

    def note_restart(self, devices: Iterable[int]) -> None:
        """The actor of these devices was lost and goes on."""
        for device in devices:
            self._restarts[device] = self._restarts.get(device, 0) + 1

    async def watch(self, poll: Poll) -> None:
        """Show progress and evaluate what is there, until told to stop.

        An error here is logged and ends the watching, never the fleet.

        Raises:
            RunStoppedError: a sink stops the run.
        """
        asking = asyncio.create_task(self._keep_asking(poll))
        try:
            with self._harmless("the monitor failed; evaluations are made up for at the end"):
                while not (self._stopping.is_set() or asking.done()):
                    if not await asyncio.to_thread(self._evaluate_next):
                        await self._rest(self._pause_s)
                await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def take_last_state(self, poll: Poll) -> None:
        """Tell sinks how the fleet ended.

        Raises:
            RunStoppedError: a sink stops the run.
        """
        with self._harmless("the last state of the fleet is not told"):
            self._observe(await poll())

    @contextmanager
    def _harmless(self, what: str) -> Iterator[None]:
        """Log an error, which must not end the fleet.

        Raises:
            RunStoppedError: a sink stops the run.
        """
        try:
            yield
        except EvaluationStoppedError:
            _log.debug("an evaluation was stopped")
        except RunStoppedError:
            raise
        except EdgesimError as error:
            _log.warning("%s: %s", what, error)
        except Exception:  # noqa: BLE001 (whatever it is, training goes on)
            _log.exception(what)

    async def _keep_asking(self, poll: Poll) -> None:
        """Tell sinks how far the devices are, also while models are evaluated."""
        while not self._stopping.is_set():
            parts = await poll()
            self._pause_s = pause_s(len(parts), sum(len(part.devices) for part in parts))
            self._observe(parts)
            await self._rest(max(self._pause_s, self._telling_s / MAX_SHARE))

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def stop_watching(self) -> None:
        """Let `watch` end when it is done with what it does."""
        self._stopping.set()

    def finish(self) -> None:
        """Evaluate what is left once the fleet has ended.

        Raises:
            EvaluationStoppedError: `close` was called meanwhile.
            RunDirectoryError: models of an evaluation are missing.
            RunStoppedError: a sink stops the run.
        """
        self._slowest_round = self._facts.num_rounds
        while self._evaluate_next():
            pass
        if self._pending:
            self._directory.refuse_missing_snapshots(self._pending[0], self._facts.num_devices)

    def tell_summary(self, summary: Mapping[str, Any]) -> None:
        """Tell sinks that the run came to its end.

        Raises:
            RunStoppedError: a sink stops the run, which is finished.
        """
        self._tell("finished", summary)

    def close(self) -> None:
        """End watching, evaluations at their next batch, waits, and the telling of sinks.

        The view stays: other things are still shown there.
        """
        self._stopping.set()
        self._evaluator.close()
        self._directory.stop_waiting()
        self._sinks.close()

    def _observe(self, parts: Sequence[Progress]) -> None:
        if not parts:
            return
        self._tell_full(next((part.full for part in parts if part.full), None))
        heard = {device.device: device for part in parts for device in part.devices}
        absent = {device for part in parts for device in part.absent}
        with self._lock:
            devices = dict(sorted({**self._fleet.devices, **heard}.items()))
            self._fleet = replace(self._fleet, devices=devices, absent=frozenset(absent))
            if len(devices) == self._facts.num_devices:
                self._slowest_round = self._fleet.slowest_round
            self._update_sinks()

    def _update_sinks(self) -> None:
        start_s = thread_time()
        self._fleet = replace(self._fleet, restarts=dict(self._restarts))
        self._tell("update", self._fleet)
        self._telling_s = thread_time() - start_s

    def _tell(self, method: str, *args: object) -> None:
        for sinks in (self._views, self._sinks):
            sinks.tell(method, *args)

    def _with_rows(self, rows: Sequence[dict[str, Any]]) -> FleetState:
        """The state with what evaluations found, the newest last."""
        averaged = [row for row in rows if row["device"] == CONSENSUS]
        of_devices = {row["device"]: row for row in rows if row["device"] != CONSENSUS}
        return replace(
            self._fleet,
            evaluation=averaged[-1] if averaged else self._fleet.evaluation,
            evaluated={**self._fleet.evaluated, **of_devices},
        )

    def _evaluate_next(self) -> bool:
        """Evaluate the next round whose snapshots are all there; False if there is none."""
        if not self._pending:
            return False
        round_index = self._pending[0]
        facts = self._facts
        if not self._directory.has_snapshots(round_index, facts.num_devices):
            return False
        snapshots = [
            self._directory.read_snapshot(round_index, device)
            for device in range(facts.num_devices)
        ]
        is_final = round_index == facts.num_rounds
        devices_too = self._device_models == "every" or (
            is_final and self._device_models == "final"
        )

        def tell(done: int, total: int) -> None:
            self._views.tell("evaluating", self._shown.text(done, total))

        rows = self._evaluator.evaluate(snapshots, devices_too=devices_too, tell=tell)
        all_rows = [*self.rows, *rows]
        columns = columns_that_hold(EVALUATIONS, VIRTUAL_EVALUATIONS, all_rows[0])
        columns += tuple(Column(name, "float64", said) for name, said in facts.measures.items())
        if "own_loss" in all_rows[0]:
            columns += OWN_EVALUATIONS
            columns += tuple(
                Column(f"own_{name}", "float64", f"on own held-out samples: {said}")
                for name, said in facts.measures.items()
            )
        if "after_gossip_loss" in all_rows[0]:
            columns += GOSSIPED_EVALUATIONS
            columns += tuple(
                Column(f"after_gossip_{name}", "float64", f"after further gossip: {said}")
                for name, said in facts.measures.items()
            )
        # A round whose table can't be written is evaluated again: it must not count before.
        self._directory.write_table("evaluations.parquet", all_rows, columns, names=facts.names)
        self.rows = all_rows
        self._pending.pop(0)
        if not is_final:  # the final models stay, under models/
            self._directory.drop_snapshots(round_index)
        with self._lock:
            self._fleet = replace(self._with_rows(rows), distances=self._evaluator.distances)
            self._tell("evaluated", with_totals_so_far(rows, snapshots))
            self._update_sinks()
        if not self._has_warned and (warning := self._warn(self.rows)):
            self._has_warned = True
            self._views.tell("warn", warning)
        return True
