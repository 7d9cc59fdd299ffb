"""The scenario of a run, from its directory: checked again, or what can be told without that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.results.run_files import RunFiles

if TYPE_CHECKING:
    from edgesim.scenario.schema import Scenario

_NAME = "scenario.yaml"


def scenario_of_run(files: RunFiles) -> Scenario:
    """The scenario as it was run, with every default, and with its own code as it was.

    Raises:
        RunDirectoryError: the run directory lacks the file, or it is damaged.
        ScenarioError: this edgesim can't read it, or a package that it names is not installed.
    """
    from edgesim.results.own_sources import source_reader
    from edgesim.scenario.files import parse_scenario

    read_source = source_reader(files, unchanged=False)
    where = f"{files.place}/{_NAME}"
    return parse_scenario(files.read_text(_NAME), where, Path(), read_source=read_source)


def num_devices_of(settings: Mapping[str, Any]) -> int | None:
    """Devices of a scenario as plain values; None if it does not say."""
    devices: int | list[dict[str, Any]] | None = settings.get("fleet", {}).get("devices")
    if devices is None or isinstance(devices, int):
        return devices
    return sum(int(group.get("count", 1)) for group in devices)
