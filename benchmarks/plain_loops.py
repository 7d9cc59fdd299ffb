"""Loops without a fleet, by which fleets are measured (`time_slices.py`)."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from step import eight_bit, make_step
from time_slices import Reporter

from edgesim.assembly.build import make_flat_model
from edgesim.assembly.gossip import make_algorithm
from edgesim.assembly.optimization import make_learning_rates, make_optimizer
from edgesim.data.batches import BatchStream
from edgesim.data.images import LabelledImages
from edgesim.fleet.on_ray.core_pool import CorePool
from edgesim.fleet.plan import FleetPlan
from edgesim.gossip.algorithm import OutEdge, Share
from edgesim.learning.allocator import keep_freed_memory
from edgesim.models import full_precision
from edgesim.streams import StreamPurpose, stream


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
    plan: FleetPlan, shards: list[LabelledImages], loop: Loop, reporter: Reporter
) -> None:
    """Do the steps of some devices in one loop, until it is ended.

    Those whose neighbours are not among them hear themselves in their place: the same work.
    """
    os.sched_setaffinity(0, loop.cpus)
    torch.set_num_threads(loop.threads)
    keep_freed_memory()
    core = CorePool(loop.turns, len(loop.cpus)).core if loop.turns else nullcontext
    scenario, data = plan.scenario, plan.data
    model, schedule = make_flat_model(scenario, data, plan.compute), plan.schedule
    algorithm = make_algorithm(scenario, model.layout, schedule)
    optimizer, gamma = make_optimizer(scenario), make_learning_rates(scenario).at(0)
    states = {device: algorithm.init(model.parameters.clone(), {}) for device in loop.devices}
    memories = {device: optimizer.init(state.x) for device, state in states.items()}
    batches = {
        device: BatchStream(shards[device], 32, "crop_flip", data.mean, data.std, 1, device)
        for device in loop.devices
    }
    steps = 0
    for round_index in count():
        inboxes: dict[int, list[Share]] = {device: [] for device in states}
        for device, state in states.items():
            with core():
                model.use_(state.debiased(), model.buffers)
                _, gradient = model.loss_and_gradient(*batches[device].batch(round_index))
                optimizer.step_(memories[device], state.x, gradient, gamma)
                edges = [OutEdge(*edge) for edge in schedule.out_edges(device, round_index)]
                rng = stream(1, StreamPurpose.COMPRESS, device, round_index)
                shares = algorithm.send_(state, edges, rng)
            for share, own in zip(shares, schedule.in_neighbors(device, round_index), strict=True):
                sender, receiver = (device, share.peer) if share.peer in states else (own, device)
                arrived = Share(sender, share.weight, share.push_weight, share.payload)
                inboxes[receiver].append(arrived)
            steps += 1
            reporter.report_at_times(steps)
        for device, state in states.items():
            with core():
                algorithm.absorb_(state, inboxes[device])


def step_alone(model: str, precision: str, cpu: int, reporter: Reporter) -> None:
    """Do one step of a model again and again, on one core, until it is ended."""
    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    keep_freed_memory()
    is_fp32 = precision == "fp32"
    layers = full_precision("evonorm_s0") if is_fp32 else eight_bit("int8_cpu")[0]
    step = make_step(model, layers)
    for steps in count(1):
        step()
        reporter.report_at_times(steps)
