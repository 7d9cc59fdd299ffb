"""Devices that left or died, or never got a model, and the mass lost with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from edgesim.errors import count, device_label
from edgesim.results.arrow_table import numbers_of
from edgesim.results.snapshot import Snapshot
from edgesim.scenario.presence import make_timed_churn
from edgesim.scenario.schema import Scenario
from topologies import Presence

NAMED_DEVICES = 8  # in words; the summary has all


def stay_warning(
    scenario: Scenario, presence: Presence, left: Collection[str], num_rounds: int
) -> str | None:
    """That devices in lockstep were to leave and are still there; None if all have left.

    Args:
        scenario: of the run.
        presence: of its devices, by plan.
        left: devices that left.
        num_rounds: of the run.
    """
    stayed = []
    for device in range(scenario.fleet.num_devices):
        leave = presence.leave_round(device)
        if leave is not None and leave < num_rounds and str(device) not in left:
            stayed.append(f"{scenario.fleet.label(device)} was to leave in round {leave:,}")
    if not stayed:
        return None
    more = f", and {len(stayed) - NAMED_DEVICES:,} more" if stayed[NAMED_DEVICES:] else ""
    return (
        f"{', '.join(stayed[:NAMED_DEVICES])}{more}; no neighbour was there in a turn to leave, so "
        "they stayed"
    )


def without_model(rounds: pa.Table, left: Collection[str], presence: Presence) -> list[int]:
    """Devices that joined in lockstep, are there at the end and never got a model.

    Those without mass that were there from the start had some: FedAvg's in cycles without them.

    Args:
        rounds: rows of rounds.parquet.
        left: devices that left.
        presence: of the devices, by plan.
    """
    if (numbers_of(rounds["push_weight"]) != 0).all():
        return []
    return [
        device
        for device, u in last_push_weights(rounds).items()
        if u == 0 and str(device) not in left and presence.join_round(device) > 0
    ]


def last_push_weights(rounds: pa.Table) -> dict[int, float]:
    """Push weight of each device after its last round; without devices that had none.

    Args:
        rounds: rows of rounds.parquet.
    """
    columns = rounds.select(["device", "round", "push_weight"]).sort_by(
        [("device", "ascending"), ("round", "ascending")]
    )
    devices, weights = (columns[name].to_pylist() for name in ("device", "push_weight"))
    return dict(zip(devices, weights, strict=True))  # of each device the last one stays


def departures(
    scenario: Scenario, ends: Sequence[Snapshot], num_sent: int, num_absorbed: int
) -> dict[str, Any]:
    """Entries of summary.json about devices that left or died, or joined and never got mass.

    Args:
        scenario: of the run.
        ends: what each device ended with, in the order of devices.
        num_sent: messages of the whole run.
        num_absorbed: of these; all others were lost on their way to devices that had died.
    """
    timed_churn = make_timed_churn(scenario)
    began = sum(timed_churn.join_s(device) == 0 for device in range(scenario.fleet.num_devices))
    lost = num_sent - num_absorbed
    left = {str(end.device): end.rounds_done - 1 for end in ends if end.gone == "left"}
    return {
        "left_after_round": left,
        "left_because": dict.fromkeys(left, "plan"),  # the others of the table have died
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
    """Lines of text about these devices; none if all were present at the end."""
    dead, num_devices = summary.get("dead_devices", {}), summary["devices"]

    def label(device: int | str) -> str:
        return device_label(int(device), summary.get("device_names", ()))

    lines = [
        f"{label(device)} died of an empty battery after {count(end['rounds'], 'round')}, at "
        f"{end['virtual_time_s']:,.4g} s, with a push weight of {end['push_weight']:.3g}"
        for device, end in list(dead.items())[:NAMED_DEVICES]
    ]
    if len(dead) > NAMED_DEVICES:
        more = count(len(dead) - NAMED_DEVICES, "more device")
        lines.append(f"and so did {more}, see summary.json")
    if lost := summary.get("messages_lost"):
        were = "was" if lost == 1 else "were"
        lines.append(
            f"{count(lost, 'message')} to dead devices {were} lost, with a push weight "
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
        devices, them = ("device", "it") if len(without) == 1 else ("devices", "them")
        lines.append(
            f"{devices} {named}{more} got no model: no message reached {them} before the run ended"
        )
    return lines
