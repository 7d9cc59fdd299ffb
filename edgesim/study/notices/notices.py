"""Notices before a run: allowed choices of a scenario whose consequences are easily overlooked.

`edgesim run`, `validate` and `cost` print these lines. No notice changes a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from edgesim.assembly.gossip import algorithm_named, averaging_rate
from edgesim.assembly.parts.checked_compressor import unchecked
from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.rehearsal.rehearsal_of_gossip import numbers_of_entries
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.costs.measured_model import MeasuredModel
from edgesim.gossip.optional_members import needs_exact_messages
from edgesim.models.norms import NORMS
from edgesim.results.own_sources import differs
from edgesim.scenario.data import OtherPartition
from edgesim.scenario.gossip import IdentityCompressor
from edgesim.scenario.hardware import ProfileSection
from edgesim.scenario.own_parts import OwnPart, own_parts
from edgesim.scenario.schema import Scenario
from edgesim.study.notices.batteries import battery_notices
from edgesim.study.notices.contacts import contact_notices
from edgesim.study.notices.draining import draining_notices
from edgesim.study.notices.influence import influence_notices
from edgesim.study.notices.momentum import momentum_notices
from edgesim.study.notices.ports import port_notices
from edgesim.study.notices.slips import slip_notices
from edgesim.study.notices.unreached import absence_notices, clock_notices, evaluation_notices
from topologies import only_passes_on

MOST_NAMED_PARTS = 8  # of a model, in a notice
_OPERATORS = "operators in the forward pass of "


def notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """All notices of a scenario.

    Args:
        studied: the scenario, as objects.
        num_rounds: largest number of rounds of a device.
    """
    scenario = studied.scenario
    return [
        *precision_notices(scenario),
        *_batch_notices(studied),
        *_changed_file_notices(scenario),
        *_own_model_notices(studied),
        *_varying_messages(studied),
        *evaluation_notices(scenario, num_rounds),
        *absence_notices(scenario, num_rounds),
        *clock_notices(studied, num_rounds),
        *draining_notices(studied, num_rounds),
        *port_notices(studied),
        *contact_notices(studied, num_rounds),
        *influence_notices(studied),
        *momentum_notices(studied, num_rounds),
        *_mixing_notices(studied),
        *_dcd_notices(scenario),
        *taken_over_notices(scenario),
        *untimed_notices(studied),
        *slip_notices(scenario),
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


def _batch_notices(studied: StudiedScenario) -> list[str]:
    """Batches of more than twice the samples that a device has in the mean."""
    size, fill, shards = studied.scenario.data.batch_size, studied.batch_fill, studied.shard_sizes
    if fill >= 0.5:
        return []
    have = f"a device has {size * fill:,.0f} samples in the mean"
    if shards is not None and min(shards) < max(shards):
        have = f"devices have {min(shards):,} to {max(shards):,} samples"
    said = (
        f"data.batch_size is {size:,}, and {have}: so most batches are all samples of their "
        "device, and an epoch is one step"
    )
    return [said]


def partition_notices(scenario: Scenario) -> list[str]:
    """A notice that a partition of one's own is not called for a study."""
    section = scenario.data.partition
    if not isinstance(section, OtherPartition) or scenario.training.epochs is None:
        return []
    said = (
        f"data.partition.kind: {section.kind} is not called here, so rounds and epochs are those "
        "of a partition that deals all samples; `edgesim validate` says how many it deals"
    )
    return [said]


def _own_model_notices(studied: StudiedScenario) -> list[str]:
    """Differences of an own model from models of the catalog: layers in fp32, measured layers."""
    model, lines = studied.model, []
    if not isinstance(model, MeasuredModel):
        return []
    if model.form.settings is not None and model.stays_fp32:
        lines.append(f"model.precision is int8; in fp32 stay {listed(model.stays_fp32)}")
    if model.measured_layers:
        lines.append(
            f"work and memory of {listed(model.measured_layers)} are measured: edgesim has no "
            "formula for them"
        )
    return lines


def _changed_file_notices(scenario: Scenario) -> list[str]:
    """Files that are no longer what a run kept of them, or a scenario object holds of them."""
    return [
        f"{key}: {part.place} has changed since; the code that was kept or read before is used"
        for key, part in own_parts(scenario)
        if part.source is not None and differs(part.place, part.source)
    ]


@own_code()
def _varying_messages(studied: StudiedScenario) -> list[str]:
    """A compressor of one's own whose messages have unlike numbers of entries."""
    own = studied.algorithm
    if not is_own(studied.scenario.gossip.compressor.kind):
        return []
    compressor, layout = own.compressor, own.layout
    numbers = numbers_of_entries(unchecked(compressor), layout, torch.zeros(layout.numel))
    form = compressor.form(layout)
    if set(numbers) <= {form.entries}:
        return []
    said = (
        "gossip.compressor: how many entries a message has depends on the vector; bytes, times and "
        "energies that are told before a run are of one vector of noise, and a run counts the work "
        f"and memory of each message as of {form.entries:,} entries, as form says"
    )
    return [said]


def _mixing_notices(studied: StudiedScenario) -> list[str]:
    """A fixed graph whose weights, in lockstep, hand models round instead of averaging them."""
    scenario, schedule = studied.scenario, studied.schedule
    if not schedule.is_static or not scenario.fleet.rules.waits_for_all:
        return []
    if averaging_rate(scenario) != 1 or not only_passes_on(schedule.graph(0)):
        return []
    said = (
        "topology: no device keeps a share of its model, and the lengths of all cycles of the "
        "graph have a common divisor above 1, so models go round and never become one average; let "
        "devices keep a share (weights that add up to less than 1), or set gossip.averaging_rate "
        "below 1"
    )
    return [said]


def _dcd_notices(scenario: Scenario) -> list[str]:
    """Uses of DCD that its analysis does not cover, and that move devices apart."""
    if str(scenario.gossip.algorithm) != "dcd":
        return []
    found = []
    kind = scenario.gossip.compressor.kind
    if kind in ("top_k", "random_k"):
        found.append(
            f"gossip.compressor.kind is {kind}: gossip.algorithm: dcd needs small errors in each "
            "message, and with few entries devices move apart; choose min_max_uint8, qsgd or "
            "values: int8, or gossip.algorithm: choco"
        )
    if not scenario.fleet.rules.waits_for_all:
        found.append(
            "fleet.pace is free: devices with gossip.algorithm: dcd agree there on a model that is "
            "not their average (docs/choco.md); choose lockstep, or gossip.algorithm: choco"
        )
    return found


def taken_over_notices(scenario: Scenario) -> list[str]:
    """What measured profiles, as `edgesim calibrate` writes them, have from another profile."""
    return [
        f"the profile {profile.name} has measured times, but {', '.join(keys)} of "
        f"{profile.based_on}: so energy is not that of the measured device; give what you know of "
        "it in hardware.profiles"
        for profile in _measured_profiles(scenario)
        if (keys := _taken_over(profile))
    ]


def untimed_notices(studied: StudiedScenario) -> list[str]:
    """Kinds of layers of which measured profiles in use, such as older ones, have no times."""
    profiles = _measured_profiles(studied.scenario)
    if not profiles:
        return []
    work = studied.model.step_work.total + studied.optimizer.work(studied.model.num_trainable)
    work += studied.algorithm.work(1, 1)
    kinds = dict.fromkeys(layers.kind for layers in work.layers)
    missing = {
        profile.name: [kind for kind in kinds if kind not in timed]
        for profile in profiles
        for timed in [{time.layer for time in profile.layer_times or ()}]
    }
    return [
        f"the profile {name} has no times of {listed(lacking)}: their time follows from its "
        "rates, which is less exact; measure it anew with `edgesim calibrate`"
        for name, lacking in missing.items()
        if lacking
    ]


def _measured_profiles(scenario: Scenario) -> list[ProfileSection]:
    """Profiles in use that have times of layers."""
    fleet = scenario.fleet
    groups = fleet.devices if isinstance(fleet.devices, tuple) else ()
    in_use = {fleet.profile, *(group.profile for group in groups)}
    own = scenario.hardware.profiles
    return [profile for profile in own if profile.name in in_use and profile.layer_times]


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
