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
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import psutil
import yaml
from rich.console import Console

from edgesim.assembly import PLAIN, DataSpec, FleetPlan, TrainingPlan, make_schedule
from edgesim.data.images import LabelledImages
from edgesim.fleet import launch
from edgesim.fleet.run_directory import RunDirectory
from edgesim.scenario import load_scenario
from edgesim.streams import Purpose, stream

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
    rng = stream(1, Purpose.BATCH)
    return [
        LabelledImages(rng.integers(0, 256, (64, 8, 8, 1), dtype=np.uint8), rng.integers(0, 10, 64))
        for _ in range(devices)
    ]


def read_memory() -> dict[str, int]:
    """Resident bytes of this process and all below it, by name and number."""
    me, found = psutil.Process(), dict[str, int]()
    for process in (me, *me.children(recursive=True)):
        try:
            name = process.cmdline()[0].rpartition("/")[2][:24] if process.cmdline() else "?"
            found[f"{name} {process.pid}"] = process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found


async def watch(fleet: launch.RayFleet, seconds: float, every_s: float) -> list[dict[str, int]]:
    """Memory of all processes, every so often, of a fleet that is then stopped."""
    running, start = asyncio.create_task(fleet.run()), perf_counter()
    readings: list[dict[str, int]] = []
    while perf_counter() - start < seconds:
        await asyncio.wait({running}, timeout=every_s)
        if running.done():
            running.result()
            raise AssertionError("the fleet ended by itself")
        readings.append(read_memory())
    rounds = sum(part.rounds_done for part in await fleet.progress())
    print(f"{rounds} rounds of a device in {perf_counter() - start:.0f} s")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await fleet.stop()
    return readings


def growths(readings: list[dict[str, int]]) -> dict[str, tuple[float, float]]:
    """Bytes at the end, and growth as a fraction, of each process that was there all the time."""
    settled = readings[int(WARM_UP * len(readings)) :]
    series = defaultdict(list)
    for reading in settled:
        for name, size in reading.items():
            series[name].append(size)
    part = max(1, len(settled) // PARTS)
    return {
        name: (sizes[-1], median(sizes[-part:]) / median(sizes[:part]) - 1)
        for name, sizes in series.items()
        if len(sizes) == len(settled)
    }


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
                readings = asyncio.run(watch(fleet, 60 * options.minutes, options.every_s))
            finally:
                fleet.close()
    found = growths(readings)
    for process, (size, growth) in sorted(found.items(), key=lambda item: -item[1][1]):
        print(f"{process:32s} {size / 1e6:7.1f} MB  {100 * growth:+6.2f} %")
    worst = max(growth for _, growth in found.values())
    print(f"largest growth {100 * worst:.2f} %, limit {100 * options.limit:g} %")
    return int(worst > options.limit)


if __name__ == "__main__":
    sys.exit(main())
