"""Does memory stay flat? A small fleet at free pace, for as long as asked.

Eight devices of four kinds on a ring, one actor each. The resident memory of every process, this
one included, is read every few seconds. After a warm-up, a quarter of the time, each process's
readings are cut in five parts of equal length; its growth is how much the median of the last part
is above that of the first. Ends with status 1 if a process grows by more than the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from array import array
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import psutil
import yaml
from rich.console import Console

from edgesim.assembly.build import PLAIN, DataSpec, make_schedule
from edgesim.assembly.training_plan import TrainingPlan
from edgesim.data.images import LabelledImages
from edgesim.fleet.on_ray import launch
from edgesim.fleet.plan import FleetPlan
from edgesim.results.run_directory import RunDirectory
from edgesim.scenario import load_scenario
from edgesim.streams import StreamPurpose, stream

MANY_ROUNDS = 10_000_000  # the run is ended by the clock
WARM_UP = 0.25  # of the time
PARTS = 5
KINDS = ("raspberry-pi-4b", "raspberry-pi-zero-2w", "jetson-nano", "raspberry-pi-5")


def make_plan(folder: Path) -> FleetPlan:
    """Plan of a fleet that trains until it is stopped."""
    document = {
        "name": "soak",
        "fleet": {"pace": "free", "devices": [{"profile": kind, "count": 2} for kind in KINDS]},
        "network": {"latency_ms": 4.0, "jitter_ms": 3.0, "loss": 0.05},
        "topology": {"kind": "ring"},
        "data": {"partition": {"kind": "iid"}, "batch_size": 8},
        "model": {"name": "small_cnn"},
        "training": {"rounds": MANY_ROUNDS, "optimizer": {"lr": 0.01}},
        "gossip": {
            "algorithm": "choco",
            "averaging_rate": 0.1,
            "compressor": {"kind": "top_k", "keep": 0.1},
        },
    }
    path = folder / "soak.yaml"
    path.write_text(yaml.safe_dump(document))
    scenario = load_scenario(path)
    data = DataSpec((1, 8, 8), 10, (0.5,), (0.25,))
    training = TrainingPlan(MANY_ROUNDS, 100, ())
    return FleetPlan(scenario, make_schedule(scenario), data, training, PLAIN, folder / "run")


def make_shards(devices: int) -> list[LabelledImages]:
    """Random images, 64 for each device."""
    rng = stream(1, StreamPurpose.BATCH)
    return [
        LabelledImages(rng.integers(0, 256, (64, 8, 8, 1), dtype=np.uint8), rng.integers(0, 10, 64))
        for _ in range(devices)
    ]


class Memory:
    """Resident bytes of this process and of each below it, reading after reading.

    Kept in few bytes: what the readings take must not look like growth of this process.
    """

    def __init__(self) -> None:
        self._num_readings = 0
        self._sizes: dict[psutil.Process, array[int]] = {}

    def read(self) -> None:
        """Take a reading."""
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            try:
                size = process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            sizes = self._sizes.setdefault(process, array("q"))
            sizes.extend([0] * (self._num_readings - len(sizes)))  # before it was there
            sizes.append(size)
        self._num_readings += 1

    def medians(self) -> dict[psutil.Process, list[float]]:
        """Of each part of the time after the warm-up, of those that were there all the time."""
        start = int(WARM_UP * self._num_readings)
        part = max(1, (self._num_readings - start) // PARTS)
        firsts = range(self._num_readings - part * PARTS, self._num_readings, part)
        return {
            process: [median(sizes[first : first + part]) for first in firsts]
            for process, sizes in self._sizes.items()
            if len(sizes) == self._num_readings and all(sizes[start:])
        }


def name_of(process: psutil.Process) -> str:
    """Number and what it runs; Ray's workers are named after what they do at the moment."""
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        command = []
    words = [word.rpartition("/")[2] for word in command if not word.startswith("-")]
    return f"{process.pid} {' '.join(words)[:40]}"


async def watch(
    fleet: launch.RayFleet, seconds: float, every_s: float
) -> tuple[Memory, dict[psutil.Process, str]]:
    """Memory of all processes, every so often, of a fleet that is then stopped; their names.

    As in a run, the actors are asked as often how far they are.
    """
    running, start, memory = asyncio.create_task(fleet.run()), perf_counter(), Memory()
    while perf_counter() - start < seconds:
        await asyncio.wait({running}, timeout=every_s)
        if running.done():
            running.result()
            raise AssertionError("the fleet ended by itself")
        rounds = sum(part.rounds_done for part in await fleet.progress())
        memory.read()
    names = {process: name_of(process) for process in memory.medians()}
    print(f"{rounds} rounds of a device in {perf_counter() - start:.0f} s")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await fleet.stop()
    return memory, names


def main() -> int:
    """Run, print, and say whether memory was flat."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every-s", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=0.02)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        plan = make_plan(Path(name))
        RunDirectory.create(plan.run_directory, plan.run_digest)
        with launch.ray_session(None, dashboard=False, console=Console()):
            fleet = launch.RayFleet(plan, make_shards(plan.scenario.fleet.num_devices))
            try:
                memory, names = asyncio.run(watch(fleet, 60 * options.minutes, options.every_s))
            finally:
                fleet.close()
    found = memory.medians()
    growths = {process: sizes[-1] / sizes[0] - 1 for process, sizes in found.items()}
    for process in sorted(found, key=lambda process: -growths[process]):
        sizes = " ".join(f"{size / 1e6:6.1f}" for size in found[process])
        print(f"{names[process]:40s} {sizes} MB  {100 * growths[process]:+6.2f} %")
    if sum("DeviceActor" in names[process] for process in found) < plan.scenario.fleet.num_devices:
        sys.exit("not every device's actor was there all the time")
    worst = max(growths.values())
    print(f"largest growth {100 * worst:.2f} %, limit {100 * options.limit:g} %")
    return int(worst > options.limit)


if __name__ == "__main__":
    sys.exit(main())
