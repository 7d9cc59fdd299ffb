"""Checks that a scenario's graph, pace and compressor are those that its algorithm is right for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgesim.assembly.equipment import has_batteries
from edgesim.assembly.optimization import make_optimizer
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Algorithm, Exchanges, Form
from edgesim.gossip.optional_members import (
    carries_steps,
    exchanges_of_average,
    graph_problem,
    message_layouts,
    mixes_first,
    needed_exchanges,
    needs_exact_messages,
)
from edgesim.scenario.schema import Scenario
from topologies import Schedule, first_exchange


def check_limits(
    scenario: Scenario,
    named: Form,
    algorithm: Algorithm[Any],
    schedule: Schedule,
    exchanges: Exchanges,
) -> None:
    """Refuse what an algorithm is not made for.

    Args:
        scenario: of the fleet.
        named: class that the scenario names.
        algorithm: made of it.
        schedule: graphs of the fleet.
        exchanges: properties of its exchanges.

    Raises:
        ScenarioError: the algorithm would be wrong here; says for which key, and the remedy.
    """
    name, needed = f"gossip.algorithm: {scenario.gossip.algorithm}", needed_exchanges(named)
    if needed != "any" and not exchanges.are_fixed:
        raise ScenarioError(_why_not_fixed(scenario, name))
    if needed == "balanced" and not exchanges.are_balanced:
        raise ScenarioError(
            f"topology.kind is {scenario.topology.kind}, with weights that are not doubly "
            f"stochastic; {name} needs such weights: set topology.weights: metropolis, or choose a "
            "graph whose devices have equally many neighbours"
        )
    if mixes_first(named) and _gossips_ranges(scenario):
        raise ScenarioError(
            f"model.quantization.ranges is gossiped; {name} mixes models before the step, so that "
            "running ranges can grow without bound: set model.quantization.ranges: local"
        )
    if needs_exact_messages(named):
        form = algorithm.compressor.form(message_layouts(algorithm)[0])
        if not form.is_exact:
            key, is_now, wanted = "kind", algorithm.compressor.name, "identity"
            if is_now == "identity":
                key, is_now, wanted = "values", form.code.label, "fp32"
            raise ScenarioError(
                f"gossip.compressor.{key} is {is_now}; {name} sends whole vectors in fp32, since "
                f"rounding errors would add up: set gossip.compressor.{key} to {wanted}"
            )
    if exchanges.are_fixed:
        graph = schedule.graph(first_exchange(schedule))
        if problem := graph_problem(algorithm, graph):
            raise ScenarioError(f"topology.kind is {scenario.topology.kind}; {name}: {problem}")


def num_exchanges(scenario: Scenario, named: Form) -> int:
    """Exchanges without a step between them that an average takes.

    Args:
        scenario: of the fleet.
        named: class that the scenario names.
    """
    sites = getattr(scenario.gossip, "sites", None)
    options = {} if sites is None else {"sites": sites}
    return exchanges_of_average(named, scenario.fleet.num_devices, **options)


def check_pairs(scenario: Scenario, sites: Sequence[int] | None) -> None:
    """Refuse to pair an odd number of devices, or of leaders.

    Args:
        scenario: of the fleet.
        sites: number of the site of each device; None without sites.

    Raises:
        ScenarioError: they are odd.
    """
    if getattr(scenario.gossip, "peers", "") != "shift_one":
        return
    what, count = "devices", scenario.fleet.num_devices
    if sites is not None:
        what, count = "sites", len(set(sites))
    if count % 2:
        raise ScenarioError(
            f"gossip.peers is shift_one, which pairs {what}; there are {count}, must be even: "
            "set all"
        )


def check_in_step(scenario: Scenario, named: Form) -> None:
    """Refuse paces, churn, batteries and optimizers that can't do with rounds without a step.

    Args:
        scenario: of the fleet.
        named: class that the scenario names.

    Raises:
        ScenarioError: says for which key, and the remedy.
    """
    name = f"gossip.algorithm: {scenario.gossip.algorithm}"
    fleet = scenario.fleet
    if not fleet.rules.waits_for_all or fleet.churn is not None or has_batteries(scenario):
        raise ScenarioError(_why_not_fixed(scenario, name))
    if num_exchanges(scenario, named) > 1 and make_optimizer(scenario).kept_in_gossip:
        optimizer = scenario.training.optimizer
        key, remedy = f"kind is {optimizer.kind}", "choose one without, such as adam"
        if optimizer.kind == "sgd":
            key, remedy = "momentum_kind is quasi_global", "set local"
        raise ScenarioError(
            f"training.optimizer.{key}, which follows how gossip moves the model; {name} averages "
            f"in several rounds, in which it would take sums for models: {remedy}"
        )


def check_further_gossip(scenario: Scenario, named: Form) -> None:
    """Refuse further gossip before evaluations where it would do more, or less, than mix models.

    Args:
        scenario: of the fleet.
        named: class that the scenario names.

    Raises:
        ScenarioError: the algorithm goes on with earlier steps or averages in several rounds, or
            devices may leave.
    """
    if not (rounds := scenario.evaluation.gossip_rounds):
        return
    where, name = f"evaluation.gossip_rounds is {rounds}; must be 0", scenario.gossip.algorithm
    if carries_steps(named):
        raise ScenarioError(
            f"{where} for gossip.algorithm: {name}, which goes on with earlier steps in rounds "
            "without steps"
        )
    if num_exchanges(scenario, named) > 1:
        raise ScenarioError(
            f"{where} for gossip.algorithm: {name}, whose averages take several rounds and leave "
            "devices with equal models"
        )
    if has_batteries(scenario):
        raise ScenarioError(
            f"{where} where devices have batteries: one that is empty has left, and further rounds "
            "need the whole fleet"
        )


def _gossips_ranges(scenario: Scenario) -> bool:
    """Whether running ranges of activations travel with the parameters."""
    settings = scenario.model.quantization
    return settings is not None and settings.ranges == "gossiped"


def _why_not_fixed(scenario: Scenario, name: str) -> str:
    """The key because of which exchanges differ, and the remedy."""
    fleet = scenario.fleet
    if not fleet.rules.waits_for_all:
        return (
            f"fleet.pace is {fleet.pace}; {name} needs every message in its round: set lockstep, "
            "or choose choco or gradient_push"
        )
    if fleet.churn is not None:
        return f"fleet.churn is set; {name} needs the same devices in every exchange: remove it"
    if has_batteries(scenario):
        return (
            f"a device has a battery and leaves when it is empty; {name} needs the same devices in "
            "every exchange: set battery_wh: plugged_in"
        )
    return (
        f"topology.kind is {scenario.topology.kind}, whose graph changes; {name} needs the same "
        "graph in every exchange: choose a fixed one"
    )
