"""Who was not there at the end of a run at free pace, and what mass went with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgesim.attendance import make_attendance
from edgesim.records import device_label
from edgesim.scenario.schema import Scenario
from edgesim.snapshot import Snapshot

NAMED_DEVICES = 8  # in words; the summary has all


def departures(
    scenario: Scenario, ends: Sequence[Snapshot], num_sent: int, num_absorbed: int
) -> dict[str, Any]:
    """What summary.json says of those who left or died, and of those who joined in vain.

    Args:
        scenario: of the run.
        ends: what each device ended with, in the order of devices.
        num_sent: messages of the whole run.
        num_absorbed: of these; all others were lost on their way to devices that had died.
    """
    attendance = make_attendance(scenario)
    began = sum(attendance.join_s(device) == 0 for device in range(scenario.fleet.num_devices))
    lost = num_sent - num_absorbed
    return {
        "left_after_round": {
            str(end.device): end.rounds_done - 1 for end in ends if end.gone == "left"
        },
        "dead_devices": {
            str(end.device): {
                "rounds": end.rounds_done,
                "virtual_time_s": end.virtual_time_s,
                "push_weight": end.u,
            }
            for end in ends
            if end.gone == "died"
        },
        "messages_lost": lost,
        "push_weight_lost": began - sum(end.u for end in ends) if lost else 0.0,
        "without_model": [end.device for end in ends if end.u == 0 and end.gone is None],
    }


def describe(summary: dict[str, Any]) -> list[str]:
    """The same in words, a line each; none if everybody was there at the end."""
    dead, num_devices = summary.get("dead_devices", {}), summary["devices"]

    def label(device: int | str) -> str:
        return device_label(int(device), summary.get("device_names", ()))

    lines = [
        f"{label(device)} died of an empty battery after {end['rounds']:,} rounds, at "
        f"{end['virtual_time_s']:,.4g} s, with a push weight of {end['push_weight']:.3g}"
        for device, end in list(dead.items())[:NAMED_DEVICES]
    ]
    if len(dead) > NAMED_DEVICES:
        lines.append(f"and so did {len(dead) - NAMED_DEVICES:,} more devices, see summary.json")
    if summary.get("messages_lost"):
        lines.append(
            f"{summary['messages_lost']:,} messages to dead devices were lost, with a push weight "
            f"of {summary['push_weight_lost']:.3g}"
        )
    if len(dead) == num_devices:
        lines.append(
            f"all {num_devices} devices have died; the averaged model is of what they ended with"
        )
    if without := summary.get("without_model"):
        named = ", ".join(
            label(device).removeprefix("device ") for device in without[:NAMED_DEVICES]
        )
        more = f" and {len(without) - NAMED_DEVICES:,} more" if without[NAMED_DEVICES:] else ""
        lines.append(f"device {named}{more}: no message brought a model before the end")
    return lines
