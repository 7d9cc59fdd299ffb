"""Reads and checks scenarios for commands, and prints their notices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgesim.cli.garbage import uncollected
from edgesim.cli.output import err as _err

if TYPE_CHECKING:
    from edgesim.api.checks import Checked
    from edgesim.scenario.schema import Scenario


def read(path: Path, overrides: Sequence[str], scale: float | None = None) -> Scenario:
    """Read a scenario; what can be seen without torch is refused here."""
    with uncollected():
        from edgesim.results.scenario_file import load_scenario
    scenario = load_scenario(path, overrides)
    if scale is not None:
        from edgesim.scenario.scale import scaled

        scenario = scaled(scenario, scale)
        _err.print(f"{path}: --scale {scale:g}: {scenario.training.said}")
    return scenario


def check(path: Path, scenario: Scenario, *, reads_images: bool) -> Checked:
    """Check a scenario that was read, and print its notices.

    Every error and notice names the scenario's file. Images are read last: a run reads all images
    that it uses before it starts anything.
    """
    with uncollected():
        from edgesim.api import checks  # loads torch
    checked = checks.check(scenario, str(path), reads_images=reads_images)
    for notice in checked.notices:
        _err.print(f"{path}: {notice}")
    return checked
