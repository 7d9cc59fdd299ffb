"""Own topologies: graphs that the function of a file or package returns."""

from __future__ import annotations

from typing import Any

from edgesim.assembly.parts.options import parameters_of
from edgesim.assembly.parts.own_parts import load_part, make_part
from edgesim.errors import ScenarioError
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import OtherTopology
from edgesim.streams import StreamPurpose, stream
from topologies import Schedule, TopologyError, given_schedule, have_same_graphs

_KEY = "topology.kind"


def own_schedule(scenario: Scenario, section: OtherTopology) -> Schedule:
    """The schedule of a scenario's own topology.

    The function is called with its options, and with those of these arguments that it names:

        num_devices: of the fleet.
        device_names: by number; empty if devices have only numbers.
        rng: a generator of the scenario's seed.
        seed: of the scenario.

    Raises:
        ScenarioError: the function fails, or returns no graphs for these devices.
    """
    fleet, part = scenario.fleet, section.kind
    given: dict[str, object] = {
        "num_devices": fleet.num_devices,
        "device_names": fleet.listed_names,
        "rng": stream(scenario.seed, StreamPurpose.TOPOLOGY),
        "seed": scenario.seed,
    }
    asked = parameters_of(load_part(part, _KEY))
    arguments: dict[str, Any] = {name: value for name, value in given.items() if name in asked}
    made = make_part(part, _KEY, section.model_dump()["options"], offered=given, **arguments)
    try:
        return given_schedule(
            made,
            fleet.num_devices,
            fleet.listed_names,
            weights=section.weights,
            hold=section.hold,
        )
    except TopologyError as error:
        raise ScenarioError(f"{_KEY}: {part} returns what can't be used: {error}") from error


def rehearse_topology(scenario: Scenario, section: OtherTopology) -> None:
    """Make the graphs twice: each process of a fleet makes them for itself.

    Raises:
        ScenarioError: they differ.
    """
    one, other = (own_schedule(scenario, section) for _ in range(2))
    if not have_same_graphs(one, other):
        raise ScenarioError(
            f"{_KEY}: {section.kind} gives two different graphs for the same seed; draw from the "
            "rng that you are given alone"
        )
