"""The metrics of a run as named numbers at steps, as trackers of experiments take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgesim.errors import EdgesimError
from edgesim.fleet.recording.fleet_state import FleetState, samples

_PLACE = {"round", "device", "model", "name"}  # what says which evaluation a row is, not a figure


class MissingPackageError(EdgesimError, ValueError):
    """A sink needs a package that is not installed."""


def state_values(fleet: FleetState, most_devices: int) -> dict[str, float]:
    """Metrics of the fleet and, of small fleets, of each device, by name.

    Args:
        fleet: its state.
        most_devices: a larger fleet has no metrics of single devices.
    """
    return {
        "/".join((sample.metric.name, *sample.labels)): sample.value
        for sample in samples(fleet, most_devices)
        if not sample.metric.name.startswith("evaluation_")
    }


def evaluation_values(rows: Sequence[Mapping[str, Any]]) -> tuple[int, dict[str, float]]:
    """Rounds done, and the figures of the averaged model, of one evaluation."""
    row = rows[0]
    values = {
        f"evaluation_{name}": float(value)
        for name, value in row.items()
        if name not in _PLACE and isinstance(value, int | float) and value == value
    }
    return int(row["round"]), values


def summary_values(summary: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Rounds, and the totals of the fleet at the end, of the content of summary.json."""
    names = ("sent_bytes", "received_bytes", "energy_j")
    values = {f"fleet_{name}": float(summary[name]) for name in names if name in summary}
    return int(summary["rounds"]), values
