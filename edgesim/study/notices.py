"""Notices before a run: allowed choices of a scenario whose consequences are easily overlooked.

`edgesim run`, `validate` and `cost` print these lines. No notice changes a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf

import torch

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.free_clocks import clocks_of
from edgesim.assembly.gossip import algorithm_named
from edgesim.assembly.own_calls import is_own
from edgesim.assembly.own_errors import own_code
from edgesim.assembly.rehearsal_of_gossip import numbers_of_entries
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.costs.measured_model import MeasuredModel
from edgesim.errors import device_label
from edgesim.gossip.optional_members import needs_exact_messages
from edgesim.models.norms import NORMS
from edgesim.scenario.gossip import IdentityCompressor
from edgesim.scenario.hardware import ProfileSection
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.presence import make_timed_churn
from edgesim.scenario.schema import Scenario
from edgesim.study.batteries import NAMED_NOTICES, battery_notices
from edgesim.study.influence import influence_notices
from edgesim.study.steady_state import without_absences
from topologies import TimedChurn

# Clocks run for at most so many rounds of all devices together, which takes up to a second. Later
# rounds of a device are assumed to take the mean of its rounds so far.
MOST_ROUNDS = 5000
MOST_DEVICES = 1000  # of larger fleets no clock is run
MOST_NAMED_PARTS = 8  # of a model, in a notice
_OPERATORS = "operators in the forward pass of "
SURELY_BEFORE = 0.95  # of the limit: an extrapolated end below this share counts as early


def notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """All notices of a scenario.

    Args:
        studied: the scenario, as objects.
        num_rounds: largest number of rounds of a device.
    """
    scenario = studied.scenario
    return [
        *precision_notices(scenario),
        *_own_model_notices(studied),
        *_varying_messages(studied),
        *evaluation_notices(scenario, num_rounds),
        *clock_notices(studied, num_rounds),
        *influence_notices(studied),
        *taken_over_notices(scenario),
        *battery_notices(studied),
    ]


def precision_notices(scenario: Scenario) -> list[str]:
    """What `model.precision: int8` leaves in fp32, and how it changes messages."""
    model, notices = scenario.model, []
    is_own = isinstance(model.name, OwnPart)
    is_plain = NORMS[model.norm_used].make_eight_bit is None
    if model.precision == "int8" and not is_own and is_plain:
        notices.append(
            f"model.norm: {model.norm_used} computes in fp32 between the 8-bit layers of "
            "model.precision: int8; with model.norm: null it is range_evonorm, in 8 bits"
        )
    if model.precision == "int8" and _values_follow_the_model(scenario):
        notices.append(
            "messages carry 8-bit values because model.precision is int8; "
            "set gossip.compressor.values to fp32 or fp16 to send more precise values"
        )
    if model.precision == "int8" and _values_are_fp32_unasked(scenario):
        notices.append(
            "messages carry fp32 values though model.precision is int8; set gossip.compressor to "
            "{kind: identity, values: int8} to send a quarter of the bytes, or name fp32 there"
        )
    return notices


def _own_model_notices(studied: StudiedScenario) -> list[str]:
    """Differences of an own model from models of the catalog: layers in fp32, measured layers."""
    model, lines = studied.model, []
    if not isinstance(model, MeasuredModel):
        return []
    if model.form.settings is not None and model.stays_fp32:
        lines.append(f"model.precision is int8; in fp32 stay {listed(model.stays_fp32)}")
    if model.measured_layers:
        lines.append(
            f"work and memory are measured, for there is no closed form, of "
            f"{listed(model.measured_layers)}"
        )
    return lines


@own_code()
def _varying_messages(studied: StudiedScenario) -> list[str]:
    """A compressor of one's own whose messages have unlike numbers of entries."""
    own = studied.algorithm
    if not is_own(studied.scenario.gossip.compressor.kind):
        return []
    compressor, layout = own.compressor, own.layout
    numbers = numbers_of_entries(compressor, layout, torch.zeros(layout.numel))
    form = compressor.form(layout)
    if set(numbers) == {form.entries}:
        return []
    said = (
        "gossip.compressor: how many entries a message has depends on the vector; bytes, times and "
        "energies that are told before a run are of one vector of noise, and clocks, energy and "
        f"memory of a run take each message for one of {form.entries:,} entries, as form says"
    )
    return [said]


def taken_over_notices(scenario: Scenario) -> list[str]:
    """What measured profiles, as `edgesim calibrate` writes them, have from another profile."""
    fleet = scenario.fleet
    groups = fleet.devices if isinstance(fleet.devices, tuple) else ()
    in_use = {fleet.profile, *(group.profile for group in groups)}
    return [
        f"the profile {profile.name} has measured times, but {', '.join(keys)} of "
        f"{profile.based_on}: so energy is not that of the measured device; give what you know of "
        "it in hardware.profiles"
        for profile in scenario.hardware.profiles
        if profile.name in in_use and profile.layer_times and (keys := _taken_over(profile))
    ]


def _taken_over(profile: ProfileSection) -> list[str]:
    """Keys of powers and of the radio that a profile leaves to the one that it is based on."""
    keys = [key for key in ("idle_power_w", "active_power_w") if getattr(profile, key) is None]
    if (radio := profile.radio) is None:
        return [*keys, "radio"]
    of_radio = ("bandwidth_mbps", "send_uj_per_byte", "receive_uj_per_byte")
    return [*keys, *(f"radio.{key}" for key in of_radio if getattr(radio, key) is None)]


def listed(parts: Sequence[str]) -> str:
    """Parts of a model in one line: each by its name, or if they are many, how many of each type.

    Args:
        parts: each ends with its type in brackets.
    """
    if len(parts) <= MOST_NAMED_PARTS:
        return ", ".join(parts)
    kinds = Counter(
        (_OPERATORS if part.startswith(_OPERATORS) else "") + part.rpartition("(")[2].rstrip(")")
        for part in parts
    )
    return ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in _plainest_first(kinds))


def _plainest_first(kinds: Counter[str]) -> list[tuple[str, int]]:
    """Layers, then operators of modules, each in the order of the model."""
    return sorted(kinds.items(), key=lambda kind: kind[0].startswith(_OPERATORS))


def _values_follow_the_model(scenario: Scenario) -> bool:
    """Whether messages take the format of their values from the model's precision."""
    compressor = scenario.gossip.compressor
    return "values" in type(compressor).model_fields and compressor.model_dump()["values"] is None


def _values_are_fp32_unasked(scenario: Scenario) -> bool:
    """Whether messages have all entries in fp32 because the scenario names no format."""
    compressor = scenario.gossip.compressor
    if "compressor" not in type(scenario.gossip).model_fields:
        return False  # the algorithm's own
    if needs_exact_messages(algorithm_named(scenario)):
        return False
    sends_all = isinstance(compressor, IdentityCompressor)
    return sends_all and "values" not in compressor.model_fields_set


def evaluation_notices(scenario: Scenario, num_rounds: int) -> list[str]:
    """Evaluations that a key asks for and that no run reaches.

    Args:
        scenario: the scenario.
        num_rounds: largest number of rounds of a device.
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


def clock_notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """Devices at free pace that do their last round before the time limit, and churn that is late.

    Churn is late if the run, or the device, ends before it.

    Args:
        studied: the scenario, as objects.
        num_rounds: largest number of rounds of a device.
    """
    scenario = studied.scenario
    if not scenario.fleet.rules.goes_by_clock:
        return []
    limit_s, timed_churn = scenario.training.virtual_time_s, make_timed_churn(scenario)
    has_churn = bool(timed_churn.absences or timed_churn.joins or timed_churn.leaves)
    ends_s: dict[int, float] = {}
    if scenario.fleet.num_devices <= MOST_DEVICES and (limit_s is not None or has_churn):
        ends_s = _ends_s(studied, num_rounds, inf if limit_s is None else limit_s)
    early = [] if limit_s is None else _early_notices(scenario, num_rounds, ends_s, limit_s)
    return early + _churn_notices(studied, timed_churn, ends_s)


def _churn_notices(
    studied: StudiedScenario, timed_churn: TimedChurn, ends_s: Mapping[int, float]
) -> list[str]:
    """Joins, leaves and absences at a time that the run or the device never reaches.

    Args:
        studied: the scenario, as objects.
        timed_churn: the scenario's churn.
        ends_s: time at which a device ends its last round, for devices where it is known.
    """
    scenario = studied.scenario
    limit_s, label = scenario.training.virtual_time_s, scenario.fleet.label
    found = []
    absences, joins, leaves = timed_churn.absences, timed_churn.joins, timed_churn.leaves
    entries = (
        *(("absent", n, one.device, str(one), one.from_s) for n, one in enumerate(absences)),
        *(("joins", n, one.device, str(one), one.at_s) for n, one in enumerate(joins)),
        *(("leaves", n, one.device, str(one), one.at_s) for n, one in enumerate(leaves)),
    )
    for key, place, device, entry, at_s in entries:
        what = f"fleet.churn.{key}.{place}: {label(device)} {entry}"
        if limit_s is not None and at_s >= limit_s:
            found.append(f"{what}, but training.virtual_time_s is {limit_s:g}: that never comes")
            continue
        # A joining device begins its rounds when it joins; it needs a sender that still sends then.
        is_join = key == "joins"
        whose = studied.schedule.possible_senders(device) if is_join else (device,)
        end_s = max((ends_s.get(who, inf) for who in whose), default=inf)
        if end_s < SURELY_BEFORE * at_s:
            last, then = "it does its last round", "that never comes"
            if is_join:
                last, then = "all that send to it do their last round", "it gets no model"
            found.append(f"{what}, but {last} by about {end_s:,.4g} s: {then}")
    more = len(found) - NAMED_NOTICES
    if more > 0:
        found[NAMED_NOTICES:] = [f"fleet.churn: {more:,} more that never come"]
    return found


def _early_notices(
    scenario: Scenario, num_rounds: int, ends_s: Mapping[int, float], limit_s: float
) -> list[str]:
    """Devices that do their last round before the time limit."""
    num_devices, every_s = scenario.fleet.num_devices, scenario.evaluation.every_virtual_s
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


def _ends_s(studied: StudiedScenario, num_rounds: int, limit_s: float) -> dict[int, float]:
    """Time at which each device would end its last round without a time limit.

    The time is exact where the clocks reach the last round, extrapolated where that is surely
    early, and infinite otherwise. Batteries are assumed never to run empty.
    """
    scenario, schedule = studied.scenario, studied.schedule
    hardware = device_hardware(scenario, schedule)
    clocks = clocks_of(studied, hardware, schedule)
    newest: dict[int, tuple[int, float]] = {}
    ends_s: dict[int, float] = {}
    for ended in islice(clocks.run(), MOST_ROUNDS):
        if ended.step_end_s >= limit_s:  # rounds come in the order of the ends of their steps
            break
        newest[ended.device] = ended.rounds_done, ended.step_end_s
        if ended.rounds_done == num_rounds:
            ends_s[ended.device] = ended.step_end_s
    else:
        for device, (rounds, time_s) in newest.items():
            sleep = without_absences(hardware[device])  # absences count as they were so far
            awake_s = sleep.awake_between(0.0, time_s)
            reckoned_s = sleep.after(0.0, awake_s / rounds * num_rounds)
            is_early = reckoned_s < SURELY_BEFORE * limit_s
            ends_s.setdefault(device, reckoned_s if is_early else inf)
    return ends_s
