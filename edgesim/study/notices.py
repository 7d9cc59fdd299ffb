"""What a scenario's user should know before a run: choices that are allowed and easily overlooked.

`edgesim run`, `validate` and `cost` say these lines. None of them changes a result.
"""

from __future__ import annotations

from itertools import islice
from math import inf

from edgesim.costs.message_form import random_message_bytes
from edgesim.costs.round_work import gossip_work, optimizer_work
from edgesim.equipment import device_hardware
from edgesim.records import device_label
from edgesim.scenario.gossip import GradientPushGossip, RandomKCompressor, TopKCompressor
from edgesim.scenario.schema import Scenario
from edgesim.streams import Purpose, stream
from edgesim.study.free_clocks import FreeClocks
from edgesim.study.subject import Subject

_EIGHT_BIT_NORMS = ("range_evonorm", "range_batch")

# Clocks are run for so many rounds of all devices, some tenths of a second to a second. Beyond that
# a device is taken to go on at its pace so far, whose error is that of a mean over jitter.
MOST_ROUNDS = 5000
MOST_DEVICES = 1000  # with more, clocks are not run
SURELY_BEFORE = 0.95  # of the limit, for a device whose end is reckoned from its pace


def notices(subject: Subject, num_rounds: int) -> list[str]:
    """All that is easily overlooked.

    Args:
        subject: the scenario and what its devices compute.
        num_rounds: of each device, at most.
    """
    scenario = subject.scenario
    return [
        *precision_notices(scenario),
        *evaluation_notices(scenario, num_rounds),
        *clock_notices(subject, num_rounds),
    ]


def precision_notices(scenario: Scenario) -> list[str]:
    """What `model.precision: int8` leaves in fp32, and what it makes of messages."""
    model, notices = scenario.model, []
    if model.precision == "int8" and model.norm_used not in _EIGHT_BIT_NORMS:
        notices.append(
            f"model.norm: {model.norm_used} computes in fp32 between the 8-bit layers of "
            "model.precision: int8; with model.norm: null it is range_evonorm, in 8 bits"
        )
    if model.precision == "int8" and _values_follow_the_model(scenario):
        notices.append(
            "messages carry 8-bit values because model.precision is int8; "
            "set gossip.compressor.values to fp32 or fp16 for longer ones"
        )
    return notices


def _values_follow_the_model(scenario: Scenario) -> bool:
    """Whether the format of values in messages is that of the model's arithmetic."""
    gossip = scenario.gossip
    if isinstance(gossip, GradientPushGossip):
        return False
    match gossip.compressor:
        case TopKCompressor(values=None) | RandomKCompressor(values=None):
            return True
    return False


def evaluation_notices(scenario: Scenario, num_rounds: int) -> list[str]:
    """Evaluations that a key asks for and that never come.

    Args:
        scenario: that is to be run.
        num_rounds: of each device, at most.
    """
    section, limit_s = scenario.evaluation, scenario.training.virtual_time_s
    at_the_end = "models are evaluated at the end of training alone"
    if section.every_virtual_s is not None and limit_s is not None:
        if section.every_virtual_s >= limit_s:
            every = f"evaluation.every_virtual_s is {section.every_virtual_s:g}"
            return [f"{every}, and training.virtual_time_s {limit_s:g}: {at_the_end}"]
        return []
    if limit_s is not None:
        is_asked_for = "every_epochs" in section.model_fields_set and section.every_epochs
        if not is_asked_for:
            return []
        beside = "evaluation.every_epochs counts nothing beside training.virtual_time_s"
        return [f"{beside}: {at_the_end}; use every_virtual_s"]
    if section.every_rounds is not None and section.every_rounds >= num_rounds > 1:
        every = f"evaluation.every_rounds is {section.every_rounds:,}"
        return [f"{every}, and a device does {num_rounds:,} rounds: {at_the_end}"]
    return []


def clock_notices(subject: Subject, num_rounds: int) -> list[str]:
    """Devices that end with their last round before the clock ends them, and what follows.

    Args:
        subject: the scenario and what its devices compute.
        num_rounds: of each device, at most.
    """
    scenario = subject.scenario
    limit_s, every_s = scenario.training.virtual_time_s, scenario.evaluation.every_virtual_s
    num_devices = scenario.fleet.num_devices
    if limit_s is None or num_devices > MOST_DEVICES:
        return []
    ends_s = _ends_s(subject, num_rounds, limit_s)
    early = {device: end_s for device, end_s in ends_s.items() if end_s < limit_s}
    if not early:
        return []
    first = min(early, key=lambda device: (early[device], device))
    key = "epochs" if scenario.training.rounds is None else "rounds"
    label = device_label(first, scenario.fleet.names)
    number = f"all {num_devices}" if len(early) == num_devices else f"{len(early)} of {num_devices}"
    who = f"{label} ends" if len(early) == 1 else f"{number} devices end"
    when = f"after about {early[first]:,.4g} s"
    if len(early) > 1:
        last_s = max(early.values())
        when = f"after about {early[first]:,.4g} s ({label}) to {last_s:,.4g} s"
    limit = f"training.virtual_time_s is {limit_s:g}, but {who} with training.{key}"
    remedy = f"raise training.{key}, or lower virtual_time_s"
    notices = [f"{limit}, {num_rounds:,} rounds, {when}: {remedy}"]
    if every_s is not None and len(early) == num_devices:
        last_s = max(early.values())
        notices.append(
            f"evaluations later than {last_s:,.4g} s find all devices where they have ended: "
            f"evaluation.every_virtual_s is {every_s:g}"
        )
    return notices


def _ends_s(subject: Subject, num_rounds: int, limit_s: float) -> dict[int, float]:
    """When each device would end its last round if only rounds ended it; infinity if unknown.

    Exact where the clocks reach the last round. Batteries are taken to be full for ever.
    """
    scenario, schedule = subject.scenario, subject.schedule
    own, numel = subject.algorithm, subject.algorithm.layout.numel
    step = subject.model.step_work.total
    step += optimizer_work(subject.optimizer, subject.model.num_trainable)
    clocks = FreeClocks(
        device_hardware(scenario, schedule),
        schedule,
        step_work=lambda _: step,
        gossip_work=lambda sent, taken: gossip_work(own, numel, sent, taken),
        message_bytes=random_message_bytes(own, stream(scenario.seed, Purpose.COMPRESS)),
        seed=scenario.seed,
    )
    newest: dict[int, tuple[int, float]] = {}
    ends_s: dict[int, float] = {}
    for ended in islice(clocks.run(), MOST_ROUNDS):
        if ended.step_end_s >= limit_s:  # rounds come by the ends of their steps
            break
        newest[ended.device] = ended.rounds_done, ended.step_end_s
        if ended.rounds_done == num_rounds:
            ends_s[ended.device] = ended.step_end_s
    else:
        for device, (rounds, time_s) in newest.items():
            reckoned_s = time_s / rounds * num_rounds
            is_early = reckoned_s < SURELY_BEFORE * limit_s
            ends_s.setdefault(device, reckoned_s if is_early else inf)
    return ends_s
