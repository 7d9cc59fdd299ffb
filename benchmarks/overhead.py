"""How much of the machine goes into training: fleets against plain loops, in one run.

Eight devices train ResNet-20 at batch 32 on images of CIFAR's size, with CHOCO on a directed ring.
The plain loop does the same steps and the same gossip arithmetic in one thread, without
messages, actors or event loops. It is measured in two ways, both on the same cores: one loop whose
operations use as many threads as there are cores, and one loop of one thread pinned to each core,
all at once, which is the best that these cores can do. Ratios are against the better of the two.

Printed for each: steps per second after a warm-up of two rounds, and the share of wall x cores in
which a core worked on a step. For the fleets, where the rest of wall x cores went.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import pandas as pd
import psutil
import torch
import yaml
from rich.console import Console

from edgesim.assembly import (
    PLAIN,
    DataSpec,
    FleetPlan,
    TrainingPlan,
    make_algorithm,
    make_flat_model,
    make_learning_rates,
    make_optimizer,
    make_schedule,
)
from edgesim.data.batches import BatchStream
from edgesim.data.images import LabelledImages
from edgesim.fleet import launch
from edgesim.fleet.run_directory import RunDirectory
from edgesim.gossip import OutEdge, Share
from edgesim.scenario import Scenario, load_scenario
from edgesim.streams import Purpose, stream

SAMPLES_PER_DEVICE = 512
WARM_UP_ROUNDS = 2
GATE_TIMEOUT_S = 900.0


def make_scenario(folder: Path, devices: int, compressor: str, per_actor: int | str) -> Scenario:
    """The scenario that is measured."""
    compressors = {"identity": {"kind": "identity"}, "top_k": {"kind": "top_k", "keep": 0.01}}
    document = {
        "name": "overhead",
        "fleet": {"devices": devices, "devices_per_actor": per_actor},
        "topology": {"kind": "directed_ring"},
        "data": {"partition": {"kind": "iid"}, "batch_size": 32, "augment": "crop_flip"},
        "model": {"name": "resnet20"},
        "training": {"rounds": 1, "optimizer": {"lr": 0.01, "weight_decay": 0.0001}},
        "gossip": {
            "algorithm": "choco",
            "averaging_rate": 0.01,
            "compressor": compressors[compressor],
        },
    }
    path = folder / f"overhead-{per_actor}.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_scenario(path)


def make_shards(devices: int) -> list[LabelledImages]:
    """Random images: speed does not depend on what they show."""
    rng = stream(1, Purpose.BATCH)
    return [
        LabelledImages(
            rng.integers(0, 256, (SAMPLES_PER_DEVICE, 32, 32, 3), dtype=np.uint8),
            rng.integers(0, 10, SAMPLES_PER_DEVICE),
        )
        for _ in range(devices)
    ]


def make_plan(scenario: Scenario, rounds: int, folder: Path) -> FleetPlan:
    """Plan of a fleet that only trains."""
    data = DataSpec((3, 32, 32), 10, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    schedule = make_schedule(scenario)
    return FleetPlan(scenario, schedule, data, TrainingPlan(rounds, rounds, ()), PLAIN, folder)


def plain_loop(  # in a process of its own
    plan: FleetPlan,
    shards: list[LabelledImages],
    cpus: set[int],
    gate: Barrier,
    answer: Queue[tuple[float, float]],
) -> None:
    """Do the steps of a whole fleet in one loop; answers wall and processor seconds."""
    os.sched_setaffinity(0, cpus)
    torch.set_num_threads(len(cpus))
    scenario, data = plan.scenario, plan.data
    model, schedule = make_flat_model(scenario, data, PLAIN), plan.schedule
    algorithm = make_algorithm(scenario, model.layout, schedule)
    optimizer, gamma = make_optimizer(scenario), make_learning_rates(scenario).at(0)
    states = [algorithm.init(model.parameters.clone(), {}) for _ in shards]
    memories = [optimizer.init(state.x) for state in states]
    batches = [
        BatchStream(shard, 32, "crop_flip", data.mean, data.std, 1, device)
        for device, shard in enumerate(shards)
    ]
    wall, cpu = 0.0, 0.0
    for round_index in range(plan.training.num_rounds):
        if round_index == WARM_UP_ROUNDS:
            gate.wait(GATE_TIMEOUT_S)
            wall, cpu = perf_counter(), process_time()
        inboxes: list[list[Share]] = [[] for _ in shards]
        for device, state in enumerate(states):
            model.load_(state.debiased(), model.buffers)
            _, gradient = model.loss_and_gradient(*batches[device].batch(round_index))
            optimizer.step_(memories[device], state.x, gradient, gamma)
            edges = [OutEdge(*edge) for edge in schedule.out_edges(device, round_index)]
            rng = stream(1, Purpose.COMPRESS, device, round_index)
            for share in algorithm.send_(state, edges, rng):
                arrived = Share(device, share.weight, share.push_weight, share.payload)
                inboxes[share.peer].append(arrived)
        for state, inbox in zip(states, inboxes, strict=True):
            algorithm.absorb_(state, inbox)
    answer.put((perf_counter() - wall, process_time() - cpu))


def measure_plain(
    plan: FleetPlan, shards: list[LabelledImages], cpu_sets: list[set[int]]
) -> tuple[float, float]:
    """Steps per second and busy share of plain loops, one for each set of cores, all at once."""
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(len(cpu_sets)), context.Queue()
    processes = [
        context.Process(target=plain_loop, args=(plan, shards, cpus, gate, answers), daemon=True)
        for cpus in cpu_sets
    ]
    for process in processes:
        process.start()
    results = [answers.get(timeout=GATE_TIMEOUT_S) for _ in processes]
    for process in processes:
        process.join()
    steps = (plan.training.num_rounds - WARM_UP_ROUNDS) * len(shards)
    cores = sum(map(len, cpu_sets))
    busy = sum(cpu for _, cpu in results) / (sum(wall for wall, _ in results) / len(results))
    return sum(steps / wall for wall, _ in results), busy / cores


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds of this process and all below it, by what they are."""

    actors: float
    others: float

    @classmethod
    def so_far(cls) -> Spent:
        """Since each of them began."""
        actors = others = 0.0
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                times = process.cpu_times()
                is_actor = "DeviceActor" in " ".join(process.cmdline())
            except psutil.NoSuchProcess:
                continue
            if is_actor:
                actors += times.user + times.system
            else:
                others += times.user + times.system
        return cls(actors, others)


def measure_fleet(
    plan: FleetPlan, shards: list[LabelledImages], console: Console
) -> tuple[float, float]:
    """Steps per second and busy share of a fleet of actors; prints where the rest went."""
    directory = RunDirectory.create(plan.run_directory)
    cores = len(os.sched_getaffinity(0))

    async def conduct(fleet: launch.RayFleet) -> tuple[float, int, Spent, Spent]:
        running = asyncio.create_task(fleet.run())
        while True:
            parts = await fleet.progress()
            if parts and min(part.slowest_round for part in parts) >= WARM_UP_ROUNDS:
                break
            await asyncio.sleep(0.05)
        done = sum(part.rounds_done for part in parts)
        before, start = Spent.so_far(), perf_counter()
        await running
        return perf_counter() - start, done, before, Spent.so_far()

    with launch.ray_session(None, dashboard=False, console=console):
        fleet = launch.RayFleet(plan, shards)
        try:
            wall_s, done, before, after = asyncio.run(conduct(fleet))
        finally:
            fleet.close()
    directory.merge_rounds()
    rounds = pd.read_parquet(directory.path / "rounds.parquet")
    assert len(rounds) == plan.training.num_rounds * len(shards), "work was lost or repeated"
    steps = len(rounds) - done
    step_s = rounds.loc[rounds["round"] >= WARM_UP_ROUNDS, "compute_cpu_s"].mean()
    whole = wall_s * cores
    shares = {
        "steps": steps * step_s / whole,
        "messages and event loops in the actors": (after.actors - before.actors - steps * step_s)
        / whole,
        "Ray's own processes and the driver": (after.others - before.others) / whole,
    }
    shares["idle"] = 1 - sum(shares.values())
    spent = ", ".join(f"{what} {share:.3f}" for what, share in shares.items())
    print(f"    of wall x cores: {spent}; {step_s * 1e3:.0f} ms of a core per step")
    return steps / wall_s, shares["steps"]


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    cpus, shards, console = sorted(os.sched_getaffinity(0)), make_shards(options.devices), Console()
    print(
        f"{options.devices} devices, ResNet-20, batch 32, {options.compressor}, {len(cpus)} cores"
    )
    rates: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for kind in ("plain_per_core", "plain_threaded", "one_each", "packed"):
                per_actor = "auto" if kind == "packed" else 1
                scenario = make_scenario(
                    Path(folder), options.devices, options.compressor, per_actor
                )
                plan = make_plan(scenario, options.rounds, Path(folder) / f"{kind}-{repeat}")
                if kind == "plain_per_core":
                    rate, busy = measure_plain(plan, shards, [{cpu} for cpu in cpus])
                elif kind == "plain_threaded":
                    rate, busy = measure_plain(plan, shards, [set(cpus)])
                else:
                    rate, busy = measure_fleet(plan, shards, console)
                rates[kind].append(rate)
                print(f"  {kind:14s} {rate:6.2f} steps/s   compute / (wall x cores) {busy:.3f}")
    best = list(map(max, rates["plain_per_core"], rates["plain_threaded"]))
    ratios = {
        kind: median(fleet / plain for fleet, plain in zip(rates[kind], best, strict=True))
        for kind in ("one_each", "packed")
    }
    for kind, ratio in ratios.items():
        print(f"{kind}: {ratio:.3f} of the better plain loop's throughput")
    if options.json:
        options.json.write_text(json.dumps(ratios) + "\n")


if __name__ == "__main__":
    main()
