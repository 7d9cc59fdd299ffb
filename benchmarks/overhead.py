"""How much of the machine goes into training: fleets against plain loops, in one run.

Workloads, on images of CIFAR's size, in batches of 32, with CHOCO:
    resnet20    8 devices on a directed ring
    two_convolutions  16 devices with 128 samples each on a directed ring, which exchange once an
                epoch: 4 steps; the measure is a loop of plain torch (two_convolutions.py)
    small_cnn   the same on a ring, with images that are cropped and flipped
    step_fp32, step_int8  as resnet20; the measure is a training step alone (step.py), on one core

The plain loop does the same steps and the same gossip arithmetic in one thread, without messages,
actors or event loops. It is measured in three ways: one loop on one core ("serial"), one loop whose
operations use as many threads as there are cores ("threaded", what torch does unless told), and one
loop of one thread pinned to each core, all at once ("per core"), which is the best that these cores
can do. Throughputs are compared with the last two; the time of a round of small models, too small
for threads, with the serial loop's, and so is the processor time of all their processes. "In turns"
is a bare process for each device that does its steps, and mixes with itself, as it gets a core:
what one actor each could reach if messages cost nothing and no core was ever idle.

Those that are compared are started, then have the machine in turns (`time_slices.py`): a machine
whose speed drifts is the same for all, and what counts are moments in which its host, if it is a
virtual one, left it alone. Printed for each: steps per second, and where wall x cores
went; then the ratios, with their standard errors.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import yaml
from fleet_contestant import MEASURED, fleet_of_actors, inline_fleet
from numpy.typing import NDArray
from plain_loops import Loop, plain_loop, step_alone
from time_slices import Contestant, ended, ratio_of_means, take_turns
from two_convolutions import torch_loop

from edgesim.assembly.build import (
    DataSpec,
    choose_compute,
    make_schedule,
)
from edgesim.assembly.training_plan import TrainingPlan
from edgesim.data.images import LabelledImages
from edgesim.fleet.plan import FleetPlan
from edgesim.scenario import Scenario, load_scenario
from edgesim.streams import StreamPurpose, stream

FLEETS = ("one_each", "packed", "inline")
PLAIN_LOOPS = ("plain_serial", "plain_per_core", "plain_threaded", "torch_serial", "step_alone")
PRECISIONS: tuple[Literal["fp32"], Literal["int8"]] = ("fp32", "int8")
OWN_MODEL = f"{Path(__file__).with_name('two_convolutions.py').resolve()}:two_convolutions"


@dataclass(frozen=True, slots=True)
class Workload:
    """What is trained.

    Attributes:
        name: of the workload.
        model: of a model.
        devices: of the fleet.
        topology: kind of graph.
        samples: of each device.
        rounds: of each device.
        warm_up_rounds: of these, not measured.
        local_steps: rounds from one exchange to the next.
        keep: share of the entries in a message of top-k.
        augment: of its images.
        groups: ways to do it that are measured together; those that are plain loops are measures
            of those after them.
        precision: of the model.
    """

    name: str
    model: str
    devices: int
    topology: str
    samples: int
    rounds: int
    warm_up_rounds: int
    local_steps: int
    keep: float
    augment: str
    groups: tuple[tuple[str, ...], ...]
    precision: Literal["fp32", "int8"] = "fp32"


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "resnet20",
        "resnet20",
        8,
        "directed_ring",
        512,
        100,
        2,
        1,
        0.01,
        "crop_flip",
        (
            ("plain_per_core", "in_turns"),
            ("plain_per_core", "plain_threaded", "one_each", "packed"),
        ),
    ),
    Workload(
        "two_convolutions",
        "two_convolutions",
        16,
        "directed_ring",
        128,
        1600,
        8,
        4,
        0.1,
        "none",
        (("torch_serial", "packed", "inline", "one_each"),),
    ),
    Workload(
        "small_cnn",
        "small_cnn",
        16,
        "ring",
        128,
        480,
        8,
        4,
        0.01,
        "crop_flip",
        (("plain_serial", "plain_per_core", "packed"),),
    ),
)
WORKLOADS += tuple(
    replace(
        WORKLOADS[0],
        name=f"step_{precision}",
        precision=precision,
        groups=(("step_alone", "packed", "inline", "one_each"),),
    )
    for precision in PRECISIONS
)


def make_scenario(
    folder: Path, workload: Workload, compressor: str, per_actor: int | str
) -> Scenario:
    """The scenario that is measured."""
    top_k = {"kind": "top_k", "keep": workload.keep}
    compressors = {"identity": {"kind": "identity"}, "top_k": top_k}
    document = {
        "name": "overhead",
        "fleet": {"devices": workload.devices, "devices_per_actor": per_actor},
        "topology": {"kind": workload.topology},
        "data": {"partition": {"kind": "iid"}, "batch_size": 32, "augment": workload.augment},
        "model": {
            "name": OWN_MODEL if workload.model == "two_convolutions" else workload.model,
            "precision": workload.precision,
        },
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
    rng, samples = stream(1, StreamPurpose.BATCH), workload.samples
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
    return FleetPlan(
        scenario,
        schedule,
        data,
        TrainingPlan(rounds, rounds, ()),
        choose_compute(scenario, 0),
        folder,
    )


def make_contestant(kind: str, workload: Workload, compressor: str, folder: Path) -> Contestant:
    """One way to do a workload, started."""
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
    if kind in FLEETS:
        size = workload.devices
        last = int(MEASURED * workload.rounds)  # while all its devices have work
        contestant = Contestant(kind, warm_up * size, last * size)
        contestant.start(inline_fleet if kind == "inline" else fleet_of_actors, plan, shards)
        return contestant
    if kind == "torch_serial":
        contestant = Contestant(kind, warm_up * workload.devices, inf)
        contestant.start(torch_loop, shards, workload.local_steps)
        return contestant
    if kind == "step_alone":
        contestant = Contestant(kind, warm_up * workload.devices, inf)
        contestant.start(step_alone, workload.model, workload.precision, min(cpus))
        return contestant
    contestant = Contestant(kind, warm_up * len(loops[kind][0].devices), inf)
    for loop in loops[kind]:
        contestant.start(plain_loop, plan, shards, loop)
    return contestant


def describe(contestant: Contestant, rounds: pd.DataFrame | None) -> str:
    """Steps per second and what they cost, of a contestant that was measured.

    Args:
        contestant: measured.
        rounds: table of a fleet, whose steps alone are told from the rest.
    """
    seconds = sum(piece.seconds for piece in contestant.pieces)
    steps, spent_s = contestant.rates().mean() * seconds, sum(contestant.processor_s.values())
    whole = seconds * len(os.sched_getaffinity(0))
    stolen = sum(piece.stolen_s for piece in contestant.pieces) / whole
    line = (
        f"  {contestant.name:14s} {steps / seconds:7.2f} steps/s, "
        f"{spent_s / steps * 1e3:.1f} ms of a core per step"
    )
    if rounds is None:
        return f"{line}, {spent_s / whole:.3f} of wall x cores, taken by the host {stolen:.3f}"
    if contestant.name == "inline":
        return f"{line}, {spent_s / whole:.3f} of wall x cores, taken by the host {stolen:.3f}"
    step_s = rounds["compute_cpu_s"].mean()
    actors_s = sum(s for name, s in contestant.processor_s.items() if "DeviceActor" in name)
    shares = {
        "steps": steps * step_s / whole,
        "messages and event loops in the actors": (actors_s - steps * step_s) / whole,
        "Ray's own processes and the driver": (spent_s - actors_s) / whole,
        "taken by the host": stolen,
        "idle": 1 - stolen - spent_s / whole,
    }
    listed = ", ".join(f"{what} {share:.3f}" for what, share in shares.items())
    return f"{line}, {step_s * 1e3:.1f} of them its own\n    of wall x cores: {listed}"


def measure_together(
    kinds: Sequence[str], workload: Workload, compressor: str, seconds: float, turns: int
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Steps per second, and per processor second, of some ways in each slice; prints figures."""
    contestants: dict[str, Contestant] = {}
    with tempfile.TemporaryDirectory() as parent, ended(contestants):
        for kind in kinds:
            folder = Path(parent, kind)
            folder.mkdir()
            contestants[kind] = make_contestant(kind, workload, compressor, folder)
            contestants[kind].get_warm()
        take_turns(contestants.values(), seconds, turns)
        for kind, contestant in contestants.items():
            rounds = None
            if kind in FLEETS:
                measured = contestant.least_done() // workload.devices
                contestant.finish()  # alone
                rounds = pd.read_parquet(folder.parent / kind / "run" / "rounds.parquet")
                expected = workload.rounds * workload.devices
                assert len(rounds) == expected, "work was lost or repeated"
                rounds = rounds[rounds["round"].between(workload.warm_up_rounds, measured - 1)]
            print(describe(contestant, rounds))
        return {kind: (c.rates(), c.thrifts()) for kind, c in contestants.items()}


def compare(workload: Workload, compressor: str, seconds: float, turns: int) -> dict[str, float]:
    """Measure a workload in all its ways; prints figures and returns ratios."""
    print(
        f"{workload.name}, {workload.devices} devices, batch 32, {compressor} {workload.keep:g}, "
        f"an exchange every {workload.local_steps} steps"
    )
    ratios: dict[str, float] = {}
    for group in workload.groups:
        rates = measure_together(group, workload, compressor, seconds, turns)
        for measure, kind in combinations(group, 2):
            if measure not in PLAIN_LOOPS:
                continue
            ratio, error = ratio_of_means(rates[kind][0], rates[measure][0])
            ratios[f"{workload.name} {kind} / {measure}"] = ratio
            text = f"  {kind}: {ratio:.3f} +- {error:.3f} of {measure}"
            if measure in {"plain_serial", "torch_serial", "step_alone"}:
                text += f", a round in {1 / ratio:.3f} +- {error / ratio**2:.3f} of its time"
                thrift, off = ratio_of_means(rates[kind][1], rates[measure][1])
                ratios[f"{workload.name} {kind} / {measure}, processor time"] = 1 / thrift
                text += f", {1 / thrift:.3f} +- {off / thrift**2:.3f} of its processor time"
            print(text)
    return ratios


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, help="of each device; default: by workload")
    parser.add_argument("--local-steps", type=int, help="between exchanges; default: by workload")
    parser.add_argument("--turns", type=int, default=12, help="of each contestant, at most")
    parser.add_argument("--seconds", type=float, default=3.3, help="of a turn that count")
    parser.add_argument("--compressor", choices=["identity", "top_k"], default="top_k")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores")
    ratios: dict[str, float] = {}
    for workload in WORKLOADS:
        if workload.name in options.workloads:
            chosen = replace(
                workload,
                rounds=options.rounds or workload.rounds,
                local_steps=options.local_steps or workload.local_steps,
            )
            ratios |= compare(chosen, options.compressor, options.seconds, options.turns)
    if options.json:
        options.json.write_text(json.dumps(ratios) + "\n")


if __name__ == "__main__":
    main()
