"""What a device costs: memory and time per round, of fleets of many devices on few cores.

The small CNN on random images, CHOCO on an exponential graph, devices packed into one actor per
core. The fleet has as many devices as the largest number asked for, and fewer; each runs the same
few rounds, with checkpoints as by default. Printed for each:

    memory      peak of all processes' resident memory (shared pages counted once), less that of a
                fleet of one device per actor and less one copy of the devices' data, per device
    time        wall and processor time of a round, per device; the same for all is linear

and, with --launch, seconds from the start of Ray to the end of the first step of all devices, of
16 packed devices, of 16 actors and of 64 actors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import nan
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil
import yaml
from rich.console import Console

from edgesim.assembly import PLAIN, DataSpec, FleetPlan, TrainingPlan, make_schedule
from edgesim.data.images import LabelledImages
from edgesim.fleet import launch
from edgesim.fleet.progress import Progress
from edgesim.fleet.run_directory import RunDirectory
from edgesim.scenario import load_scenario
from edgesim.streams import Purpose, stream

POLL_S = 0.25
EMPTY_ROUNDS = 60
MB = 1e6


@dataclass(frozen=True, slots=True)
class Shape:
    """What is measured beside the number of devices.

    Attributes:
        rounds: of each device.
        samples: of each device.
        batch_size: samples of a batch.
        pixels: height and width of the images, which have three channels.
        compressor: "top_k", of one entry in a hundred, or "identity".
    """

    rounds: int
    samples: int
    batch_size: int
    pixels: int
    compressor: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a fleet.

    Attributes:
        devices: of the fleet.
        memory_bytes: the most that all processes together had at a time.
        data_bytes: of all devices' samples.
        round_wall_s: of a round, from then on; NaN if there was none.
        round_cpu_s: processor time of all processes in a round, likewise.
    """

    devices: int
    memory_bytes: int
    data_bytes: int
    round_wall_s: float
    round_cpu_s: float


def make_plan(devices: int, per_actor: int | str, shape: Shape, folder: Path) -> FleetPlan:
    """Plan of a fleet that only trains."""
    kinds = {"identity": {"kind": "identity"}, "top_k": {"kind": "top_k", "keep": 0.01}}
    document = {
        "name": "scale",
        "fleet": {"devices": devices, "devices_per_actor": per_actor},
        "topology": {"kind": "exponential"},
        "data": {"partition": {"kind": "iid"}, "batch_size": shape.batch_size},
        "model": {"name": "small_cnn"},
        "training": {"rounds": shape.rounds, "optimizer": {"lr": 0.01}},
        "gossip": {
            "algorithm": "choco",
            "averaging_rate": 0.1,
            "compressor": kinds[shape.compressor],
        },
    }
    path = folder / "scale.yaml"
    path.write_text(yaml.safe_dump(document))
    scenario = load_scenario(path)
    data = DataSpec((3, shape.pixels, shape.pixels), 10, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    training = TrainingPlan(shape.rounds, shape.rounds, ())
    return FleetPlan(scenario, make_schedule(scenario), data, training, PLAIN, folder / "run")


def make_shards(devices: int, shape: Shape) -> list[LabelledImages]:
    """Random images: what a device costs does not depend on what they show."""
    rng = stream(1, Purpose.BATCH)
    size = (shape.samples, shape.pixels, shape.pixels, 3)
    return [
        LabelledImages(
            rng.integers(0, 256, size, dtype=np.uint8), rng.integers(0, 10, shape.samples)
        )
        for _ in range(devices)
    ]


def _family() -> Iterator[psutil.Process]:
    me = psutil.Process()
    yield me
    yield from me.children(recursive=True)


def resident_bytes() -> int:
    """Of this process and all below it; a page that several share counts once."""
    total = 0
    for process in _family():
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def processor_s() -> float:
    """Processor time of this process and all below it so far."""
    total = 0.0
    for process in _family():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


@contextmanager
def a_fleet(devices: int, per_actor: int | str, shape: Shape) -> Iterator[launch.RayFleet]:
    """A fleet on a Ray of its own; its directory goes with it."""
    with tempfile.TemporaryDirectory() as name:
        plan = make_plan(devices, per_actor, shape, Path(name))
        RunDirectory.create(plan.run_directory, plan.run_digest)
        with launch.ray_session(None, dashboard=False, console=Console()):
            fleet = launch.RayFleet(plan, make_shards(devices, shape))
            try:
                yield fleet
            finally:
                fleet.close()


def first_step_s(devices: int, per_actor: int | str, shape: Shape) -> float:
    """Seconds from the start of Ray until every device has ended its first round.

    Nothing else is measured: to read the memory of many processes takes cores from their start.
    """

    async def until_all_have_stepped(fleet: launch.RayFleet) -> float:
        running = asyncio.create_task(fleet.run())
        stepped = 0
        while stepped < devices and not running.done():
            await asyncio.wait({running}, timeout=POLL_S)
            stepped = sum(p.num_devices for p in await fleet.progress() if p.slowest_round)
        seconds = perf_counter() - start
        await running
        return seconds

    start = perf_counter()
    with a_fleet(devices, per_actor, shape) as fleet:
        return asyncio.run(until_all_have_stepped(fleet))


def measure(devices: int, per_actor: int | str, shape: Shape) -> Measured:
    """Run a fleet; see `Measured`."""
    with a_fleet(devices, per_actor, shape) as fleet:
        memory, marks = asyncio.run(_conduct(fleet, devices))
    data = sum(s.images_NHWC.nbytes + s.labels.nbytes for s in make_shards(devices, shape))
    (first, first_cpu, first_done), (last, last_cpu, last_done) = marks
    rounds = (last_done - first_done) / devices or nan
    return Measured(
        devices,
        memory,
        data,
        (last - first) / rounds,
        (last_cpu - first_cpu) / rounds,
    )


async def _conduct(
    fleet: launch.RayFleet, devices: int
) -> tuple[int, list[tuple[float, float, int]]]:
    """Peak of memory; wall, processor time and rounds done, after the first round and at the end.

    What was done by then is counted in rounds of single devices.
    """
    running = asyncio.create_task(fleet.run())
    memory, marks = 0, list[tuple[float, float, int]]()
    parts: list[Progress] = []
    while not running.done():
        await asyncio.wait({running}, timeout=POLL_S)
        memory = max(memory, resident_bytes())
        parts = await fleet.progress()
        has_stepped = sum(part.num_devices for part in parts if part.slowest_round) == devices
        if has_stepped and not marks:
            marks.append((perf_counter(), processor_s(), sum(p.rounds_done for p in parts)))
    await running
    marks.append((perf_counter(), processor_s(), sum(p.rounds_done for p in parts)))
    return memory, marks


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=16)
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    shape = Shape(
        options.rounds, options.samples, options.batch_size, options.pixels, options.compressor
    )
    longer = replace(shape, rounds=EMPTY_ROUNDS)  # or it would end before it is looked at
    empty = measure(len(os.sched_getaffinity(0)), 1, longer)
    print(f"empty fleet: {empty.memory_bytes / MB:.0f} MB")
    found = []
    for devices in options.devices:
        one = measure(devices, "auto", shape)
        beyond = (one.memory_bytes - empty.memory_bytes - one.data_bytes) / devices
        print(
            f"{devices} devices: {beyond / MB:.2f} MB each, round {one.round_wall_s:.2f} s, "
            f"{1e3 * one.round_wall_s / devices:.2f} ms a device, "
            f"{1e3 * one.round_cpu_s / devices:.2f} ms of a processor"
        )
        found.append(one)
    for few, many in pairwise(found):
        times = many.devices / few.devices
        print(
            f"{few.devices} to {many.devices} devices: {times:g} times as many take "
            f"{many.round_wall_s / few.round_wall_s / times:.2f} of proportional time, "
            f"{many.round_cpu_s / few.round_cpu_s / times:.2f} of proportional processor time"
        )
    if options.launch:
        for devices, per_actor in ((16, "auto"), (16, 1), (64, 1)):
            seconds = first_step_s(devices, per_actor, shape)
            kind = "packed" if per_actor == "auto" else "one actor each"
            print(f"{devices} devices, {kind}: first round ended after {seconds:.1f} s")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in (empty, *found)]) + "\n")


if __name__ == "__main__":
    main()
