"""Figures of devices that look like a slip of units: milliwatts for watts, mAh for Wh."""

from __future__ import annotations

from collections.abc import Iterator

from edgesim.assembly.equipment import figure, named_profiles
from edgesim.hardware.profiles import DeviceProfile
from edgesim.scenario.hardware import DeviceGroup, given
from edgesim.scenario.schema import Scenario
from edgesim.study.notices.batteries import NAMED_NOTICES

_LARGE_WH = 1000.0  # a battery of an electric bicycle has half of it
_FAR = 50.0  # times the figure of the profile that an item of fleet.devices names


def slip_notices(scenario: Scenario) -> list[str]:
    """Batteries of 1 kWh or more, and items of `fleet.devices` that are far off their profile.

    Radios are left out: another radio of the same board may be thousands of times slower.

    Args:
        scenario: its devices may have profiles.
    """
    found: dict[str, str] = {}  # the first device of each figure
    device, bases = 0, named_profiles(scenario)
    for group in scenario.fleet.groups:
        for said in _slips(bases[group.profile], group):
            found.setdefault(said, scenario.fleet.label(device))
        device += group.count
    return [f"{label}: {said}" for said, label in found.items()][:NAMED_NOTICES]


def _slips(base: DeviceProfile, group: DeviceGroup) -> Iterator[str]:
    """What is odd about the devices of an item."""
    changed = given(group)
    battery = changed.pop("battery_wh", figure(base, "battery_wh"))
    if isinstance(battery, float | int) and battery >= _LARGE_WH:
        yield (
            f"battery_wh is {battery:,g}, which is {battery / 1e3:,g} kWh; if that is a number of "
            "mAh, write mAh x volts / 1,000"
        )
    for key, value in changed.items():
        of_profile = figure(base, key)
        if value and of_profile and not 1 / _FAR < value / of_profile < _FAR:
            times = max(value / of_profile, of_profile / value)
            yield (
                f"{key} is {value:,g}, and {group.profile} has {of_profile:,.4g}, a factor of "
                f"{times:,.0f}; is it in the unit of the key?"
            )
