"""How much of the machine goes into training: fleets against plain loops, in one run.

Eight devices train ResNet-20 at batch 32 on images of CIFAR's size, gossiping by CHOCO on a
directed ring. The plain loop does the same steps and the same gossip arithmetic in one thread,
without messages, actors or event loops; one copy of it is pinned to each core, which is the best
that these cores can do. Printed for each: steps per second, and the share of wall time x cores in
which a core worked on a step. The ratios are steps per second against the plain loops.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

import numpy as np
import pandas as pd
import torch
import yaml

from edgesim.assembly import (
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
    return FleetPlan(scenario, schedule, data, TrainingPlan(rounds, rounds, ()), folder)


def plain_loop(
    plan: FleetPlan,
    shards: list[LabelledImages],
    cpu: int,
    gate: Barrier,
    answer: Queue[tuple[float, float]],
) -> None:
    """In its own process: the same steps in one thread, and how long they took."""
    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    scenario, data = plan.scenario, plan.data
    model, schedule = make_flat_model(scenario, data), plan.schedule
    algorithm = make_algorithm(scenario, model.layout, schedule)
    optimizer, gamma = make_optimizer(scenario), make_learning_rates(scenario).at(0)
    states = [algorithm.init(model.parameters.clone(), {}) for _ in shards]
    memories = [optimizer.init(state.x) for state in states]
    batches = [
        BatchStream(shard, 32, "crop_flip", data.mean, data.std, 1, device)
        for device, shard in enumerate(shards)
    ]
    gate.wait()
    wall, cpu_s = perf_counter(), thread_time()
    for round_index in range(plan.training.num_rounds):
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
    answer.put((perf_counter() - wall, thread_time() - cpu_s))


def measure_plain(plan: FleetPlan, shards: list[LabelledImages]) -> tuple[float, float]:
    """Steps per second and busy share of one plain loop per core, all at once."""
    cpus = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(len(cpus)), context.Queue()
    processes = [
        context.Process(target=plain_loop, args=(plan, shards, cpu, gate, answers)) for cpu in cpus
    ]
    for process in processes:
        process.start()
    results = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    steps = plan.training.num_rounds * len(shards)
    rate = sum(steps / wall for wall, _ in results)
    return rate, sum(cpu for _, cpu in results) / sum(wall for wall, _ in results)


def measure_fleet(plan: FleetPlan, shards: list[LabelledImages]) -> tuple[float, float]:
    """Steps per second and busy share of a fleet of actors, once they are all there."""
    directory = RunDirectory.create(plan.run_directory)

    async def conduct() -> float:
        await fleet.progress()
        start = perf_counter()
        await fleet.run()
        return perf_counter() - start

    with launch.ray_session(None, dashboard=False):
        fleet = launch.RayFleet(plan, shards)
        try:
            wall_s = asyncio.run(conduct())
        finally:
            fleet.close()
    directory.merge_rounds()
    rounds = pd.read_parquet(directory.path / "rounds.parquet")
    busy = rounds["compute_cpu_s"].sum() / (wall_s * len(os.sched_getaffinity(0)))
    return len(rounds) / wall_s, float(busy)


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    shards = make_shards(options.devices)
    print(
        f"{options.devices} devices, ResNet-20, batch 32, CHOCO {options.compressor}, {cores} cores"
    )
    rates: dict[str, list[float]] = {"plain": [], "one_each": [], "packed": []}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for kind, per_actor in (("plain", 1), ("one_each", 1), ("packed", "auto")):
                scenario = make_scenario(
                    Path(folder), options.devices, options.compressor, per_actor
                )
                plan = make_plan(scenario, options.rounds, Path(folder) / f"{kind}-{repeat}")
                measure = measure_plain if kind == "plain" else measure_fleet
                rate, busy = measure(plan, shards)
                rates[kind].append(rate)
                print(f"  {kind:9s} {rate:6.2f} steps/s   compute / (wall x cores) {busy:.3f}")
    ratios = {
        kind: median(f / p for f, p in zip(rates[kind], rates["plain"], strict=True))
        for kind in ("one_each", "packed")
    }
    for kind, ratio in ratios.items():
        print(f"{kind:9s} {ratio:.3f} of the plain loops' throughput")
    if options.json:
        options.json.write_text(json.dumps(ratios) + "\n")


if __name__ == "__main__":
    main()
