"""Gossip of a fleet: its algorithm and compressor, made from the names in a scenario."""

from __future__ import annotations

from collections.abc import Callable, Collection
from inspect import Parameter
from typing import Any, Literal

from edgesim.assembly.equipment import has_batteries, may_leave
from edgesim.assembly.gossip_limits import check_in_step, check_limits, check_pairs, num_exchanges
from edgesim.assembly.parts.checked_compressor import checked
from edgesim.assembly.parts.options import parameters_of
from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.parts.own_parts import load_part, make_part, needs, part_and_options
from edgesim.compression.compressors import Compressor
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Algorithm, Exchanges
from edgesim.gossip.optional_members import disagreement, form_for, needs_one_graph, own_schedule
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario.catalog import ALGORITHMS, COMPRESSORS
from edgesim.scenario.gossip import OtherGossip
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import REGULAR_KINDS, SYMMETRIC_KINDS, Cycle, OtherTopology
from topologies import (
    Schedule,
    TopologyError,
    even_sites,
    first_exchange,
    has_symmetric_weights,
    is_balanced,
    members_of,
)

_ALGORITHM = "gossip.algorithm"
_COMPRESSOR = "gossip.compressor.kind"


def make_compressor(scenario: Scenario) -> Compressor:
    """Compressor of the gossip section; values default to the model's precision.

    Raises:
        ScenarioError: it can't be made.
    """
    part, options = part_and_options(scenario.gossip.compressor, "kind", COMPRESSORS)
    if options.get("values") is None:
        values = parameters_of(load_part(part, _COMPRESSOR)).get("values")
        if values is not None and values.default is Parameter.empty:
            options["values"] = scenario.model.precision
    made: Compressor = make_part(part, _COMPRESSOR, options, needs(Compressor))
    return checked(made) if is_own(scenario.gossip.compressor.kind) else made


def make_algorithm(
    scenario: Scenario, layout: ParameterLayout, schedule: Schedule
) -> Algorithm[Any]:
    """Gossip algorithm of a fleet, in the form that fits its exchanges.

    Raises:
        ScenarioError: it can't be made.
    """
    given: dict[str, Any] = {"compressor": make_compressor(scenario), "layout": layout}
    if (rate := averaging_rate(scenario)) is not None:
        given["averaging_rate"] = rate
    names = parameters_of(algorithm_named(scenario))
    if "num_devices" in names:
        given["num_devices"] = schedule.num_devices
    if not isinstance(scenario.gossip, OtherGossip):
        given = keys_of_gossip(scenario, names) | given
    _check_rate(scenario, rate)
    part, options = part_and_options(
        scenario.gossip, "algorithm", ALGORITHMS, type(scenario.gossip).model_fields
    )
    exchanges = exchanges_of(scenario, schedule)
    made: Algorithm[Any] = make_part(
        part,
        _ALGORITHM,
        options,
        needs(Algorithm),
        lambda named: form_for(named, exchanges),
        **given,
    )
    check_limits(scenario, algorithm_named(scenario), made, schedule, exchanges)
    return made


def keys_of_gossip(scenario: Scenario, names: Collection[str]) -> dict[str, Any]:
    """Those keys of the section `gossip` that have these names; `sites` as that of each device.

    Raises:
        ScenarioError: the devices can't be divided among the sites.
    """
    section = scenario.gossip
    keys = {name: getattr(section, name) for name in type(section).model_fields if name in names}
    return keys | {"sites": sites_of(scenario)} if "sites" in keys else keys


def sites_of(scenario: Scenario) -> tuple[int, ...] | None:
    """Number of the site of each device; None without sites.

    Sites that are nodes are found when the run begins (fleet/sites_of_nodes.py). Until then two
    halves of the fleet stand for them.

    Raises:
        ScenarioError: the devices can't be divided among the sites.
    """
    sites, num_devices = getattr(scenario.gossip, "sites", None), scenario.fleet.num_devices
    if is_of_nodes(scenario):
        return tuple(int(2 * device >= num_devices) for device in range(num_devices))
    try:
        if isinstance(sites, int):
            sites = even_sites(num_devices, sites)
        members_of(sites, num_devices)
    except TopologyError as error:
        raise ScenarioError(f"gossip.sites: {error}") from error
    return sites


def is_of_nodes(scenario: Scenario) -> bool:
    """Whether its sites are the nodes of a cluster, which are not known yet."""
    return getattr(scenario.gossip, "sites", None) == "nodes"


def schedule_of_algorithm(scenario: Scenario, links: Schedule, seed: int) -> Schedule | None:
    """The schedule of an algorithm that chooses who sends in which exchange; None for others.

    Args:
        scenario: of the fleet.
        links: the scenario's graph.
        seed: of random choices.

    Raises:
        ScenarioError: the pace, churn, batteries, optimizer or sites don't fit.
        TopologyError: the links don't fit.
    """
    named = algorithm_named(scenario)
    if (make := own_schedule(named)) is None:
        return None
    check_in_step(scenario, named)
    names = parameters_of(make)
    given = {"seed": seed, "participation": 1.0} | keys_of_gossip(scenario, names)
    check_pairs(scenario, given.get("sites"))
    return make(links, **{name: value for name, value in given.items() if name in names})


def _check_rate(scenario: Scenario, rate: float | Literal["auto"] | None) -> None:
    """Refuse an averaging rate of an algorithm that has none, and an algorithm without its rate."""
    name = scenario.gossip.algorithm
    has_rate = parameters_of(algorithm_named(scenario)).get("averaging_rate")
    if rate is None and has_rate is not None and has_rate.default is Parameter.empty:
        raise ScenarioError(
            f"gossip.averaging_rate is missing; {name} needs it: a number in (0, 1], or auto"
        )
    if rate is not None and has_rate is None:
        given = rate if rate == "auto" else f"{rate:g}"
        raise ScenarioError(f"gossip.averaging_rate is {given}; {name} has none: remove it")


def algorithm_named(scenario: Scenario) -> Callable[..., Algorithm[Any]]:
    """The class of a scenario's algorithm, as the scenario names it.

    Raises:
        ScenarioError: it can't be loaded.
    """
    part, _ = part_and_options(scenario.gossip, "algorithm", ALGORITHMS)
    named: Callable[..., Algorithm[Any]] = load_part(part, _ALGORITHM)
    return named


def moves_mass(scenario: Scenario) -> bool:
    """Whether exchanges move shares of x and u and keep their sums, with push weights.

    DCD moves neither, and of an algorithm of one's own it is not known.
    """
    part, _ = part_and_options(scenario.gossip, "algorithm", ALGORITHMS)
    return bool(part.shipped_as) and part.shipped_as != "dcd"


def exchanges_of(scenario: Scenario, schedule: Schedule) -> Exchanges:
    """Properties of the exchanges that follow from the scenario alone.

    Edges are fixed in lockstep, on a fixed graph, without leavers.
    """
    is_in_step = scenario.fleet.rules.waits_for_all and not may_leave(scenario)
    are_fixed = schedule.is_static and is_in_step
    are_balanced = are_fixed and is_balanced(schedule.graph(first_exchange(schedule)))
    return Exchanges(are_fixed=are_fixed, are_balanced=are_balanced)


def where_devices_disagree(
    scenario: Scenario, schedule: Schedule
) -> Literal["", "everywhere", "where push weights move"]:
    """Where lossy compression keeps devices apart at any averaging rate (docs/choco.md).

    Empty if it does not with the scenario's algorithm and graph.
    """
    where = disagreement(algorithm_named(scenario))
    is_here = where == "everywhere" or not exchanges_of(scenario, schedule).are_balanced
    return where if where and is_here else ""


def averaging_rate(scenario: Scenario) -> float | None:
    """Averaging rate of a scenario that was prepared; None if its algorithm has none."""
    rate: float | Literal["auto"] | None = getattr(scenario.gossip, "averaging_rate", None)
    assert rate != "auto", "assembly/rate_search finds a number first"
    return rate


def with_rate(scenario: Scenario, rate: float) -> Scenario:
    """The scenario with this averaging rate, if its algorithm has one."""
    if getattr(scenario.gossip, "averaging_rate", None) is None:
        return scenario
    gossip = scenario.gossip.model_copy(update={"averaging_rate": rate})
    return scenario.model_copy(update={"gossip": gossip})


def with_some_rate(scenario: Scenario) -> Scenario:
    """The scenario with a number in the place of `auto`, where results do not depend on it.

    Raises:
        ScenarioError: the algorithm has no averaging rate.
    """
    if getattr(scenario.gossip, "averaging_rate", None) == "auto":
        _check_rate(scenario, "auto")
        return with_rate(scenario, 0.5)
    return scenario


def cycle_of(scenario: Scenario) -> tuple[int, int]:
    """Steps and rounds of a cycle, after which the models of all devices are whole.

    One each, unless an average takes several exchanges (topologies/several_exchanges.py).
    """
    exchanges = num_exchanges(scenario, algorithm_named(scenario))
    steps = scenario.gossip.local_steps
    return (1, 1) if exchanges <= 1 else (steps, steps + exchanges - 1)


def rounds_of_epoch(scenario: Scenario, steps: int) -> int:
    """Rounds in which a device takes so many steps, or a few more so that cycles are whole."""
    cycle_steps, cycle_rounds = cycle_of(scenario)
    return -(-steps // cycle_steps) * cycle_rounds


def check_one_graph(scenario: Scenario) -> None:
    """Refuse a graph that changes, or weights that differ in direction, where they can't be had.

    Raises:
        ScenarioError: the algorithm needs one graph with symmetric weights.
    """
    fleet, topology, name = scenario.fleet, scenario.topology, scenario.gossip.algorithm
    if not needs_one_graph(algorithm_named(scenario)):
        return
    if fleet.churn is not None:
        raise ScenarioError(
            f"fleet.churn is set; gossip.algorithm: {name} needs the same graph in every exchange"
        )
    if has_batteries(scenario):
        raise ScenarioError(
            f"gossip.algorithm is {name}, which needs the same graph for ever, but a device with a "
            "battery leaves when it is empty; set its battery_wh: plugged_in, or choose choco"
        )
    if isinstance(topology, OtherTopology):  # its graph is not known yet
        return
    kind = topology.kind
    if isinstance(topology, Cycle) or kind not in SYMMETRIC_KINDS:
        raise ScenarioError(
            f"topology.kind is {kind}; gossip.algorithm: {name} needs a fixed graph with the same "
            f"weights both ways: {', '.join(sorted(SYMMETRIC_KINDS))}"
        )
    if kind not in REGULAR_KINDS and topology.weights != "metropolis":
        raise ScenarioError(
            f"topology.weights is {topology.weights}; must be metropolis for gossip.algorithm: "
            f"{name} on topology.kind: {kind}, whose devices may differ in their number of "
            "neighbours"
        )


def check_own_graph(scenario: Scenario, schedule: Schedule) -> None:
    """Refuse graphs of one's own that change, or whose weights differ in direction, likewise.

    Raises:
        ScenarioError: the algorithm needs one graph with symmetric weights.
    """
    if not needs_one_graph(algorithm_named(scenario)):
        return
    problem = "changes" if not schedule.is_static else ""
    if not problem and not has_symmetric_weights(schedule.graph(0)):
        problem = "has other weights in one direction than in the other"
    if problem:
        raise ScenarioError(
            f"topology.kind is {scenario.topology.kind}, whose graph {problem}; gossip.algorithm: "
            f"{scenario.gossip.algorithm} needs a fixed graph with the same weights both ways"
        )
