"""Whatever was lost and done again: no round of a device is counted twice, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgesim.fleet.run_directory import RunDirectory, RunDirectoryError
from edgesim.preparation import Prepared
from topologies import Presence


def check_rounds(prepared: Prepared, directory: RunDirectory) -> None:
    """Make sure that rounds.parquet has one row for each round in which a device took part.

    How many rounds a device has done its final model knows.

    Raises:
        RunDirectoryError: a round is missing, or is there twice.
    """
    last_moment = prepared.training.num_rounds
    rounds_done = {
        device: directory.read_final_model(last_moment, device).rounds_done
        for device in range(prepared.scenario.fleet.num_devices)
    }
    rows = directory.read_table("rounds.parquet", ["device", "round"])
    if wrong := first_irregularity(rows, rounds_done, prepared.schedule.presence):
        raise RunDirectoryError(
            f"{directory.place}/rounds.parquet {wrong}: either files of the run were lost, or this "
            "is an error in edgesim, please report it; what was recorded is kept"
        )


def first_irregularity(
    rows: pa.Table, rounds_done: Mapping[int, int], presence: Presence
) -> str | None:
    """What is wrong with the rows of some devices, or nothing.

    Args:
        rows: with columns device and round.
        rounds_done: of each device.
        presence: who took part in which round; one that was away may have no row.
    """
    devices, rounds = (rows[name].to_numpy() for name in ("device", "round"))
    order = np.lexsort((rounds, devices))
    devices, rounds = devices[order], rounds[order]
    for device, done in rounds_done.items():
        first, last = np.searchsorted(devices, [device, device + 1])
        own: NDArray[np.int64] = rounds[first:last]
        expected = np.array([0, *(own + 1)])
        found = np.array([*own, max(done, expected[-1])])
        for place in np.flatnonzero(found != expected):
            if found[place] < expected[place]:
                return f"has round {found[place]} of device {device} twice"
            for missing in range(expected[place], found[place]):
                if presence.is_present(device, missing):
                    return f"lacks round {missing} of device {device}"
    return None
