"""Checks that each round, message and evaluation of a run is recorded exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgesim.results.regularity import first_irregularity, first_miscount
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import REMEDY, RunDirectoryError
from topologies import Presence

_TABLES = tuple(f"{name}.parquet" for name in ("rounds", "messages", "evaluations", "devices"))


def check_rounds(
    directory: RunDirectory, *, num_devices: int, num_rounds: int, presence: Presence
) -> None:
    """Check that all rounds and messages are recorded exactly once.

    rounds.parquet has one row for each round in which a device took part. A device's final model
    says how many rounds the device has done. The number of rows of a round in messages.parquet is
    that of the column messages_sent.

    Args:
        directory: of the run.
        num_devices: of the fleet.
        num_rounds: of every device that stays to the end; the number of the last evaluation.
        presence: which devices are there in which round.

    Raises:
        RunDirectoryError: a round or a message is missing, or is there twice.
    """
    rounds_done = {
        device: directory.rounds_of_final_model(num_rounds, device) for device in range(num_devices)
    }
    rows = directory.read_table("rounds.parquet", ["device", "round", "messages_sent"])
    if wrong := first_irregularity(rows, rounds_done, presence):
        raise _lost(directory, "rounds.parquet", wrong)
    messages = directory.read_table("messages.parquet", ["device", "round"])
    if wrong := first_miscount(rows, messages):
        raise _lost(directory, "messages.parquet", wrong)


def check_evaluations(directory: RunDirectory, num_due: int) -> None:
    """Check that evaluations.parquet has all `num_due` evaluations.

    Raises:
        RunDirectoryError: one is missing, or is there twice.
    """
    if (num_done := directory.num_evaluated()) != num_due:
        wrong = f"has {num_done} evaluations instead of {num_due}"
        raise _lost(directory, "evaluations.parquet", wrong)


def check_finished(directory: RunDirectory, summary: Mapping[str, Any]) -> None:
    """Check that all files of a finished run exist and are undamaged.

    Args:
        directory: of the run.
        summary: of the run, as in summary.json.

    Raises:
        RunDirectoryError: a file is missing or damaged; which one.
    """
    for name in ("scenario.yaml", "environment.json", *_TABLES):
        if not directory.has(name):
            raise RunDirectoryError(f"{directory.place}/{name}: missing; {REMEDY}")
        directory.read(name)
    for device in range(summary["devices"]):
        directory.check_final_model(device)


def _lost(directory: RunDirectory, table: str, wrong: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{directory.place}/{table} {wrong}: either files of the run were lost, or this is an "
        "error in edgesim, please report it; what was recorded is kept"
    )
