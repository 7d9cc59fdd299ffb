"""What a device costs: memory and time per round, of fleets of many devices on few cores.

The small CNN on random images, CHOCO on an exponential graph, devices packed into one actor per
core, with checkpoints as by default. Printed for each number of devices:

    memory      peak of all processes' resident memory (shared pages counted once), less that of a
                fleet of one device per actor and less one copy of the devices' data, per device;
                of a few rounds
    time        wall and processor time of a round, per device; the same for all is linear. Fleets
                have the machine in turns (`time_slices.py`)

and, with --launch, seconds from the start of Ray to the end of the first step of all devices, of
16 packed devices, of 16 actors and of 64 actors, each several times; and what part of the cores'
time the machine's host took meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import yaml
from fleet_contestant import MEASURED, fleet_of_actors
from rich.console import Console
from time_slices import (
    LEAD_S,
    PATIENCE,
    Contestant,
    Look,
    Piece,
    ended,
    ratio_of_means,
    take_turns,
)

from edgesim.assembly.build import PLAIN, DataSpec, make_schedule
from edgesim.assembly.training_plan import TrainingPlan
from edgesim.data.images import LabelledImages
from edgesim.fleet.on_ray import launch
from edgesim.fleet.plan import FleetPlan
from edgesim.results.run_directory import RunDirectory
from edgesim.scenario import load_scenario
from edgesim.streams import StreamPurpose, stream

POLL_S = 0.25
FASTEST_STEPS_PER_S = 100  # of a core; a fleet has rounds enough for all turns at this speed
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
    rng = stream(1, StreamPurpose.BATCH)
    size = (shape.samples, shape.pixels, shape.pixels, 3)
    return [
        LabelledImages(
            rng.integers(0, 256, size, dtype=np.uint8), rng.integers(0, 10, shape.samples)
        )
        for _ in range(devices)
    ]


def resident_bytes() -> int:
    """Of this process and all below it; a page that several share counts once."""
    me, total = psutil.Process(), 0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
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


def first_step_s(devices: int, per_actor: int | str, shape: Shape) -> tuple[float, float]:
    """Seconds from the start of Ray until every device has ended its first round.

    Nothing else is measured: to read the memory of many processes takes cores from their start.

    Returns:
        the seconds, and the part of the cores' time that the host took of them.
    """

    async def until_all_have_stepped(fleet: launch.RayFleet) -> Look:
        running = asyncio.create_task(fleet.run())
        stepped = 0
        while stepped < devices and not running.done():
            await asyncio.wait({running}, timeout=POLL_S)
            progress = [device for part in await fleet.progress() for device in part.devices]
            stepped = sum(device.rounds_done > 0 for device in progress)
        end = Look.at([])
        await running
        return end

    start = Look.at([])
    with a_fleet(devices, per_actor, shape) as fleet:
        end = asyncio.run(until_all_have_stepped(fleet))
    launched = Piece(0, start, end)
    return launched.seconds, launched.stolen_s / launched.seconds / len(os.sched_getaffinity(0))


def peak_of_memory(devices: int, per_actor: int | str, shape: Shape) -> int:
    """The most bytes that all processes of a fleet together had at a time."""

    async def conduct(fleet: launch.RayFleet) -> int:
        running = asyncio.create_task(fleet.run())
        most = 0
        while not running.done():
            await asyncio.wait({running}, timeout=POLL_S)
            most = max(most, resident_bytes())
        await running
        return most

    with a_fleet(devices, per_actor, shape) as fleet:
        return asyncio.run(conduct(fleet))


def in_turns(
    sizes: Sequence[int], shape: Shape, seconds: float, turns: int
) -> dict[int, Contestant]:
    """Fleets of so many devices, measured."""
    fleets: dict[int, Contestant] = {}
    with tempfile.TemporaryDirectory() as parent, ended(fleets):
        for devices in sizes:
            folder = Path(parent, str(devices))
            folder.mkdir()
            fastest = FASTEST_STEPS_PER_S * len(os.sched_getaffinity(0))
            steps = math.ceil(turns * (PATIENCE * seconds + LEAD_S) * fastest)
            longer = replace(shape, rounds=math.ceil(steps / MEASURED / devices))
            plan = make_plan(devices, "auto", longer, folder)
            fleets[devices] = Contestant(f"{devices} devices", devices, steps)
            fleets[devices].start(fleet_of_actors, plan, make_shards(devices, shape))
            fleets[devices].get_warm()
        take_turns(fleets.values(), seconds, turns)
        for fleet in fleets.values():
            fleet.leave()
    return fleets


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=12, help="in which memory is measured")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=16)
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--turns", type=int, default=8, help="of each fleet")
    parser.add_argument("--seconds", type=float, default=11.0, help="of a turn that count")
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--launches", type=int, default=3, help="of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    shape = Shape(
        options.rounds, options.samples, options.batch_size, options.pixels, options.compressor
    )
    found: dict[str, float] = {}
    longer = replace(shape, rounds=EMPTY_ROUNDS)  # or it would end before it is looked at
    empty = peak_of_memory(len(os.sched_getaffinity(0)), 1, longer)
    print(f"empty fleet: {empty / MB:.0f} MB", flush=True)
    for devices in options.devices:
        data = sum(s.images_NHWC.nbytes + s.labels.nbytes for s in make_shards(devices, shape))
        each = (peak_of_memory(devices, "auto", shape) - empty - data) / devices
        found[f"bytes of each of {devices}"] = each
        print(f"{devices} devices: {each / MB:.2f} MB each", flush=True)
    fleets = in_turns(options.devices, shape, options.seconds, options.turns)
    for devices, fleet in fleets.items():
        step_s, spent_s = 1 / fleet.rates().mean(), processor_s_of_a_step(fleet)
        found[f"seconds of a round of {devices}"] = step_s * devices
        print(
            f"{devices} devices: round {step_s * devices:.2f} s, {1e3 * step_s:.2f} ms a device, "
            f"{1e3 * spent_s:.2f} ms of a processor"
        )
    for (few, its), (many, theirs) in pairwise(fleets.items()):
        ratio, error = ratio_of_means(its.rates(), theirs.rates())
        spent = processor_s_of_a_step(theirs) / processor_s_of_a_step(its)
        found[f"time of {many} / proportional to {few}"] = ratio
        print(
            f"{few} to {many} devices: {many / few:g} times as many take {ratio:.3f} +- "
            f"{error:.3f} of proportional time, {spent:.3f} of proportional processor time"
        )
    for devices, per_actor in ((16, "auto"), (16, 1), (64, 1)) if options.launch else ():
        times = [first_step_s(devices, per_actor, shape) for _ in range(options.launches)]
        kind = "packed" if per_actor == "auto" else "one actor each"
        found[f"seconds to launch {devices}, {kind}"] = statistics.median(s for s, _ in times)
        listed = ", ".join(f"{seconds:.1f} s ({stolen:.2f})" for seconds, stolen in times)
        print(f"{devices} devices, {kind}: first round ended after (taken by the host) {listed}")
    if options.json:
        options.json.write_text(json.dumps(found) + "\n")


def processor_s_of_a_step(fleet: Contestant) -> float:
    """Of all processes of a fleet that was measured, for each step."""
    steps = fleet.rates().mean() * sum(piece.seconds for piece in fleet.pieces)
    return float(sum(fleet.processor_s.values()) / steps)


if __name__ == "__main__":
    main()
