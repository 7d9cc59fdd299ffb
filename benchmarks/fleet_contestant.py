"""A fleet as a contestant of a benchmark (`time_slices.py`): actors on a Ray of their own."""

from __future__ import annotations

import asyncio

from rich.console import Console
from time_slices import Reporter

from edgesim.data.images import LabelledImages
from edgesim.fleet.on_ray import launch
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recording.monitor import pause_s
from edgesim.results.run_directory import RunDirectory

MEASURED = 0.8  # of a fleet's rounds: then its first devices may be done


def fleet_of_actors(plan: FleetPlan, shards: list[LabelledImages], reporter: Reporter) -> None:
    """Run a fleet, and write down its rounds; a step is one round of one device."""
    directory = RunDirectory.create(plan.run_directory, plan.run_digest)

    async def conduct(fleet: launch.RayFleet) -> None:
        running, goes_on = asyncio.create_task(fleet.run()), True
        while goes_on and not running.done():
            parts = await fleet.progress()
            reporter.report(sum(part.rounds_done for part in parts))
            goes_on = await asyncio.to_thread(reporter.wait_to_be_asked, pause_s(len(parts)))
        if goes_on:
            await running
            directory.merge_rounds()

    with launch.ray_session(None, dashboard=False, console=Console(stderr=True)):
        fleet = launch.RayFleet(plan, shards)
        try:
            asyncio.run(conduct(fleet))
        finally:
            fleet.close()
