"""Devices by name: what a scenario says of a device goes to the node of that name.

A graph file or a contact trace that names its devices numbers them in an order of its own
(topologies/files.py), which a list of devices in a scenario can't follow. Numbers stay the
identity of devices; here a scenario is put in their order, and what could mean two things is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from edgesim.errors import ScenarioError, did_you_mean
from edgesim.hardware.catalog import PROFILES
from edgesim.scenario.churn import ChurnSection
from edgesim.scenario.fleet import FleetSection
from edgesim.scenario.hardware import DeviceGroup
from edgesim.scenario.schema import Scenario
from topologies import OtherDevicesError

_SHOWN = 5  # names in a message


def with_names(scenario: Scenario, nodes: Sequence[Mapping[str, object]]) -> Scenario:
    """The scenario with what its devices are in the order of their numbers, and their names.

    A scenario that comes from here stays what it is.

    Args:
        scenario: lists devices in an order of its own, maybe with names.
        nodes: what the file of the graph says of each device, by number: `name`, and maybe
            `profile`; empty where no file names devices.

    Raises:
        ScenarioError: names that do not match, or devices that could be meant in two ways.
    """
    fleet = scenario.fleet
    names = _names(fleet, [str(node["name"]) for node in nodes])
    groups = _groups_by_number(fleet, names)
    groups = _with_profiles_of_nodes(scenario, groups, nodes)
    changes: dict[str, Any] = {"names": names}
    if groups and (len(set(groups)) > 1 or fleet.profile is None):
        changes |= {"devices": _in_a_row(groups), "profile": None}
    result = scenario.model_copy(update={"fleet": fleet.model_copy(update=changes)})
    if missing := result.missing_profiles():
        raise ScenarioError(" ".join(missing))
    if fleet.churn is not None:
        _check_devices_of(fleet.churn, names)
    return result


def other_devices(error: OtherDevicesError, listed: Sequence[str]) -> str:
    """What differs between the devices that a file names and those that a scenario lists.

    Args:
        error: what the file says.
        listed: names of the scenario's devices; empty if they have none.
    """
    if not listed:
        return str(error)
    lacking, surplus = (
        [name for name in some if name not in others]
        for some, others in ((listed, error.names), (error.names, listed))
    )
    if lacking:
        meant = did_you_mean(lacking[0], surplus, "add it there, or leave it out of fleet")
        return f"{error.path}: has no device {lacking[0]!r}, which fleet names; {meant}"
    return (
        f"{error.path}: has the device {surplus[0]!r}, which fleet does not name; add it to "
        "fleet.devices, or leave it out there"
    )


def _names(fleet: FleetSection, of_nodes: list[str]) -> tuple[str, ...]:
    """Names of all devices by number; none where they have only numbers."""
    listed = fleet.listed_names
    if listed and of_nodes:
        for name in listed:
            if name not in of_nodes:
                some = _some(sorted(set(of_nodes) - set(listed)) or of_nodes)
                raise ScenarioError(
                    f"fleet: no device of the graph's file is named {name!r}; "
                    + did_you_mean(name, of_nodes, f"among its names are {some}")
                )
        return tuple(of_nodes)
    is_numbered = of_nodes == [str(device) for device in range(len(of_nodes))]
    return listed if is_numbered else tuple(of_nodes)


def _groups_by_number(fleet: FleetSection, names: tuple[str, ...]) -> list[DeviceGroup]:
    """What each device is, by number; none where the scenario does not say."""
    plain = {"count": 1, "name": None, "names": ()}
    groups = [group.model_copy(update=plain) for group in fleet.groups for _ in range(group.count)]
    listed = fleet.listed_names
    if listed:
        by_name = dict(zip(listed, groups, strict=False))
        return [by_name[name] for name in names] if groups else []
    if names and len(set(groups)) > 1:
        raise ScenarioError(
            f"fleet.devices: the file of the graph names its devices ({_some(names)}), in an order "
            "of its own, so that it is unclear which is which; give each item a name, or names"
        )
    return groups


def _with_profiles_of_nodes(
    scenario: Scenario, groups: list[DeviceGroup], nodes: Sequence[Mapping[str, object]]
) -> list[DeviceGroup]:
    """The groups, or if there are none what the nodes of a graph file say."""
    given = {device: node["profile"] for device, node in enumerate(nodes) if "profile" in node}
    for device, profile in given.items():
        if groups and groups[device].profile != profile:
            raise ScenarioError(
                f"fleet: device {device} ({nodes[device]['name']}) is {groups[device].profile} "
                f"here and {profile} in the file of the graph; let one of them say what it is"
            )
    if groups or not given:
        return groups
    known = {*PROFILES, *(profile.name for profile in scenario.hardware.profiles)}
    for device, node in enumerate(nodes):
        name = f"device {device} ({node['name']})"
        if device not in given:
            raise ScenarioError(
                f"topology: {name} has no attribute profile in the file of the graph, but others "
                "have; add it"
            )
        if given[device] not in known:
            remedy = did_you_mean(str(given[device]), known, "see `edgesim list devices`")
            raise ScenarioError(
                f"topology: {name} has the attribute profile {given[device]!r}, which is no "
                f"profile; {remedy}"
            )
    return [DeviceGroup(profile=str(given[device])) for device in range(len(nodes))]


def _in_a_row(groups: list[DeviceGroup]) -> tuple[DeviceGroup, ...]:
    """Equal neighbours as one group."""
    runs = ((group, len(list(run))) for group, run in groupby(groups))
    return tuple(group.model_copy(update={"count": length}) for group, length in runs)


def _check_devices_of(churn: ChurnSection, names: Sequence[str]) -> None:
    """Refuse entries of which it is unclear whom they are of."""
    for key, device in churn.devices():
        where = f"fleet.churn.{key}.device is {device!r}"
        if isinstance(device, int):
            if names:
                raise ScenarioError(
                    f"{where}, but devices have names here and are numbered in the order of names; "
                    "the number may mean another device: write its name, such as "
                    f"{names[device]!r}"
                )
        elif not names:
            raise ScenarioError(f"{where}, but devices have no names here; write its number")
        elif device not in names:
            remedy = did_you_mean(device, names, f"among their names are {_some(names)}")
            raise ScenarioError(f"{where}, the name of no device; {remedy}")


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
