"""One run from a checked scenario to its tables, with Ray or inline, by the same host code."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch
from rich.console import Console

from edgesim.assembly import FleetPlan, Prepared, make_flat_model
from edgesim.data.batches import evaluation_batches
from edgesim.data.images import LabelledImages
from edgesim.device import Letter
from edgesim.fleet.evaluation import Evaluator
from edgesim.fleet.host import Progress, build_host
from edgesim.fleet.recorder import Recorder
from edgesim.fleet.run_directory import RunDirectory
from edgesim.fleet.summary import summarise, write_devices
from edgesim.scenario.files import dump_scenario

PACKAGES = ("edgesim", "ray", "torch", "torchvision", "numpy", "networkx", "pandas", "pyarrow")


class Fleet(Protocol):
    """Something that runs all devices and can be asked how far they are."""

    async def run(self) -> None:
        """Run all devices to their last round."""
        ...

    async def progress(self) -> Sequence[Progress]:
        """How far the devices of each host are."""
        ...

    async def flush(self) -> None:
        """Write the rounds recorded so far."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...


class InlineFleet:
    """All devices on one host in this process; letters are handed over directly."""

    def __init__(self, plan: FleetPlan, shards: Sequence[LabelledImages], num_threads: int) -> None:
        threads = min(num_threads, len(shards))
        self._host = build_host(plan, dict(enumerate(shards)), self._post, num_threads=threads)

    async def run(self) -> None:
        """Run all devices to their last round."""
        await self._host.run()

    async def progress(self) -> list[Progress]:
        """How far the devices are."""
        return [self._host.progress()]

    async def flush(self) -> None:
        """Write the rounds recorded so far."""
        self._host.flush()

    def close(self) -> None:
        """Nothing outlives `run`."""

    async def _post(self, letter: Letter) -> bool:
        return self._host.deliver(letter.data)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Where a run's files are, and its summary as in summary.json."""

    path: Path
    summary: dict[str, Any]


def run_scenario(
    prepared: Prepared,
    out: Path,
    *,
    inline: bool = False,
    address: str | None = None,
    dashboard: bool = False,
    console: Console,
) -> RunResult:
    """Train the fleet of a scenario and write its run directory.

    Args:
        prepared: checked scenario with its data.
        out: run directory, absent or empty.
        inline: run all devices in this process, without Ray.
        address: of a running Ray cluster; None starts one on this machine for the run.
        dashboard: start Ray's dashboard with it.
        console: where progress is shown.

    Raises:
        RunDirectoryError: `out` can't be used.
        EdgesimError: the run failed; what was recorded until then is in `out`.
    """
    start = perf_counter()
    torch.set_num_threads(1)  # results must not depend on how many threads share a sum
    directory = RunDirectory.create(out)
    directory.write_text("scenario.yaml", dump_scenario(prepared.scenario))
    directory.write_json("environment.json", _environment(inline=inline))
    plan = FleetPlan(prepared.scenario, prepared.data, prepared.training, directory.path)
    shards = prepared.shards()
    num_cpus = len(os.sched_getaffinity(0))
    recorder = _make_recorder(prepared, directory, num_cpus, console)
    try:
        if inline:
            asyncio.run(_conduct(InlineFleet(plan, shards, num_cpus), recorder, directory, console))
        else:
            _run_on_ray(plan, shards, recorder, directory, address, dashboard, console)
    finally:
        recorder.close()
    directory.merge_rounds()
    directory.keep_final_models(prepared.training.num_rounds)
    write_devices(prepared, directory)
    summary = summarise(prepared, directory, recorder.rows, perf_counter() - start)
    directory.write_json("summary.json", summary)
    return RunResult(directory.path, summary)


def _run_on_ray(
    plan: FleetPlan,
    shards: Sequence[LabelledImages],
    recorder: Recorder,
    directory: RunDirectory,
    address: str | None,
    dashboard: bool,
    console: Console,
) -> None:
    """Connect, place the actors, run, and leave nothing behind."""
    from edgesim.fleet import launch  # loads Ray, which inline runs do without

    with launch.ray_session(address, dashboard=dashboard):
        fleet = launch.RayFleet(plan, shards)
        try:
            asyncio.run(_conduct(fleet, recorder, directory, console))
        finally:
            fleet.close()


async def _conduct(
    fleet: Fleet, recorder: Recorder, directory: RunDirectory, console: Console
) -> None:
    """Run the fleet under the eyes of the recorder, then evaluate what is left.

    Interrupted, it writes what is recorded so far.
    """
    _cancel_on_sigterm()
    watching = asyncio.create_task(recorder.watch(fleet.progress))
    try:
        await fleet.run()
    except BaseException:
        await _cancel(watching)
        await fleet.flush()
        directory.merge_rounds()
        console.print(
            f"stopped after round {recorder.rounds_done}; what was recorded is in {directory.path}"
        )
        raise
    await _cancel(watching)
    await recorder.finish()


def _cancel_on_sigterm() -> None:
    """Let SIGTERM do what Ctrl-C does; Ray's own handler would end the process on the spot."""
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine"
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _cancel(task: asyncio.Task[None]) -> None:
    """End a task and wait for its end; an error of its own is raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _make_recorder(
    prepared: Prepared, directory: RunDirectory, num_threads: int, console: Console
) -> Recorder:
    evaluation, test, data = prepared.scenario.evaluation, prepared.test_samples(), prepared.data
    evaluator = Evaluator(
        [make_flat_model(prepared.scenario, data) for _ in range(num_threads)],
        lambda: evaluation_batches(
            test.images_NHWC, test.labels, evaluation.batch_size, data.mean, data.std
        ),
        prepared.training.rounds_per_epoch,
    )
    return Recorder(
        directory,
        evaluator,
        num_devices=prepared.scenario.fleet.devices,
        num_rounds=prepared.training.num_rounds,
        evaluation_rounds=prepared.training.evaluation_rounds,
        device_models=evaluation.device_models,
        console=console,
    )


def _environment(*, inline: bool) -> dict[str, Any]:
    """What the run's wall times depended on; nothing else in it did."""
    return {
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": "inline" if inline else "ray",
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "packages": {package: version(package) for package in PACKAGES},
    }
