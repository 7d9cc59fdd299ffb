"""Scenario files: their schema, strict reading, overrides, and writing them back."""

from edgesim.errors import ScenarioError
from edgesim.scenario.files import dump_scenario, load_scenario
from edgesim.scenario.schema import Scenario

__all__ = ["Scenario", "ScenarioError", "dump_scenario", "load_scenario"]
