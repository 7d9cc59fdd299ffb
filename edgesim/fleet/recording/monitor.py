"""The monitor looks on: it shows progress and evaluates the models that devices leave behind.

It reads snapshots from the run directory and asks for progress now and then. The fleet neither
waits for it nor needs it alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import isnan, nan
from time import monotonic
from types import MappingProxyType
from typing import Any, Literal

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edgesim.errors import EdgesimError
from edgesim.fleet.recording.evaluation import CONSENSUS, EvaluationStoppedError, Evaluator
from edgesim.fleet.recording.evaluation_progress import EvaluationProgress
from edgesim.fleet.transport import progress
from edgesim.results.columns import EVALUATIONS, VIRTUAL_EVALUATIONS, Column, columns_that_hold
from edgesim.results.run_directory import RunDirectory

MIN_PAUSE_S, MAX_PAUSE_S = 0.5, 5.0  # between questions to the actors how far they are
QUESTIONS_PER_S = 4  # each takes some milliseconds of the actors' and this process's time
LOG_INTERVAL_S = 30.0  # between lines of progress where the output is no terminal

_log = logging.getLogger(__name__)

Poll = Callable[[], Awaitable[Sequence[progress.Progress]]]


def pause_s(num_actors: int) -> float:
    """Seconds between two looks at so many actors: the more there are, the rarer."""
    return min(max(num_actors / QUESTIONS_PER_S, MIN_PAUSE_S), MAX_PAUSE_S)


class Monitor:
    """Shows a fleet's progress and evaluates its models.

    Args:
        directory: of the run.
        evaluator: evaluates snapshots.
        num_devices: of the fleet.
        num_rounds: of each device.
        evaluation_rounds: rounds whose snapshots will come, increasing.
        device_models: when devices' own models are evaluated.
        num_test_samples: that each of them is evaluated on.
        console: where progress is shown.
        names: of the devices, where they have some.
        warn: says what is wrong with the rows of evaluations.parquet up to now, if anything.
    """

    def __init__(
        self,
        directory: RunDirectory,
        evaluator: Evaluator,
        *,
        num_devices: int,
        num_rounds: int,
        evaluation_rounds: Sequence[int],
        device_models: Literal["every", "final", "never"],
        num_test_samples: int,
        console: Console,
        names: Sequence[str] = (),
        warn: Callable[[Sequence[dict[str, Any]]], str | None] = lambda _: None,
        metrics: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._directory = directory
        self._evaluator = evaluator
        self._num_devices = num_devices
        self._num_rounds = num_rounds
        self._pending = list(evaluation_rounds)
        self._device_models = device_models
        self._display = _Display(console, num_devices * num_rounds)
        self._names = names
        self._warn = warn
        self._metrics = metrics
        self._has_warned = False
        self._shown = EvaluationProgress(console, num_devices, num_test_samples)
        self._slowest_round: int | None = 0
        self._stopping = asyncio.Event()

    @property
    def rounds_done(self) -> int | None:
        """Rounds that every device has completed, when last asked; None if that is not known."""
        return self._slowest_round

    def go_on(self) -> None:
        """Take over what was evaluated before the run was interrupted."""
        self._slowest_round = None
        optional: dict[str, float | None] = {column.name: None for column in VIRTUAL_EVALUATIONS}
        optional["model_norm"] = nan  # which earlier versions did not write
        rows = self._directory.read_rows("evaluations.parquet")
        self.rows = [{**optional, **row} for row in rows]
        del self._pending[: sum(row["device"] == CONSENSUS for row in self.rows)]

    async def watch(self, poll: Poll) -> None:
        """Show progress and evaluate what is there, until told to stop.

        An error here is logged and ends the watching, never the fleet.
        """
        try:
            with self._display:
                while not self._stopping.is_set():
                    parts = await poll()
                    self._observe(parts)
                    if not await asyncio.to_thread(self._evaluate_next):
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self._stopping.wait(), pause_s(len(parts)))
        except EvaluationStoppedError:
            _log.debug("an evaluation was stopped")
        except EdgesimError as error:
            _log.warning("evaluations are made up for at the end: %s", error)
        except Exception:  # noqa: BLE001 (whatever it is, training goes on)
            _log.exception("the monitor failed; evaluations are made up for at the end")

    def stop_watching(self) -> None:
        """Let `watch` end when it is done with what it does."""
        self._stopping.set()

    def finish(self) -> None:
        """Evaluate what is left once the fleet has ended.

        Raises:
            EvaluationStoppedError: `close` was called meanwhile.
            RunDirectoryError: models of an evaluation are missing.
        """
        with self._display:
            self._slowest_round = self._num_rounds
            self._display.complete(self._num_devices * self._num_rounds)
            while self._evaluate_next():
                pass
        if self._pending:
            self._directory.refuse_missing_snapshots(self._pending[0], self._num_devices)

    def close(self) -> None:
        """End watching, and evaluations at their next batch."""
        self._stopping.set()
        self._evaluator.close()

    def _observe(self, parts: Sequence[progress.Progress]) -> None:
        if parts:
            self._slowest_round = min(part.slowest_round for part in parts)
            self._display.show(parts, self._num_rounds)

    def _evaluate_next(self) -> bool:
        """Evaluate the next round whose snapshots are all there; False if there is none."""
        if not self._pending:
            return False
        round_index = self._pending[0]
        if not self._directory.has_snapshots(round_index, self._num_devices):
            return False
        snapshots = [
            self._directory.read_snapshot(round_index, device)
            for device in range(self._num_devices)
        ]
        is_final = round_index == self._num_rounds
        devices_too = self._device_models == "every" or (
            is_final and self._device_models == "final"
        )
        tell = self._display.evaluating(self._shown)
        rows = self._evaluator.evaluate(snapshots, devices_too=devices_too, tell=tell)
        self.rows.extend(rows)
        columns = columns_that_hold(EVALUATIONS, VIRTUAL_EVALUATIONS, self.rows[0])
        columns += tuple(Column(name, "float64", said) for name, said in self._metrics.items())
        self._directory.write_table("evaluations.parquet", self.rows, columns, names=self._names)
        self._pending.pop(0)
        if not is_final:  # the final models stay, under models/
            self._directory.drop_snapshots(round_index)
        self._display.evaluated(next(row for row in rows if row["device"] == CONSENSUS))
        if not self._has_warned and (warning := self._warn(self.rows)):
            self._has_warned = True
            self._display.warn(warning)
        return True


class _Display:
    """A live line on a terminal, a plain line now and then elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("round {task.fields[round]}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]}  consensus accuracy {task.fields[accuracy]}"),
            TextColumn("sent {task.fields[sent]}{task.fields[evaluated]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(
            "fleet", total=total, round="-", loss="-", accuracy="-", sent="-", evaluated=""
        )
        self._next_line = monotonic() + LOG_INTERVAL_S

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, parts: Sequence[progress.Progress], num_rounds: int) -> None:
        """Take over new figures."""
        losses = [part.loss for part in parts if not isnan(part.loss)]  # of none after a restart
        done = sum(part.rounds_done for part in parts)
        figures = {
            "round": f"{min(part.slowest_round for part in parts)}/{num_rounds}",
            "loss": f"{sum(losses) / len(losses):.3f}" if losses else "-",
            "sent": decimal(sum(part.sent_bytes for part in parts)),
        }
        self._progress.tasks[0].fields.update(figures)
        self._progress.update(self._task, completed=done)
        if not self._console.is_terminal and monotonic() > self._next_line:
            self._next_line = monotonic() + LOG_INTERVAL_S
            left_s = self._progress.tasks[0].time_remaining
            left = "" if left_s is None else f", about {left_s:.0f} s left"
            self._console.print(
                f"round {figures['round']}, loss {figures['loss']}, sent {figures['sent']}{left}"
            )

    def evaluating(self, shown: EvaluationProgress) -> Callable[[int, int], None]:
        """What an evaluation is to tell how far it is."""

        def tell(done: int, total: int) -> None:
            text = shown.text(done, total)
            self._progress.update(self._task, evaluated=text and f"  {text}")

        return tell

    def complete(self, total: int) -> None:
        """All rounds are done; evaluation may go on."""
        self._progress.update(self._task, completed=total)

    def warn(self, text: str) -> None:
        """Say what is wrong."""
        self._console.print(f"warning: {text}", soft_wrap=True, markup=False, highlight=False)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Say what an evaluation found."""
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
        self._progress.update(self._task, accuracy=accuracy)
        found = "" if row["accuracy"] is None else f"consensus accuracy {accuracy}, "
        self._console.print(
            f"epoch {row['epoch']:.4g} (round {row['round']}): {found}"
            f"loss {row['loss']:.4f}, consensus distance {row['consensus_distance']:.4g}"
        )
