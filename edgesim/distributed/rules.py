"""What the processes of a group agree on: a scenario's graphs, algorithm and random streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from edgesim.api.scenarios import ScenarioLike, read_scenario
from edgesim.assembly.build import name_devices
from edgesim.assembly.equipment import has_batteries
from edgesim.assembly.gossip import is_of_nodes, make_algorithm
from edgesim.assembly.optimization import make_optimizer
from edgesim.assembly.prepared_run import paths_in
from edgesim.assembly.rate_search.search import needs_search
from edgesim.distributed.agreement import digest_of
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.optional_members import message_layouts
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario.own_parts import own_parts
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import Section
from topologies import Schedule

# Of a mapping without them. No result depends on them: data, model and training are the caller's.
_PLACEHOLDERS: Mapping[str, object] = {
    "name": "outside",
    "data": {"source": "digits", "partition": {"kind": "iid"}, "batch_size": 1},
    "model": {"name": "small_cnn"},
    "training": {"epochs": 1, "optimizer": {"lr": 1.0}},
}


@dataclass(frozen=True)
class Rules:
    """What is the same in all processes.

    Attributes:
        scenario: whose sections topology and gossip hold.
        schedule: which graph holds in which round.
        algorithm: of gossip.
    """

    scenario: Scenario
    schedule: Schedule
    algorithm: Algorithm[Any]

    @property
    def steps_on_model(self) -> bool:
        """Whether a step of the optimizer moves z = x/u, and not x."""
        return self.scenario.training.optimizer.step_on == "model"

    @property
    def message_layouts(self) -> dict[int, ParameterLayout]:
        """Layouts of the vectors in messages, by their digests."""
        return {layout.digest: layout for layout in message_layouts(self.algorithm)}

    def digests(self) -> dict[str, bytes]:
        """Digests of what the processes must agree on, by key; folders of files may differ."""
        scenario, training = self.scenario, self.scenario.training
        files = [path.read_bytes() for path in paths_in(scenario.topology.model_dump())]
        graphs = scenario.fleet.num_devices, *_contents(scenario.topology), *files
        return {
            "topology": digest_of(*graphs),
            "gossip": digest_of(*_contents(scenario.gossip)),
            "seed": digest_of(scenario.seed),
            # The precision of values, unless the compressor names another.
            "model.precision": digest_of(scenario.model.precision),
            "training.device_seeds": digest_of(training.device_seeds),
            "training.optimizer.step_on": digest_of(self.steps_on_model),
        }

    def digest(self) -> bytes:
        """Digest of all that the processes must agree on, and of the layout."""
        return digest_of(self.digests(), self.algorithm.layout)


def read_rules(
    given: ScenarioLike,
    overrides: Mapping[str, object],
    layout: ParameterLayout,
    num_processes: int,
) -> Rules:
    """Rules of a scenario, for a group of processes that train a model of this layout.

    Args:
        given: as `edgesim.run` takes it; a mapping needs `topology` and `gossip` alone.
        overrides: as `edgesim.run` takes them.
        layout: of the model.
        num_processes: of the group.

    Raises:
        ScenarioError: the scenario can't be used, or not by processes.
    """
    if not isinstance(given, str | PathLike | Mapping | Scenario):
        raise ScenarioError(
            f"the scenario is {given!r}; must be a file, the name of a shipped scenario, or a "
            "mapping with topology and gossip"
        )
    if isinstance(given, Mapping):
        given = _completed(given, {**_PLACEHOLDERS, "fleet": {"devices": num_processes}})
    scenario = read_scenario(given, overrides, ("group", "num_samples"))
    _check(scenario, num_processes)
    scenario, schedule = name_devices(scenario)
    return Rules(scenario, schedule, make_algorithm(scenario, layout, schedule))


def _check(scenario: Scenario, num_processes: int) -> None:
    """Refuse what processes that train in lockstep can't do.

    Raises:
        ScenarioError: says for which key, and the remedy.
    """
    fleet = scenario.fleet
    if fleet.num_devices != num_processes:
        raise ScenarioError(
            f"fleet.devices is {fleet.num_devices}, but the group has {num_processes} processes; "
            f"start {fleet.num_devices}, or override it: fleet__devices={num_processes}"
        )
    if not fleet.rules.waits_for_all:
        raise ScenarioError(
            f"fleet.pace is {fleet.pace}; processes exchange messages in lockstep: set lockstep"
        )
    if fleet.churn is not None:
        raise ScenarioError(
            "fleet.churn is set; every process takes part in every round: remove it"
        )
    if has_batteries(scenario):
        raise ScenarioError(
            "a device has a battery and leaves when it is empty, which a process can't; set "
            "battery_wh: plugged_in"
        )
    if is_of_nodes(scenario):
        raise ScenarioError(
            "gossip.sites is nodes, which a run on a Ray cluster finds; give the number of "
            "machines, or the machine of each process"
        )
    if needs_search(scenario):
        raise ScenarioError(
            "gossip.averaging_rate is auto, which is found for the scenario's own data and model; "
            "give a number, such as the one that `edgesim validate` prints"
        )
    if (participation := getattr(scenario.gossip, "participation", 1.0)) < 1:
        raise ScenarioError(
            f"gossip.participation is {participation:g}; every process has a model and "
            "takes every step: set 1"
        )
    if make_optimizer(scenario).kept_in_gossip:
        raise ScenarioError(
            "training.optimizer follows how gossip moves the model, which no optimizer of torch "
            "does; choose a kind without, such as sgd with momentum_kind: local"
        )


def _completed(given: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """A mapping with the keys that it lacks, also in the mappings within."""
    if "rounds" in given:  # which stands in place of epochs
        defaults = {key: value for key, value in defaults.items() if key != "epochs"}
    merged = {**defaults, **given}
    for key, inner in defaults.items():
        if isinstance(inner, Mapping) and isinstance(own := merged[key], Mapping):
            merged[key] = _completed(own, inner)
    return merged


def _contents(section: Section) -> Iterator[object]:
    """What a section says, and the digests of own parts in it."""
    yield json.dumps(_without_folders(section.model_dump(mode="json")))
    for key, part in own_parts(section):
        yield key, part.digest


def _without_folders(value: object) -> object:
    """A JSON value in which paths are the names of their files."""
    match value:
        case str():
            return value.rpartition("/")[2]
        case dict():
            return {key: _without_folders(inner) for key, inner in value.items()}
        case list():
            return [_without_folders(inner) for inner in value]
    return value
