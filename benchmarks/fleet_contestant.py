"""Fleets as contestants of a benchmark (`time_slices.py`): on a Ray of their own, or inline."""

from __future__ import annotations

import asyncio
import os

import torch
from rich.console import Console
from time_slices import Reporter

from edgesim.data.images import LabelledImages
from edgesim.fleet.conduct import Fleet
from edgesim.fleet.inline import InlineFleet
from edgesim.fleet.on_ray import launch
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recording.monitor import pause_s
from edgesim.learning.allocator import keep_freed_memory
from edgesim.results.run_directory import RunDirectory

MEASURED = 0.8  # of a fleet's rounds: then its first devices may be done


def fleet_of_actors(plan: FleetPlan, shards: list[LabelledImages], reporter: Reporter) -> None:
    """Run a fleet, and write down its rounds; a step is one round of one device."""
    directory = RunDirectory.create(plan.run_directory, plan.run_digest)
    with launch.ray_session(None, dashboard=False, console=Console(stderr=True)):
        _conduct(launch.RayFleet(plan, shards), directory, reporter)


def inline_fleet(plan: FleetPlan, shards: list[LabelledImages], reporter: Reporter) -> None:
    """The same in this process alone, with a thread for each core."""
    torch.set_num_threads(1)
    keep_freed_memory()
    directory = RunDirectory.create(plan.run_directory, plan.run_digest)
    fleet = InlineFleet(plan, shards, len(os.sched_getaffinity(0)))
    _conduct(fleet, directory, reporter)


def _conduct(fleet: Fleet, directory: RunDirectory, reporter: Reporter) -> None:
    async def conduct() -> None:
        running, goes_on = asyncio.create_task(fleet.run()), True
        while goes_on and not running.done():
            parts = await fleet.progress()
            reporter.report(sum(part.rounds_done for part in parts))
            goes_on = await asyncio.to_thread(reporter.wait_to_be_asked, pause_s(len(parts)))
        if goes_on:
            await running
            directory.merge_rounds()

    try:
        asyncio.run(conduct())
    finally:
        fleet.close()
