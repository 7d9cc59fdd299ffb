"""The scenario of a file, also of the `scenario.yaml` of a run, which repeats the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgesim.results.own_sources import source_reader
from edgesim.results.run_files import ABOUT, RunFiles
from edgesim.scenario import files
from edgesim.scenario.schema import Scenario
from edgesim.scenario.shipped import scenario_file
from edgesim.scenario.strict_yaml import OVERRIDE
from edgesim.storage.store import Store

_OF_RUN = "scenario.yaml"


def load_scenario(
    given: Path | str, overrides: Sequence[str] = (), *, origin: str = OVERRIDE
) -> Scenario:
    """As `edgesim.scenario.load_scenario`, but a run's own code is that which the run kept.

    Raises:
        ScenarioError: see there.
    """
    path = scenario_file(given)
    is_of_run = path.name == _OF_RUN and (path.parent / ABOUT).is_file()
    read_source = None
    if is_of_run:
        read_source = source_reader(RunFiles(Store.at(path.parent)), unchanged=False)
    return files.load_scenario(path, overrides, read_source, origin=origin)
