"""Changes of a scenario that may help; whether they do, changes.py finds out.

Each change is one or several settings, as after `--set`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from edgesim.assembly.equipment import JOULES_PER_WH
from edgesim.hardware.catalog import PROFILES
from edgesim.models.norms import NORMS
from edgesim.scenario.gossip import (
    ChocoGossip,
    ChocoNumeratorGossip,
    DeepSqueezeGossip,
    GradientPushGossip,
    IdentityCompressor,
    RandomKCompressor,
    TopKCompressor,
)
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.schema import Scenario
from edgesim.study.iteration import IterationCosts
from edgesim.study.rounds.critical_path import Limit
from edgesim.study.training import Life

LEAST_KEEP = 0.01  # share of entries; the paper's strongest compression
_LOCAL_STEPS = 4  # times as many
_MOST_LOCAL_STEPS = 16
_FASTER = 10  # times the bandwidth of a link
# Kinds of graphs whose devices may send to one neighbour at a time in place of several.
_DENSE_KINDS = frozenset(
    {"ring", "torus", "chordal_grid", "exponential", "complete", "random_regular"}
)
# Tried where the scenario names no devices: from small to large.
_TYPICAL_PROFILES = (
    "arduino-portenta-h7",
    "raspberry-pi-zero-2w",
    "raspberry-pi-4b",
    "jetson-nano",
)
_MOST_TYPICAL = 3
# Smaller models for images, the largest first.
_SMALLER_MODELS = (
    ("model.name=resnet", "model.depth=14"),
    ("model.name=resnet", "model.depth=8"),
    ("model.name=resnet", "model.depth=8", "model.width=8"),
    ("model.name=small_cnn",),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may help.

    Attributes:
        settings: each `key.path=value`, as after `--set`.
        whom: devices that the change is of; empty if it is of all.
        wider: a link of a graph file that gets more bandwidth: sender, receiver, bits per second;
            None for a change of settings.
    """

    settings: tuple[str, ...] = ()
    whom: tuple[int, ...] = ()
    wider: tuple[int, int, float] | None = None

    def has(self, other: Candidate) -> bool:
        """Whether it is the other change, and maybe more."""
        return set(other.settings) <= {*self.settings} and other.wider in (None, self.wider)


def candidates(scenario: Scenario, costs: IterationCosts) -> Iterator[Candidate]:
    """Changes that may make rounds shorter, or messages or energies less.

    Args:
        scenario: the scenario as its file has it.
        costs: costs of its iteration.
    """
    model = scenario.model
    if model.precision == "fp32":
        settings = ["model.precision=int8"]
        if model.norm is not None and NORMS[model.norm].make_eight_bit is None:
            settings.append("model.norm=null")
        yield Candidate(tuple(settings))
    yield from _sparser(scenario)
    steps = scenario.gossip.local_steps
    if steps * _LOCAL_STEPS <= _MOST_LOCAL_STEPS:
        yield Candidate((f"gossip.local_steps={_LOCAL_STEPS * steps}",))
    if scenario.training.epochs is not None:
        yield Candidate((f"data.batch_size={2 * scenario.data.batch_size}",))
    if scenario.topology.kind in _DENSE_KINDS:
        yield Candidate(("topology={kind: one_peer_exponential}",))
    if costs.steady_state is None:
        return
    # On a contact trace it would do the same rounds in a small part of the trace.
    if scenario.fleet.rules.waits_for_all and costs.studied.schedule.seconds_per_round is None:
        yield Candidate(("fleet.pace=free",))
    if scenario.network.bandwidth_mbps is not None:
        faster = f"network.bandwidth_mbps={_FASTER * scenario.network.bandwidth_mbps:g}"
        yield Candidate((faster,))
    yield from _wider_link(costs)
    yield from _faster_devices(scenario, costs)
    yield from _sleepless(scenario)


def _sleepless(scenario: Scenario) -> Iterator[Candidate]:
    """Devices that are always awake, if some sleep."""
    settings = ["fleet.duty_cycle=null"] if scenario.fleet.duty_cycle is not None else []
    if not isinstance(scenario.fleet.devices, int):
        settings += [
            f"fleet.devices.{place}.duty_cycle=null"
            for place, group in enumerate(scenario.fleet.devices)
            if group.duty_cycle is not None
        ]
    if settings:
        yield Candidate(tuple(settings))


def profile_candidates(costs: IterationCosts) -> Iterator[Candidate]:
    """Devices that a scenario without any may have: some of the catalog with enough memory."""
    needed = costs.heaviest.faithful_memory.total
    fitting = (p for p in _TYPICAL_PROFILES if PROFILES[p].profile.memory_bytes >= needed)
    for _, name in zip(range(_MOST_TYPICAL), fitting, strict=False):
        yield Candidate((f"fleet.profile={name}",))


def battery_candidates(
    scenario: Scenario, costs: IterationCosts, lives: Sequence[Life]
) -> Iterator[Candidate]:
    """Batteries that are large enough.

    Args:
        scenario: the scenario as its file has it.
        costs: costs of its iteration.
        lives: batteries that end before the training.
    """
    needed_j: dict[str, float] = {}
    places = _places(scenario, costs)
    for life in lives if places else ():
        key = _battery_key(scenario, places[life.device])
        if key is not None:
            needed_j[key] = max(needed_j.get(key, 0.0), life.needed_j)
    settings = tuple(
        f"{key}={_rounded_up(energy_j / JOULES_PER_WH):g}" for key, energy_j in needed_j.items()
    )
    if settings:
        yield Candidate(settings, tuple(life.device for life in lives))


def roomy_profiles(needed_bytes: int) -> tuple[str, ...]:
    """Profiles of the catalog with so much memory, the smallest first."""
    there = [(entry.profile.memory_bytes, name) for name, entry in PROFILES.items()]
    return tuple(name for memory_bytes, name in sorted(there) if memory_bytes >= needed_bytes)


def roomier_candidates(scenario: Scenario, costs: IterationCosts) -> Iterator[Candidate]:
    """The smallest profile of the catalog that is large enough, for devices that are too small."""
    needed = max(d.faithful_memory.total for d in costs.devices if d.fits is False)
    roomy = roomy_profiles(needed)
    if not roomy:
        return
    small = tuple(device.device for device in costs.devices if device.fits is False)
    if isinstance(scenario.fleet.devices, int):
        if scenario.fleet.profile is not None:
            yield Candidate((f"fleet.profile={roomy[0]}",))
        return
    places = _places(scenario, costs)
    own = dict.fromkeys(places[device] for device in small)
    yield Candidate(tuple(f"fleet.devices.{n}.profile={roomy[0]}" for n in own), small)


def smaller_models(scenario: Scenario) -> Iterator[Candidate]:
    """Models of the catalog with fewer parameters, for images."""
    if isinstance(scenario.model.name, OwnPart):
        return
    drops = ("model.depth=null", "model.width=null") if scenario.model.name == "resnet" else ()
    for settings in _SMALLER_MODELS:
        yield Candidate(settings if "model.name=resnet" in settings else (*settings, *drops))


def _sparser(scenario: Scenario) -> Iterator[Candidate]:
    """Shorter messages: fewer entries, and fewer bits for each."""
    gossip, compressor = scenario.gossip, scenario.gossip.compressor
    if isinstance(gossip, GradientPushGossip):
        settings = "algorithm: choco, averaging_rate: auto, compressor: {kind: top_k, keep: 0.1}"
        yield Candidate((f"gossip={{{settings}, local_steps: {gossip.local_steps}}}",))
        return
    if isinstance(compressor, TopKCompressor | RandomKCompressor):
        keep = max(compressor.keep / 10, LEAST_KEEP)
        if keep < compressor.keep:
            yield Candidate((f"gossip.compressor.keep={keep:g}",))
    elif isinstance(gossip, ChocoGossip | ChocoNumeratorGossip | DeepSqueezeGossip):
        keep = 0.1 if isinstance(compressor, IdentityCompressor) else LEAST_KEEP
        yield Candidate((f"gossip.compressor={{kind: top_k, keep: {keep:g}}}",))
    values = compressor.model_dump().get("values", "int8")
    if (values or scenario.model.precision) != "int8":
        yield Candidate(("gossip.compressor.values=int8",))


def _wider_link(costs: IterationCosts) -> Iterator[Candidate]:
    """The link of a graph file that takes the longest part of a round."""
    assert costs.steady_state is not None, "asked of fleets with clocks"
    sending = [limit for limit in costs.steady_state.limits if limit.kind == "sending"]
    for limit in sending[:1]:
        assert limit.receiver is not None, "messages have receivers"
        mbps = _file_bandwidth_mbps(costs, limit)
        if mbps is not None:
            yield Candidate(wider=(limit.device, limit.receiver, _FASTER * mbps * 1e6))


def _file_bandwidth_mbps(costs: IterationCosts, limit: Limit) -> float | None:
    """Bandwidth that a graph file gives a link, if it gives one."""
    assert limit.receiver is not None, "messages have receivers"
    attributes = costs.studied.schedule.link_attributes(limit.device, limit.receiver)
    mbps = attributes.get("bandwidth_mbps")
    return float(mbps) if isinstance(mbps, int | float) else None


def _faster_devices(scenario: Scenario, costs: IterationCosts) -> Iterator[Candidate]:
    """The slowest kind of device in place by the fastest one of the fleet."""
    steps_s = {
        device.profile.name: device.time.roofline_s
        for device in costs.devices
        if device.profile is not None and device.time is not None
    }
    slow, fast = max(steps_s, key=lambda name: steps_s[name]), min(steps_s, key=steps_s.__getitem__)
    groups = scenario.fleet.groups
    if isinstance(scenario.fleet.devices, int) or steps_s[slow] <= 1.05 * steps_s[fast]:
        return
    places = [place for place, group in enumerate(groups) if group.profile == slow]
    whom = tuple(
        d.device for d in costs.devices if d.profile is not None and d.profile.name == slow
    )
    yield Candidate(tuple(f"fleet.devices.{n}.profile={fast}" for n in places), whom)


def _battery_key(scenario: Scenario, place: int) -> str | None:
    """Key of the scenario that the batteries of an item of `fleet.groups` come from, if any."""
    if not isinstance(scenario.fleet.devices, int):
        return f"fleet.devices.{place}.battery_wh"
    own = [profile.name for profile in scenario.hardware.profiles]
    profile = scenario.fleet.groups[place].profile
    return f"hardware.profiles.{own.index(profile)}.battery_wh" if profile in own else None


def _places(scenario: Scenario, costs: IterationCosts) -> list[int]:
    """Item of `fleet.groups` that each device comes from; none if a graph file has the profiles."""
    by_position = [
        place for place, group in enumerate(scenario.fleet.groups) for _ in range(group.count)
    ]
    listed, names = scenario.fleet.listed_names, costs.studied.scenario.fleet.names
    if not (by_position and listed and names):
        return by_position
    # The order of a graph file may be another one than that of the scenario's list.
    return [by_position[listed.index(name)] for name in names]


def _rounded_up(value: float) -> float:
    """A positive value with two digits that is not below."""
    scale = 10.0 ** (floor(log10(value)) - 1)
    return ceil(value / scale) * scale
