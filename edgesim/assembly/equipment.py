"""The hardware of a scenario's devices: makes profiles, links and clocks from its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from edgesim.errors import ScenarioError
from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.catalog import PROFILES
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link
from edgesim.hardware.profiles import DeviceProfile, LayerTime, Radio
from edgesim.hardware.timeline import Hardware
from edgesim.scenario.hardware import (
    HIGHEST_LOSS,
    SLOWEST_MBPS,
    DeviceGroup,
    NetworkSection,
    ProfileKeys,
    ProfileSection,
    given,
)
from edgesim.scenario.presence import check_timed_leaves, make_timed_churn
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import LARGEST
from edgesim.scenario.topology import OtherTopology
from topologies import Schedule, TimedChurn

MIB = 2**20
JOULES_PER_WH = 3600.0

# Scenario key -> field of the profile, and SI units in one of the key's.
_FIGURES: dict[str, tuple[str, float]] = {
    "int8_gmacs_per_s": ("int8_macs_per_s", 1e9),
    "bits16_gmacs_per_s": ("bits16_macs_per_s", 1e9),
    "fp32_gmacs_per_s": ("fp32_macs_per_s", 1e9),
    "elementwise_gops_per_s": ("elementwise_ops_per_s", 1e9),
    "memory_mib": ("memory_bytes", MIB),
    "memory_gbytes_per_s": ("memory_bandwidth", 1e9),
    "idle_power_w": ("idle_power_w", 1.0),
    "active_power_w": ("active_power_w", 1.0),
    "battery_wh": ("battery_j", JOULES_PER_WH),
}
_RATES = {"int8_macs_per_s", "bits16_macs_per_s", "fp32_macs_per_s", "memory_bandwidth"}
_RADIO_FIGURES: dict[str, tuple[str, float]] = {
    "bandwidth_mbps": ("bandwidth_bps", 1e6),
    "send_uj_per_byte": ("send_j_per_byte", 1e-6),
    "receive_uj_per_byte": ("receive_j_per_byte", 1e-6),
}
# Attributes of links in graph files, and likely misspellings.
_LINK_KEYS = ("bandwidth_mbps", "latency_ms", "jitter_ms", "loss")


def device_profiles(scenario: Scenario) -> tuple[DeviceProfile, ...]:
    """Profile of each device, with overrides; empty if the scenario names none."""
    profiles: list[DeviceProfile] = []
    bases = named_profiles(scenario)
    for group in scenario.fleet.groups:
        profiles += [_with_figures(bases[group.profile], group)] * group.count
    return tuple(profiles)


def named_profiles(scenario: Scenario) -> dict[str, DeviceProfile]:
    """Profiles that devices name, by name, without what the devices change of them."""
    own = {section.name: _own_profile(section) for section in scenario.hardware.profiles}
    names = {group.profile for group in scenario.fleet.groups}
    return {name: own[name] if name in own else PROFILES[name].profile for name in names}


def figure(profile: DeviceProfile, key: str) -> float | None:
    """A figure of a profile in the unit of a scenario's key; None where the profile has none."""
    name, per_unit = _FIGURES[key]
    value = getattr(profile, name)
    return None if value is None else value / per_unit


def device_hardware(scenario: Scenario, schedule: Schedule) -> tuple[Hardware, ...]:
    """Hardware of each device for its clock; empty if the scenario names no profiles."""
    profiles, groups = device_profiles(scenario), _group_of_devices(scenario)
    timed_churn = make_timed_churn(scenario)
    listening = tuple(
        _duty_cycle(scenario, group) if _is_half_duplex(scenario.network, profile) else None
        for profile, group in zip(profiles, groups, strict=True)
    )
    return tuple(
        Hardware(
            profile=profile,
            links=Links(
                scenario.network,
                profiles,
                schedule,
                device,
                listening,
                timed_churn,
                hands_over=scenario.fleet.rules.waits_for_all,
            ),
            is_half_duplex=_is_half_duplex(scenario.network, profile),
            compute_jitter=_first(group.compute_jitter, scenario.fleet.compute_jitter),
            duty_cycle=_awake_times(scenario, group, device, timed_churn),
            worst_loss=_worst_loss(scenario, schedule, device),
            leaves_s=timed_churn.leave_s(device),
            round_s=_round_s(scenario, schedule),
        )
        for device, (profile, group) in enumerate(zip(profiles, groups, strict=True))
    )


def awake_times(scenario: Scenario) -> tuple[DutyCycle | AwakeTimes, ...]:
    """When each device is awake, as its clock has it; it needs no graph."""
    timed_churn = make_timed_churn(scenario)
    return tuple(
        _awake_times(scenario, group, device, timed_churn)
        for device, group in enumerate(_group_of_devices(scenario))
    )


def has_batteries(scenario: Scenario) -> bool:
    """Whether a device may run out of energy."""
    return any(profile.battery_j is not None for profile in device_profiles(scenario))


def may_leave(scenario: Scenario) -> bool:
    """Whether a device may leave for good: its battery is empty, or its stay is over."""
    churn = scenario.fleet.churn
    return has_batteries(scenario) or bool(churn and churn.leaves)


def _group_of_devices(scenario: Scenario) -> list[DeviceGroup]:
    return [group for group in scenario.fleet.groups for _ in range(group.count)]


@dataclass(frozen=True)
class Links(Mapping[int, Link]):
    """Links of one device to every other, each made when it is first asked for.

    Figures are those of the network section, or of the graph file or trace if it has them.
    """

    network: NetworkSection
    profiles: tuple[DeviceProfile, ...]
    schedule: Schedule
    sender: int
    listening: tuple[DutyCycle | None, ...]  # `Link.listens` by receiver
    timed_churn: TimedChurn
    hands_over: bool
    _made: dict[int, Link] = field(default_factory=dict)

    def __getitem__(self, receiver: int) -> Link:
        if receiver not in self._made:
            if receiver == self.sender or not 0 <= receiver < len(self.profiles):
                raise KeyError(receiver)
            self._made[receiver] = self._make(receiver)
        return self._made[receiver]

    def __iter__(self) -> Iterator[int]:
        return (device for device in range(len(self.profiles)) if device != self.sender)

    def __len__(self) -> int:
        return len(self.profiles) - 1

    def _make(self, receiver: int) -> Link:
        own, network = _link_of_file(self.schedule, self.sender, receiver), self.network
        radios_mbps = (
            min(self.profiles[d].radio.bandwidth_bps for d in (self.sender, receiver)) / 1e6
        )
        bandwidth_mbps = own.get("bandwidth_mbps", network.bandwidth_mbps or radios_mbps)
        return Link(
            bandwidth_bps=min(bandwidth_mbps, radios_mbps) * 1e6,
            latency_s=own.get("latency_ms", network.latency_ms) / 1e3,
            jitter_s=own.get("jitter_ms", network.jitter_ms) / 1e3,
            loss=own.get("loss", network.loss),
            packet_bytes=network.packet_bytes,
            listens=self.listening[receiver],
            leaves_s=self.timed_churn.leave_s(receiver),
            is_mortal=not self.hands_over and self.profiles[receiver].battery_j is not None,
        )


def check_hardware(scenario: Scenario, schedule: Schedule) -> None:
    """Refuse impossible hardware, and hardware that does not fit the gossip algorithm.

    Raises:
        ScenarioError: a figure or a choice is impossible.
    """
    check_timed_leaves(scenario, schedule)
    for sender in range(schedule.num_devices if _reads_files(scenario) else 0):
        for receiver in schedule.possible_receivers(sender):
            _link_of_file(schedule, sender, receiver)
    for device, profile in enumerate(device_profiles(scenario)):
        if profile.active_power_w < profile.idle_power_w:
            raise ScenarioError(
                f"{scenario.fleet.label(device)}, {profile.name}: active_power_w is "
                f"{profile.active_power_w:g}, "
                f"less than idle_power_w, {profile.idle_power_w:g}, which it includes"
            )


def _link_of_file(schedule: Schedule, sender: int, receiver: int) -> dict[str, float]:
    """Figures that a graph file or a trace has for a link.

    Raises:
        ScenarioError: one of them can't be.
    """
    attributes = schedule.link_attributes(sender, receiver)
    figures: dict[str, Any] = {key: attributes[key] for key in _LINK_KEYS if key in attributes}
    for key, figure in figures.items():
        must_be = {
            "bandwidth_mbps": f"a number, at least {SLOWEST_MBPS:g}",
            "loss": f"a number in [0, {HIGHEST_LOSS:g}]",
        }
        is_number = isinstance(figure, int | float) and not isinstance(figure, bool)
        if not (
            is_number
            and figure >= 0
            and (key != "bandwidth_mbps" or figure >= SLOWEST_MBPS)
            and (key != "loss" or figure <= HIGHEST_LOSS)
            and figure <= LARGEST
        ):
            raise ScenarioError(
                f"topology: {key} of the link {_link(schedule, sender, receiver)} is {figure!r}; "
                f"must be {must_be.get(key, 'a number, at least 0')}"
            )
    return figures


def _link(schedule: Schedule, sender: int, receiver: int) -> str:
    """A link in messages, with the names of its ends in the file."""
    nodes = schedule.graph(0).nodes
    return " -> ".join(str(nodes[device].get("name", device)) for device in (sender, receiver))


def _reads_files(scenario: Scenario) -> bool:
    """Whether a graph file, a trace or a graph of one's own may have figures of links."""
    section = scenario.topology
    return isinstance(section, OtherTopology) or section.kind in ("file", "trace", "cycle")


def _worst_loss(scenario: Scenario, schedule: Schedule, device: int) -> float:
    """Highest loss of the links of a device; needed for devices with a battery only."""
    losses = [
        _link_of_file(schedule, device, peer).get("loss", 0.0)
        for peer in (schedule.possible_receivers(device) if _reads_files(scenario) else ())
    ]
    return max([scenario.network.loss, *losses])


def _is_half_duplex(network: NetworkSection, profile: DeviceProfile) -> bool:
    return profile.radio.is_half_duplex if network.half_duplex is None else network.half_duplex


def _round_s(scenario: Scenario, schedule: Schedule) -> float:
    """Seconds of a contact trace that a round stands for in lockstep; 0 elsewhere."""
    seconds = schedule.seconds_per_round
    return seconds if seconds is not None and scenario.fleet.rules.waits_for_all else 0.0


def _duty_cycle(scenario: Scenario, group: DeviceGroup) -> DutyCycle:
    section = group.duty_cycle or scenario.fleet.duty_cycle
    return DutyCycle(**section.model_dump()) if section else ALWAYS_AWAKE


def _awake_times(
    scenario: Scenario, group: DeviceGroup, device: int, timed_churn: TimedChurn
) -> DutyCycle | AwakeTimes:
    """Times at which a device is awake, by its duty cycle and, at free pace, its presence."""
    cycle, churn = _duty_cycle(scenario, group), scenario.fleet.churn
    if churn is None or not scenario.fleet.rules.goes_by_clock:
        return cycle
    return AwakeTimes(cycle=cycle, next_absence=partial(timed_churn.next_absence, device))


def _own_profile(section: ProfileSection) -> DeviceProfile:
    """Profile of the scenario's own."""
    if section.based_on is not None:
        base = PROFILES[section.based_on].profile
        description = section.description or f"{section.based_on}, changed"
        return replace(_with_figures(base, section), name=section.name, description=description)
    radio = section.radio
    assert radio is not None, "the schema asks for all figures"
    return DeviceProfile(
        name=section.name,
        description=section.description,
        radio=Radio(
            name=radio.name or "radio",
            is_half_duplex=bool(radio.half_duplex),
            **_in_si(radio.model_dump(exclude_none=True), _RADIO_FIGURES),
        ),
        **_in_si(given(section), _FIGURES),
        layer_times=_layer_times(section) or (),
    )


def _layer_times(section: ProfileKeys) -> tuple[LayerTime, ...] | None:
    """Times of kinds of layers that a section sets; None if it sets none."""
    if section.layer_times is None:
        return None
    return tuple(
        LayerTime(
            kind=time.layer,
            call_s=1e-6 * time.call_us,
            s_per_mac=1e-12 * time.ps_per_mac,
            s_per_entry=1e-9 * time.ns_per_entry,
            s_per_far_entry=1e-9 * time.ns_per_far_entry,
            s_per_weight=1e-9 * time.ns_per_weight,
        )
        for time in section.layer_times
    )


def _with_figures(base: DeviceProfile, section: ProfileKeys) -> DeviceProfile:
    """A profile with those figures replaced that a section sets.

    Times of layers are of a processor with the profile's rates: other rates take them away.
    """
    radio = base.radio
    if section.radio is not None:
        values = section.radio.model_dump(exclude_none=True)
        changes: dict[str, Any] = dict(_in_si(values, _RADIO_FIGURES))
        if "half_duplex" in values:
            changes["is_half_duplex"] = values["half_duplex"]
        if "name" in values:
            changes["name"] = values["name"]
        radio = replace(radio, **changes)
    times, figures = _layer_times(section), _in_si(given(section), _FIGURES)
    if times is None:
        times = () if _RATES & figures.keys() else base.layer_times
    return replace(base, radio=radio, layer_times=times, **figures)


def _in_si(values: Mapping[str, Any], figures: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    """Fields of a profile from keys of a scenario."""
    fields: dict[str, Any] = {}
    for key, value in values.items():
        if key in figures:
            field, unit = figures[key]
            if value == "plugged_in":
                fields[field] = None
            else:
                fields[field] = int(value * unit) if field == "memory_bytes" else value * unit
    return fields


def _first(*choices: float | None) -> float:
    """The first value that is not None."""
    return next(choice for choice in choices if choice is not None)
