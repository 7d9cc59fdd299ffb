"""Builds the devices of one host: each is a participant and its pace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from edgesim.assembly.build import streams_of
from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.gossip import make_algorithm
from edgesim.assembly.optimization import make_learning_rates, make_optimizer, use_of_rate
from edgesim.assembly.parts.own_data import batch_transform
from edgesim.data.arrays import Shard
from edgesim.data.batches import BatchStream, normalised_bytes
from edgesim.device.device import Device
from edgesim.device.participant import Participant
from edgesim.device.trainer import Trainer
from edgesim.fleet.host.paces import PACES
from edgesim.fleet.plan import FleetPlan
from edgesim.hardware.meter import Meter
from edgesim.learning.flat_model import FlatModel
from topologies import steps_before

KEPT_INPUTS_BYTES = 64 * 2**20
"""Most memory of a host that normalised images may take; if all take more, none are kept."""


def make_devices(plan: FleetPlan, shards: Mapping[int, Shard], initial: FlatModel) -> list[Device]:
    """The devices of one host, with their shards.

    Args:
        plan: of the whole fleet.
        shards: by device.
        initial: the initial model, as `make_flat_model` gives it; its vectors are copied.
    """
    scenario, schedule = plan.scenario, plan.schedule
    hardware = device_hardware(scenario, schedule)
    algorithm = make_algorithm(scenario, initial.layout, schedule)
    make_device = PACES[scenario.fleet.pace].make_device
    keep_inputs = sum(map(normalised_bytes, shards.values())) <= KEPT_INPUTS_BYTES

    use = use_of_rate(algorithm, make_optimizer(scenario))

    def device_of(index: int, shard: Shard) -> Device:
        def participant_of(meter: Meter[Any] | None) -> Participant:
            return Participant(
                index=index,
                seed=scenario.seed,
                schedule=schedule,
                algorithm=algorithm,
                trainer=_make_trainer(plan, shard, initial, index, use, keep_inputs=keep_inputs),
                num_rounds=plan.training.num_rounds,
                x=initial.parameters.cpu().clone(),
                meter=meter,
                streams_of=streams_of(scenario, index),
            )

        return make_device(scenario, hardware, index, participant_of)

    return [device_of(index, shard) for index, shard in shards.items()]


def _make_trainer(
    plan: FleetPlan,
    shard: Shard,
    initial: FlatModel,
    device: int,
    use: str,
    *,
    keep_inputs: bool,
) -> Trainer:
    scenario = plan.scenario
    streams = streams_of(scenario, device)
    return Trainer(
        device=streams,
        label=scenario.fleet.label(device),
        seed=scenario.seed,
        batches=BatchStream(
            shard,
            scenario.data.batch_size,
            scenario.data.augment,
            plan.data.mean,
            plan.data.std,
            scenario.seed,
            streams,
            batch_transform(scenario.data),
            keep_inputs=keep_inputs,
        ),
        optimizer=make_optimizer(scenario),
        learning_rates=make_learning_rates(scenario),
        rounds_per_epoch=plan.training.rounds_per_epoch,
        x=initial.parameters.cpu(),
        num_trainable=initial.num_trainable,
        buffers=initial.buffers.cpu().clone(),
        step_of=partial(steps_before, plan.schedule),
        steps_on_model=scenario.steps_on_model,
        use_of_rate=use,
    )
