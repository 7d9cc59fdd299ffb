"""Builds a host from a fleet's plan."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from edgesim.assembly.build import make_flat_model
from edgesim.assembly.parts.own_errors import own_code
from edgesim.costs.metered_model import MeteredModel
from edgesim.data.arrays import Shard
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.host.host import Host
from edgesim.fleet.host.recorder import EvaluationSchedule
from edgesim.fleet.host.turns import Core
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.recovery.checkpoints import Checkpoints, CheckpointSettings
from edgesim.fleet.transport.network import Network
from edgesim.results.run_directory import RunDirectory
from edgesim.storage.space import WaitForSpace


@own_code("while devices are made")
def build_host(
    plan: FleetPlan,
    shards: Mapping[int, Shard],
    network: Network | None,
    *,
    num_threads: int,
    recover: bool = False,
    core: Core = nullcontext,
    at_once: bool = False,
) -> Host:
    """Host for some of a fleet's devices.

    Args:
        plan: of the whole fleet.
        shards: of the devices to host, by device.
        network: carries envelopes to the hosts of their receivers; None if there is one host.
        num_threads: devices that compute at the same time.
        recover: restore devices from checkpoints if there are any.
        core: context manager around each turn, which holds a core.
        at_once: bring messages between devices of the host to them without the network; as it is
            without a network.
    """
    space = WaitForSpace()
    directory = RunDirectory(plan.run_directory, plan.holder).patient(space)
    recovery = plan.scenario.recovery
    settings = CheckpointSettings(
        plan.run_digest,
        recovery.checkpoint_every_s,
        recovery.checkpoint_every_rounds,
        plan.training.evaluation_rounds,
    )
    checkpoints = Checkpoints(directory, settings, len(shards), space)
    models = [
        make_flat_model(plan.scenario, plan.data, plan.compute, plan.start)
        for _ in range(num_threads)
    ]
    return Host(
        make_devices(plan, shards, models[0]),
        [MeteredModel(model) for model in models],
        network=network,
        archive=directory,
        num_rounds=plan.training.num_rounds,
        evaluation_schedule=EvaluationSchedule(
            plan.training.evaluation_rounds,
            plan.training.evaluation_interval_s,
            plan.scenario.evaluation.gossip_states,
        ),
        checkpoints=checkpoints,
        recover=recover,
        presumed_dead_after_s=plan.scenario.fleet.timeout_s,
        core=core,
        space=space,
        at_once=at_once or network is None,
    )
