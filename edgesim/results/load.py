"""Reads a run directory back, with pandas; needs neither torch nor Ray."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.errors import EdgesimError, device_label
from edgesim.results.columns import (
    CONSENSUS,
    DEVICES,
    EVALUATIONS,
    MESSAGES,
    ROUNDS,
    Column,
    arrow_schema,
    with_names,
)
from edgesim.results.models import Models
from edgesim.results.regularity import first_irregularity, first_miscount
from edgesim.results.run import Run
from edgesim.results.run_files import FIRST_FILES, REMEDY, RunDirectoryError, RunFiles, number_of
from edgesim.results.scenario_of_run import num_devices_of, scenario_of_run
from edgesim.results.totals import with_totals
from edgesim.storage.store import StorageError, Store
from topologies import EVERYONE, Presence

if TYPE_CHECKING:
    import pandas as pd

_TABLES = ("rounds.parquet", "messages.parquet", "evaluations.parquet", "devices.parquet")
_SUMMARY = "summary.json"
_LENGTHS = (("rounds", "rounds"), ("epochs", "epochs"), ("virtual_time_s", "virtual seconds"))


class ResultsError(EdgesimError, ValueError):
    """A finished run that lacks a file."""


class UnfinishedRunWarning(UserWarning):
    """A run has not ended; its tables hold what it has recorded so far."""


def load_run(place: str | Path) -> Run:
    """Load the tables of a run and check them, each against its checksum and against the others.

    An unfinished run is loaded as far as it is recorded, with an `UnfinishedRunWarning`.

    Args:
        place: run directory; a path, or a URI that fsspec knows.

    Raises:
        ResultsError: a table of a finished run is missing.
        RunDirectoryError: the place is no run directory; or one of its files is damaged, belongs to
            another run, or contradicts another file.
        StorageError: the place cannot be read.
    """
    files = RunFiles(Store.at(place))
    _ = files.run_digest  # whether it is a run at all
    files.check_summary()
    if not files.has(_SUMMARY):
        try:
            run = _load_unfinished(files)
        except StorageError:
            if not files.has(_SUMMARY):  # otherwise it has ended meanwhile
                raise
        else:
            warnings.warn(
                f"{files.place}: this run is unfinished; these are the {len(run.rounds)} rounds of "
                f"its devices that are written so far; missing: {'; '.join(run.missing)}",
                UnfinishedRunWarning,
                stacklevel=2,
            )
            return run
    missing = [name for name in (*_TABLES, *FIRST_FILES) if not files.has(name)]
    if missing:
        raise ResultsError(
            f"{files.place}: lacks {', '.join(missing)}; bring it back from a copy, or start the "
            "run anew"
        )
    rounds, messages, evaluations, devices = (_frame(files, name) for name in _TABLES)
    scenario = files.read_settings()
    files.read_json("environment.json")  # to check it
    run = Run(
        files.place,
        rounds,
        messages,
        with_totals(evaluations, rounds, scenario, is_finished=True),
        devices,
        files.read_json(_SUMMARY),
        models=Models(files, len(devices)),
        missing=(),
    )
    _check_agreement(run)
    return run


def _check_agreement(run: Run) -> None:
    """Check that all tables are from the end of the run; an undamaged table may be older.

    Raises:
        RunDirectoryError: a table contradicts another one.
    """
    summary, consensus = run.summary, run.evaluations[run.evaluations["model"] == "consensus"]
    wrong = None
    if summary.get("sent_bytes", 0) != run.rounds["sent_bytes"].sum():
        wrong = "rounds.parquet: does not add up to the bytes sent in summary.json"
    elif len(consensus) and _last_accuracy(consensus) != summary.get("consensus_accuracy"):
        wrong = "evaluations.parquet: does not end with the accuracy in summary.json"
    elif miscount := first_miscount(run.rounds, run.messages):
        wrong = f"messages.parquet: {miscount}"
    if wrong:
        raise RunDirectoryError(f"{run.place}/{wrong}; {REMEDY}")


def _last_accuracy(consensus: pd.DataFrame) -> float | None:
    """Accuracy of the last evaluation; None if the task has none."""
    accuracy = consensus["accuracy"].iloc[-1]
    return None if accuracy is None or accuracy != accuracy else float(accuracy)


def _load_unfinished(files: RunFiles) -> Run:
    scenario = _scenario_of(files)
    names = scenario.get("fleet", {}).get("names", [])
    saved = _rounds_saved(files)  # first: parts are written before checkpoints
    rounds = _joined(files, "rounds", ROUNDS, ["round", "device"], names)
    order = ["round", "sender", "receiver", "device"]
    messages = _joined(files, "messages", MESSAGES, order, names)
    handovers = messages[messages["kind"] == "handover"].groupby("device")["round"].max()
    # The last two checkpoints of a leaver are no rounds of it.
    for device, last in zip(handovers.index.tolist(), handovers.tolist(), strict=True):
        saved[device] = min(saved.get(device, 0), last + 1)
    if wrong := _first_gap(files, rounds, saved, scenario):
        raise RunDirectoryError(f"{files.place}/parts: {wrong}; {REMEDY}")
    # The messages of a part are written just before its rounds.
    keys, known = (frame.set_index(["device", "round"]).index for frame in (messages, rounds))
    messages = messages[keys.isin(known)].reset_index(drop=True)
    if miscount := first_miscount(rounds, messages):
        raise RunDirectoryError(f"{files.place}/parts: {miscount}; {REMEDY}")
    evaluations = (
        _frame(files, "evaluations.parquet")
        if files.has("evaluations.parquet")
        else _empty(EVALUATIONS)
    )
    return Run(
        files.place,
        rounds=rounds,
        messages=messages,
        evaluations=with_totals(evaluations, rounds, scenario, is_finished=False),
        devices=_empty(DEVICES),
        summary={},
        models=Models(None),
        missing=_missing(rounds, evaluations, scenario, _num_rounds(files)),
        _about={
            "name": scenario.get("name"),
            "seed": scenario.get("seed"),
            "devices": num_devices_of(scenario) or 0,
        },
    )


def _num_rounds(files: RunFiles) -> int | None:
    """Rounds of a device by the end of a run; None if the run does not say."""
    name = "environment.json"
    number = files.read_json(name).get("rounds") if files.has(name) else None
    return number if isinstance(number, int) else None


def _missing(
    rounds: pd.DataFrame,
    evaluations: pd.DataFrame,
    scenario: Mapping[str, Any],
    num_rounds: int | None,
) -> tuple[str, ...]:
    """What an unfinished run lacks, a line each."""
    training, names = scenario.get("training", {}), scenario.get("fleet", {}).get("names", ())
    lengths = [f"{training[key]:,g} {unit}" for key, unit in _LENGTHS if training.get(key)]
    wanted = f"; the run is of {' or '.join(lengths)}" if lengths else ""
    is_known = num_rounds is not None and not training.get("virtual_time_s")
    of_all = f" of {num_rounds:,} rounds" if is_known else ""
    ends = rounds.groupby("device", as_index=False)["round"].max()
    last = dict.fromkeys(range(num_devices_of(scenario) or 0), -1)
    last |= dict(zip(ends["device"].tolist(), ends["round"].tolist(), strict=True))
    churn = scenario.get("fleet", {}).get("churn") or {}
    for entry in (*churn.get("joins", ()), *churn.get("leaves", ())):
        device = entry["device"]  # it has fewer rounds than the run
        last.pop(list(names).index(device) if device in names else device, None)
    done = "rounds: none is written"
    if last and not rounds.empty:
        slowest = min(last, key=lambda device: last[device])
        written = f"{last[slowest] + 1:,}{of_all} written"
        done = f"rounds: {device_label(slowest, names)} has {written}"
        wanted = "" if of_all else wanted
    number = int((evaluations["device"] == CONSENSUS).sum())
    return (
        f"{done}{wanted}",
        f"evaluations: {number:,} are made; the last one is missing or not confirmed",
        "devices, summary and final models, which a run writes at its end",
    )


def _joined(
    files: RunFiles,
    table: str,
    columns: tuple[Column, ...],
    order: list[str],
    names: Sequence[str],
) -> pd.DataFrame:
    """Rows of all parts of a table, in the order of the table, with the names of devices."""
    import pandas as pd

    tables = (files.read_table(name) for name in files.part_names(table))
    parts = [with_names(table, names).to_pandas() for table in tables]
    if not parts:
        return _empty(columns)
    frame: pd.DataFrame = pd.concat(parts).sort_values(order, ignore_index=True)
    return frame


def _rounds_saved(files: RunFiles) -> dict[int, int]:
    """Number of rounds that each device had recorded before its newest checkpoint."""
    saved: dict[int, int] = {}
    for name in files.own_names("checkpoints/*/round-*.ckpt"):
        device = number_of(f"{name.split('/')[1]}.")
        saved[device] = max(saved.get(device, 0), number_of(name))
    return saved


def _first_gap(
    files: RunFiles, rounds: pd.DataFrame, saved: Mapping[int, int], scenario: Mapping[str, Any]
) -> str | None:
    """A recorded round that is missing or is there twice; empty if there is none."""
    presence = _presence(files, scenario)
    last = rounds.groupby("device", as_index=False)["round"].max()
    recorded = dict(zip(last["device"].tolist(), (last["round"] + 1).tolist(), strict=True))
    done = {d: max(saved.get(d, 0), recorded.get(d, 0)) for d in sorted({*saved, *recorded})}
    return first_irregularity(rounds, done, presence)


def _presence(files: RunFiles, scenario: Mapping[str, Any]) -> Presence:
    """Devices that took part in each round."""
    fleet = scenario.get("fleet", {})
    if not fleet.get("churn"):
        return EVERYONE
    from edgesim.scenario.presence import make_presence

    return make_presence(scenario_of_run(files))


def _scenario_of(files: RunFiles) -> dict[str, Any]:
    """Content of scenario.yaml; empty if the file does not exist."""
    # Without it the run was interrupted at its start.
    return files.read_settings() if files.has("scenario.yaml") else {}


def _frame(files: RunFiles, name: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(BytesIO(files.read(name)))


def _empty(columns: tuple[Column, ...]) -> pd.DataFrame:
    frame: pd.DataFrame = arrow_schema(columns).empty_table().to_pandas()
    return frame
