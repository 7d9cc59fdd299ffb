"""Checks that each round, message and evaluation of a run is there exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgesim.assembly.preparation import Prepared
from edgesim.results.columns import first_irregularity, first_miscount
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import REMEDY, RunDirectoryError

_TABLES = tuple(f"{name}.parquet" for name in ("rounds", "messages", "evaluations", "devices"))


def check_rounds(prepared: Prepared, directory: RunDirectory) -> None:
    """Make sure that all rounds and messages are there, once.

    rounds.parquet has one row for each round in which a device took part; how many rounds a device
    has done its final model knows. messages.parquet has as many rows of a round as the round's row
    says.

    Raises:
        RunDirectoryError: a round or a message is missing, or is there twice.
    """
    last_evaluation = prepared.training.num_rounds
    rounds_done = {
        device: directory.read_final_model(last_evaluation, device).rounds_done
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


def check_finished(directory: RunDirectory, summary: Mapping[str, Any]) -> None:
    """Make sure that what a finished run left is all there, and as it was written.

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
