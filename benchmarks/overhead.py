"""How much of the machine goes into training: fleets against plain loops, in one run.

Two workloads, on images of CIFAR's size, in batches of 32, with CHOCO:
    resnet20    8 devices on a directed ring
    small_cnn   16 devices with 128 samples each on a ring, which exchange once an epoch: 4 steps

The plain loop does the same steps and the same gossip arithmetic in one thread, without messages,
actors or event loops. It is measured in three ways: one loop on one core ("serial"), one loop whose
operations use as many threads as there are cores, and one loop of one thread pinned to each core,
all at once, which is the best that these cores can do. Throughputs are compared with the better of
the last two; the time of a round of the small CNN, too small for threads, with the serial loop's.
"In turns" is a bare process for each device that does its steps, and mixes with itself, as it gets
a core: what one actor each could reach if messages cost nothing and no core was ever idle.

Printed for each: steps per second after a warm-up, and the share of wall x cores in which a core
worked on a step. For the fleets, where the rest of wall x cores went. Other work on the machine
disturbs the ratios: repeat, and look at the shares.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import mean, median
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
from edgesim.fleet.core_pool import CorePool
from edgesim.fleet.run_directory import RunDirectory
from edgesim.gossip import OutEdge, Share
from edgesim.learning.allocator import keep_freed_memory
from edgesim.scenario import Scenario, load_scenario
from edgesim.streams import Purpose, stream

GATE_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Workload:
    """What is trained.

    Attributes:
        model: its name.
        devices: of the fleet.
        topology: kind of graph.
        samples: of each device.
        rounds: of each device.
        warm_up_rounds: of these, not measured.
        local_steps: rounds from one exchange to the next.
        kinds: ways to do it that are measured.
    """

    model: str
    devices: int
    topology: str
    samples: int
    rounds: int
    warm_up_rounds: int
    local_steps: int
    kinds: tuple[str, ...]


WORKLOADS = (
    Workload(
        "resnet20",
        8,
        "directed_ring",
        512,
        30,
        2,
        1,
        ("plain_per_core", "plain_threaded", "in_turns", "one_each", "packed"),
    ),
    Workload(
        "small_cnn",
        16,
        "ring",
        128,
        120,
        8,
        4,
        ("plain_serial", "plain_per_core", "packed"),
    ),
)


def make_scenario(
    folder: Path, workload: Workload, compressor: str, per_actor: int | str
) -> Scenario:
    """The scenario that is measured."""
    compressors = {"identity": {"kind": "identity"}, "top_k": {"kind": "top_k", "keep": 0.01}}
    document = {
        "name": "overhead",
        "fleet": {"devices": workload.devices, "devices_per_actor": per_actor},
        "topology": {"kind": workload.topology},
        "data": {"partition": {"kind": "iid"}, "batch_size": 32, "augment": "crop_flip"},
        "model": {"name": workload.model},
        "training": {"rounds": workload.rounds, "optimizer": {"lr": 0.01, "weight_decay": 0.0001}},
        "gossip": {
            "algorithm": "choco",
            "averaging_rate": 0.01,
            "local_steps": workload.local_steps,
            "compressor": compressors[compressor],
        },
    }
    path = folder / f"{workload.model}-{per_actor}.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_scenario(path)


def make_shards(workload: Workload) -> list[LabelledImages]:
    """Random images: speed does not depend on what they show."""
    rng, samples = stream(1, Purpose.BATCH), workload.samples
    return [
        LabelledImages(
            rng.integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8),
            rng.integers(0, 10, samples),
        )
        for _ in range(workload.devices)
    ]


def make_plan(scenario: Scenario, rounds: int, folder: Path) -> FleetPlan:
    """Plan of a fleet that only trains."""
    data = DataSpec((3, 32, 32), 10, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    schedule = make_schedule(scenario)
    return FleetPlan(scenario, schedule, data, TrainingPlan(rounds, rounds, ()), PLAIN, folder)


@dataclass(frozen=True, slots=True)
class Loop:
    """A plain loop in a process of its own.

    Attributes:
        devices: whose steps it does.
        cpus: on which it runs.
        threads: of its operations.
        turns: folder of the cores that it takes one of for each step; None if it shares none.
    """

    devices: range
    cpus: frozenset[int]
    threads: int
    turns: Path | None = None


def plain_loop(
    plan: FleetPlan,
    shards: list[LabelledImages],
    warm_up_rounds: int,
    loop: Loop,
    gate: Barrier,
    answer: Queue[tuple[float, float]],
) -> None:
    """Do the steps of some devices in one loop; answers wall and processor seconds.

    Those whose neighbours are not among them hear themselves in their place: the same work.
    """
    os.sched_setaffinity(0, loop.cpus)
    torch.set_num_threads(loop.threads)
    keep_freed_memory()
    core = CorePool(loop.turns, len(loop.cpus)).core if loop.turns else nullcontext
    scenario, data = plan.scenario, plan.data
    model, schedule = make_flat_model(scenario, data, PLAIN), plan.schedule
    algorithm = make_algorithm(scenario, model.layout, schedule)
    optimizer, gamma = make_optimizer(scenario), make_learning_rates(scenario).at(0)
    states = {device: algorithm.init(model.parameters.clone(), {}) for device in loop.devices}
    memories = {device: optimizer.init(state.x) for device, state in states.items()}
    batches = {
        device: BatchStream(shards[device], 32, "crop_flip", data.mean, data.std, 1, device)
        for device in loop.devices
    }
    wall, cpu = 0.0, 0.0
    for round_index in range(plan.training.num_rounds):
        if round_index == warm_up_rounds:
            gate.wait(GATE_TIMEOUT_S)
            wall, cpu = perf_counter(), process_time()
        inboxes: dict[int, list[Share]] = {device: [] for device in states}
        for device, state in states.items():
            with core():
                model.load_(state.debiased(), model.buffers)
                _, gradient = model.loss_and_gradient(*batches[device].batch(round_index))
                optimizer.step_(memories[device], state.x, gradient, gamma)
                edges = [OutEdge(*edge) for edge in schedule.out_edges(device, round_index)]
                rng = stream(1, Purpose.COMPRESS, device, round_index)
                shares = algorithm.send_(state, edges, rng)
            for share, own in zip(shares, schedule.in_neighbors(device, round_index), strict=True):
                sender, receiver = (device, share.peer) if share.peer in states else (own, device)
                arrived = Share(sender, share.weight, share.push_weight, share.payload)
                inboxes[receiver].append(arrived)
        for device, state in states.items():
            with core():
                algorithm.absorb_(state, inboxes[device])
    answer.put((perf_counter() - wall, process_time() - cpu))


def measure_plain(
    plan: FleetPlan,
    shards: list[LabelledImages],
    warm_up_rounds: int,
    loops: list[Loop],
) -> tuple[float, float]:
    """Steps per second and busy share of plain loops, all at once."""
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(len(loops)), context.Queue()
    processes = [
        context.Process(
            target=plain_loop,
            args=(plan, shards, warm_up_rounds, loop, gate, answers),
            daemon=True,
        )
        for loop in loops
    ]
    for process in processes:
        process.start()
    results = [answers.get(timeout=GATE_TIMEOUT_S) for _ in processes]
    for process in processes:
        process.join()
    steps = (plan.training.num_rounds - warm_up_rounds) * len(loops[0].devices)  # of each loop
    cores = len(frozenset[int]().union(*(loop.cpus for loop in loops)))
    spent_s, wall_s = sum(cpu for _, cpu in results), mean(wall for wall, _ in results)
    print(f"    {spent_s / len(loops) / steps * 1e3:.1f} ms of a core per step")
    if loops[0].turns:  # nothing keeps them in step: the last have the cores to themselves
        return cores * len(loops) * steps / spent_s, 1.0
    return sum(steps / wall for wall, _ in results), spent_s / wall_s / cores


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
    plan: FleetPlan, shards: list[LabelledImages], warm_up_rounds: int, console: Console
) -> tuple[float, float]:
    """Steps per second and busy share of a fleet of actors; prints where the rest went."""
    directory = RunDirectory.create(plan.run_directory, plan.run_digest)
    cores = len(os.sched_getaffinity(0))

    async def conduct(fleet: launch.RayFleet) -> tuple[float, int, Spent, Spent]:
        running = asyncio.create_task(fleet.run())
        while True:
            parts = await fleet.progress()
            if parts and min(part.slowest_round for part in parts) >= warm_up_rounds:
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
    step_s = rounds.loc[rounds["round"] >= warm_up_rounds, "compute_cpu_s"].mean()
    whole = wall_s * cores
    shares = {
        "steps": steps * step_s / whole,
        "messages and event loops in the actors": (after.actors - before.actors - steps * step_s)
        / whole,
        "Ray's own processes and the driver": (after.others - before.others) / whole,
    }
    shares["idle"] = 1 - sum(shares.values())
    spent = ", ".join(f"{what} {share:.3f}" for what, share in shares.items())
    print(f"    of wall x cores: {spent}")
    used_s = after.actors - before.actors + after.others - before.others
    print(
        f"    {used_s / steps * 1e3:.1f} ms of a core per step, {step_s * 1e3:.1f} of them its own"
    )
    return steps / wall_s, shares["steps"]


def measure(
    kind: str, workload: Workload, compressor: str, folder: Path, console: Console
) -> tuple[float, float]:
    """Steps per second and busy share of one way to do a workload."""
    per_actor = "auto" if kind == "packed" else 1
    scenario = make_scenario(folder, workload, compressor, per_actor)
    plan, shards = make_plan(scenario, workload.rounds, folder / "run"), make_shards(workload)
    cpus, warm_up = frozenset(os.sched_getaffinity(0)), workload.warm_up_rounds
    everyone = range(workload.devices)
    loops = {
        "plain_serial": [Loop(everyone, frozenset({min(cpus)}), 1)],
        "plain_per_core": [Loop(everyone, frozenset({cpu}), 1) for cpu in cpus],
        "plain_threaded": [Loop(everyone, cpus, len(cpus))],
        "in_turns": [
            Loop(range(device, device + 1), cpus, 1, folder / "cores") for device in everyone
        ],
    }
    if kind in loops:
        return measure_plain(plan, shards, warm_up, loops[kind])
    return measure_fleet(plan, shards, warm_up, console)


def compare(
    workload: Workload, compressor: str, repeats: int, console: Console
) -> dict[str, float]:
    """Measure a workload in all its ways, in turn; prints figures and returns ratios."""
    print(
        f"{workload.model}, {workload.devices} devices, batch 32, {compressor}, "
        f"an exchange every {workload.local_steps} steps"
    )
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        for kind in workload.kinds:
            with tempfile.TemporaryDirectory() as folder:
                rate, busy = measure(kind, workload, compressor, Path(folder), console)
            rates[kind].append(rate)
            print(f"  {kind:14s} {rate:6.2f} steps/s   compute / (wall x cores) {busy:.3f}")
    plain = [rates[kind] for kind in ("plain_per_core", "plain_threaded") if kind in rates]
    best = [max(turn) for turn in zip(*plain, strict=True)]
    ratios = {}
    for kind in ("in_turns", "one_each", "packed"):
        if kind in rates:
            pairs = zip(rates[kind], best, strict=True)
            ratios[f"{workload.model} {kind}"] = median(fleet / plain for fleet, plain in pairs)
            print(f"{kind}: {ratios[f'{workload.model} {kind}']:.3f} of the better plain loop")
    if "plain_serial" in rates:
        pairs = zip(rates["plain_serial"], rates["packed"], strict=True)
        ratio = ratios[f"{workload.model} round"] = median(plain / fleet for plain, fleet in pairs)
        print(f"packed: a round in {ratio:.3f} of the time that a serial loop needs")
    return ratios


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = [workload.model for workload in WORKLOADS]
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--rounds", type=int, help="of each device; default: by workload")
    parser.add_argument("--local-steps", type=int, help="between exchanges; default: by workload")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options, console = parser.parse_args(), Console()
    print(f"{len(os.sched_getaffinity(0))} cores")
    ratios: dict[str, float] = {}
    for workload in WORKLOADS:
        if workload.model in options.models:
            chosen = replace(
                workload,
                rounds=options.rounds or workload.rounds,
                local_steps=options.local_steps or workload.local_steps,
            )
            ratios |= compare(chosen, options.compressor, options.repeats, console)
    if options.json:
        options.json.write_text(json.dumps(ratios) + "\n")


if __name__ == "__main__":
    main()
