"""Whatever was lost and done again: nothing of a run is there twice, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgesim.fleet.run_directory import RunDirectory
from edgesim.preparation import Prepared
from edgesim.records import first_miscount
from edgesim.run_files import RunDirectoryError
from topologies import Presence


def check_rounds(prepared: Prepared, directory: RunDirectory) -> None:
    """Make sure that all rounds and messages are there, once.

    rounds.parquet has one row for each round in which a device took part; how many rounds a device
    has done its final model knows. messages.parquet has as many rows of a round as the round's row
    says.

    Raises:
        RunDirectoryError: a round or a message is missing, or is there twice.
    """
    last_moment = prepared.training.num_rounds
    rounds_done = {
        device: directory.read_final_model(last_moment, device).rounds_done
        for device in range(prepared.scenario.fleet.num_devices)
    }
    rows = directory.read_table("rounds.parquet", ["device", "round", "messages_sent"])
    if wrong := first_irregularity(rows, rounds_done, prepared.schedule.presence):
        raise _lost(directory, "rounds.parquet", wrong)
    messages = directory.read_table("messages.parquet", ["device", "round"])
    if wrong := first_miscount(rows, messages):
        raise _lost(directory, "messages.parquet", wrong)


def check_evaluations(prepared: Prepared, directory: RunDirectory) -> None:
    """Make sure that each evaluation that was due is in evaluations.parquet.

    Raises:
        RunDirectoryError: one is missing, or is there twice.
    """
    num_due = len(prepared.training.evaluation_rounds)
    if (num_done := directory.num_evaluated()) != num_due:
        wrong = f"has {num_done} evaluations instead of {num_due}"
        raise _lost(directory, "evaluations.parquet", wrong)


def _lost(directory: RunDirectory, table: str, wrong: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{directory.place}/{table} {wrong}: either files of the run were lost, or this is an "
        "error in edgesim, please report it; what was recorded is kept"
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
