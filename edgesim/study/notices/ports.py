"""Full-duplex ports that receive more at once than their rate, which clocks do not count."""

from __future__ import annotations

from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.neighbours import rounds_of_period
from edgesim.assembly.studied_scenario import StudiedScenario

_MANY = 3  # messages in a round from which on a notice is due
_NAMED = 2  # devices with their figures


def port_notices(studied: StudiedScenario) -> list[str]:
    """Devices whose full-duplex port gets more bits a second than its rate.

    A clock has it receive any number of messages at once, each at the rate of its link.

    Args:
        studied: the scenario, as objects.
    """
    scenario, schedule = studied.scenario, studied.schedule
    hardware = device_hardware(scenario, schedule)
    if all(each.is_half_duplex for each in hardware):
        return []
    rounds, told = rounds_of_period(schedule), []
    for device, own in enumerate(hardware):
        if own.is_half_duplex:
            continue
        senders = max((schedule.in_neighbors(device, r) for r in rounds), key=len, default=())
        rate_bps = sum(hardware[sender].links[device].bandwidth_bps for sender in senders)
        times = rate_bps / own.profile.radio.bandwidth_bps
        if len(senders) >= _MANY and times > 1:
            told.append(
                f"{scenario.fleet.label(device)} receives up to {len(senders)} messages at once, "
                f"at {times:.3g} times the rate of its port"
            )
    if not told:
        return []
    more = len(told) - _NAMED
    first = "; ".join(told[:_NAMED]) + (f"; so do {more:,} more" if more > 0 else "")
    said = (
        f"network: {first}: times are too short; network.half_duplex: true has ports receive one "
        "message after the other, and send none meanwhile"
    )
    return [said]
