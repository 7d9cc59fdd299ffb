"""How each device fared: what it did, spent and sent, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgesim.assembly.equipment import device_profiles
from edgesim.report.activity import radio_seconds
from edgesim.report.evaluations import last_of_devices
from edgesim.report.frames import Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.results.columns import OWN_EVALUATIONS

_SUMS = (
    "sent_bytes",
    "received_bytes",
    "messages_sent",
    "retransmitted_bytes",
    "virtual_compute_s",
    "virtual_wait_s",
    "energy_j",
    "energy_compute_j",
    "energy_memory_j",
    "energy_radio_j",
    "energy_idle_j",
)


def device_table(run: ReportedRun) -> Frame:
    """One row per device: totals of its rounds, its last figures, and how it ended.

    The columns are `device`, `name`, `profile` where devices have one, `rounds`, `steps` (rounds
    with a step of training), `first_round`, `last_round`, sums of columns of rounds.parquet,
    `step_rounds_s` (computing in rounds with a step), `radio_busy_s` (awake seconds of sending),
    `virtual_time_s` of its last round, `asleep_s` (asleep or absent), `battery_j` and
    `charge_left_j` where there are batteries, `accuracy` and `loss` of its own model in the last
    evaluation of devices, `own_accuracy` and `own_loss` where devices have held-out samples of
    their own, and `end`: `there`, `absent`, `left` or `died`; empty while it is not known.
    """
    import pandas as pd

    rounds = run.by_device
    grouped = rounds.groupby("device")
    table = pd.DataFrame({"device": np.arange(run.num_devices)}).set_index("device")
    table["name"] = run.labels
    profiles = device_profiles(run.scenario) if run.scenario else ()
    if profiles:
        table["profile"] = [profile.name for profile in profiles]
    table["rounds"], table["steps"] = grouped["round"].count(), grouped["loss"].count()
    table["first_round"], table["last_round"] = grouped["round"].min(), grouped["round"].max()
    for column in _SUMS:
        if column in rounds:
            table[column] = grouped[column].sum()
    if (sending_s := radio_seconds(run)) is not None:
        table["radio_busy_s"] = sending_s
    if run.has_clock:
        with_step = rounds[rounds["loss"].notna()].groupby("device")
        table["step_rounds_s"] = with_step["virtual_compute_s"].sum()
        table["virtual_time_s"] = grouped["virtual_time_s"].max()
        rest = table["virtual_time_s"] - table["virtual_compute_s"] - table["virtual_wait_s"]
        table["asleep_s"] = rest.where(rest > 1e-9 * table["virtual_time_s"], 0.0)
    if "charge_left_j" in rounds:
        batteries = [profile.battery_j for profile in profiles]
        table["battery_j"] = np.array(batteries, float) if batteries else np.nan
        # One that was never there has all of it.
        table["charge_left_j"] = grouped["charge_left_j"].last()
        table["charge_left_j"] = table["charge_left_j"].fillna(table["battery_j"])
    own = last_of_devices(run).set_index("device")
    table["accuracy"], table["loss"] = own["accuracy"], own["loss"]
    for column in (column.name for column in OWN_EVALUATIONS if column.name in own):
        table[column] = own[column]
    missed = _rounds_missed_at_the_end(run)
    table["end"] = [_end(run, device, missed) for device in table.index]
    counts = [
        *("rounds", "steps"),
        *(c for c in ("sent_bytes", "received_bytes", "messages_sent") if c in table),
    ]
    table[counts] = table[counts].fillna(0).astype("int64")
    return table.reset_index()


def _end(run: ReportedRun, device: int, missed: Mapping[int, int]) -> str:
    """Whether a device was there at the end, as far as summary.json says."""
    summary: dict[str, Any] = run.run.summary
    if not run.is_finished:
        return ""
    if str(device) in summary.get("dead_devices", {}):
        return "died"
    if str(device) in summary.get("left_after_round", {}):
        return "left"
    return "absent" if missed.get(device) else "there"


def _rounds_missed_at_the_end(run: ReportedRun) -> dict[int, int]:
    """Rounds of the fleet after the last one of a device in lockstep that has not left."""
    if run.is_free or not run.is_finished:
        return {}
    left = run.run.summary.get("left_after_round", {})
    last = run.rounds.groupby("device")["round"].max()
    end = int(last.max())
    return {
        device: end - int(last.get(device, -1))
        for device in range(run.num_devices)
        if str(device) not in left
    }


def join_rounds(run: ReportedRun) -> dict[int, int]:
    """Rounds in which devices join a fleet in lockstep, by plan; of those that join later."""
    joins = (run.settings["fleet"].get("churn") or {}).get("joins") or ()
    found = {}
    for join in joins:
        if (number := join.get("round")) is not None:
            named = join["device"]
            device = run.labels.index(named) if isinstance(named, str) else int(named)
            found[device] = int(number)
    return found


def rounds_missed(run: ReportedRun) -> dict[int, int]:
    """Rounds that a device took no part in after it had joined and before it left, by device.

    Only devices in lockstep miss rounds; at free pace an absence is time in which nothing is done.
    Of an unfinished run those until the last round of the device are counted.
    """
    if run.is_free:
        return {}
    after, joins = _rounds_missed_at_the_end(run), join_rounds(run)
    grouped = run.rounds.groupby("device")["round"]
    last, done = grouped.max(), grouped.count()
    found = {}
    for device in range(run.num_devices):
        until = int(last.get(device, -1)) + 1 + after.get(device, 0)
        missed = until - joins.get(device, 0) - int(done.get(device, 0))
        if missed > 0:
            found[device] = missed
    return found
