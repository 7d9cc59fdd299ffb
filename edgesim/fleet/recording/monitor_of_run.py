"""The monitor of a run, made from its scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from edgesim.assembly.build import Compute, make_flat_model, make_task
from edgesim.assembly.equipment import device_profiles
from edgesim.assembly.gossip import make_algorithm
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.data.batches import passes_over
from edgesim.fleet.recording.divergence import divergence_warning
from edgesim.fleet.recording.evaluation import Evaluator
from edgesim.fleet.recording.fleet_state import FleetFacts, Sink
from edgesim.fleet.recording.further_gossip import FurtherGossip
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.recording.view import View
from edgesim.learning.accelerator import num_local_gpus
from edgesim.results.run_directory import RunDirectory


def make_monitor(
    prepared: PreparedRun,
    directory: RunDirectory,
    compute: Compute,
    num_threads: int,
    *,
    view: View,
    sinks: Iterable[Sink] = (),
    tell_full: Callable[[str | None], None] = lambda _: None,
) -> Monitor:
    """Monitor that evaluates on what the fleet computes with, as far as it is on this machine.

    `Monitor` has the other arguments.
    """
    evaluation, test, data = prepared.scenario.evaluation, prepared.test_samples(), prepared.data
    if not num_local_gpus():
        compute = replace(compute, accelerator="cpu")
    evaluator = Evaluator(
        [
            make_flat_model(prepared.scenario, data, compute, prepared.start)
            for _ in range(num_threads)
        ],
        lambda: passes_over(test, evaluation.batch_size, data.mean, data.std),
        prepared.training.rounds_per_epoch,
        prepared.scenario.seed,
        None if evaluation.device_sample == "all" else evaluation.device_sample,
        {
            device: partial(passes_over, samples, evaluation.batch_size, data.mean, data.std)
            for device, samples in prepared.own_test_samples().items()
        },
        _further_gossip(prepared),
    )
    return Monitor(
        directory,
        evaluator,
        facts=fleet_facts(prepared),
        evaluation_rounds=prepared.training.evaluation_rounds,
        device_models=evaluation.device_models,
        num_test_samples=len(test),
        noun=prepared.dataset.noun,
        view=view,
        sinks=sinks,
        warn=lambda rows: divergence_warning(rows, prepared),
        tell_full=tell_full,
    )


def _further_gossip(prepared: PreparedRun) -> FurtherGossip | None:
    """The rounds of gossip that come before an evaluation of devices' models, if there are any."""
    scenario, rounds = prepared.scenario, prepared.scenario.evaluation.gossip_rounds
    if not rounds:
        return None
    algorithm = make_algorithm(scenario, prepared.layout, prepared.schedule)
    return FurtherGossip(algorithm, prepared.schedule, scenario.seed, rounds)


def fleet_facts(prepared: PreparedRun) -> FleetFacts:
    """What is known of a fleet before it runs."""
    scenario = prepared.scenario
    capacities_j = [profile.battery_j for profile in device_profiles(scenario)]
    title = (
        f"{scenario.name} (seed {scenario.seed}): {scenario.fleet.num_devices} devices, "
        f"{scenario.topology.kind}, {scenario.gossip.algorithm}, {scenario.model.name}"
    )
    return FleetFacts(
        title=title,
        num_devices=scenario.fleet.num_devices,
        num_rounds=prepared.training.num_rounds,
        horizon_s=scenario.training.virtual_time_s,
        names=scenario.fleet.names,
        capacities_j=capacities_j if any(c is not None for c in capacities_j) else (),
        measures=make_task(scenario).metrics,
        gossip_rounds=scenario.evaluation.gossip_rounds,
    )
