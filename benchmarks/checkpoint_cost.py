"""What share of a fleet's time goes into checkpoints, at the interval that is the default.

A fleet in this process, with as many threads as there are cores, trains for a given time. Every
call that writes a checkpoint, with the records that are written along with it, is timed in its
thread, which does not train meanwhile. Printed: checkpoints, milliseconds of one, and the share of
the threads' time, within the run as it was.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import torch
from overhead import WORKLOADS, make_plan, make_scenario, make_shards

from edgesim.device.device import Device
from edgesim.fleet.host.recorder import Recorder
from edgesim.fleet.inline import InlineFleet
from edgesim.fleet.recovery.checkpoints import DeviceRecords
from edgesim.results.run_directory import RunDirectory

MANY_ROUNDS = 1_000_000  # the run is ended by the clock


@contextmanager
def timed_saves() -> Iterator[list[float]]:
    """Within it, seconds of each checkpoint are noted."""
    seconds: list[float] = []
    save = Recorder.save

    def timed(self: Recorder, device: Device, records: DeviceRecords) -> None:
        start = perf_counter()
        save(self, device, records)
        seconds.append(perf_counter() - start)

    with patch.object(Recorder, "save", timed):
        yield seconds


async def run_for(fleet: InlineFleet, seconds: float) -> int:
    """Run a fleet for a while; rounds that its devices did."""
    running = asyncio.create_task(fleet.run())
    await asyncio.wait({running}, timeout=seconds)
    done = sum(part.rounds_done for part in await fleet.progress())
    await fleet.stop()
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()
    return done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--workload", choices=names, default="resnet20")
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--seconds", type=float, default=100.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    workload = next(w for w in WORKLOADS if w.name == options.workload)
    num_threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, timed_saves() as saves:
        scenario = make_scenario(Path(folder), workload, options.compressor, "auto")
        plan = make_plan(scenario, MANY_ROUNDS, Path(folder) / "run")
        RunDirectory.create(plan.run_directory, plan.run_digest)
        fleet = InlineFleet(plan, make_shards(workload), num_threads)
        start = perf_counter()
        rounds = asyncio.run(run_for(fleet, options.seconds))
        wall_s = perf_counter() - start
    print(
        f"{workload.name}, {options.compressor}, {workload.devices} devices, {num_threads} "
        f"threads: {rounds} rounds of a device in {wall_s:.0f} s; a checkpoint every "
        f"{scenario.recovery.checkpoint_every_s:g} s"
    )
    print(
        f"{len(saves)} checkpoints of {1e3 * sum(saves) / max(1, len(saves)):.1f} ms: "
        f"{100 * sum(saves) / wall_s / num_threads:.2f} % of the threads' time"
    )


if __name__ == "__main__":
    main()
