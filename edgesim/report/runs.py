"""Loads the runs of a report, and refuses those that can't be compared."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgesim.errors import EdgesimError
from edgesim.report.errors import NothingRecordedError, ReportError
from edgesim.report.reported_run import ReportedRun
from edgesim.report.run_settings import groups_of, known_part, labels_of, written
from edgesim.report.units import listed
from edgesim.results.load import UnfinishedRunWarning, load_run
from edgesim.results.run_files import ABOUT, RunDirectoryError, RunFiles
from edgesim.results.scenario_of_run import scenario_of_run
from edgesim.scenario.plain import value_of
from edgesim.scenario.schema import Scenario
from edgesim.storage.store import Store


def load_runs(places: Sequence[str | Path], *, are_compared: bool = True) -> list[ReportedRun]:
    """Load runs, check that they can be compared, and give each a label.

    Args:
        places: run directories, paths or URIs; or folders of this machine with runs in them, of
            which those are left out that have recorded nothing yet.
        are_compared: refuse runs of which accuracies measure different things.

    Raises:
        EdgesimError: a place is no run, holds no round yet, or its files are damaged.
        ReportError: two runs cannot be compared.
    """
    found = [run for place in places for run in _load_all(place)]
    if are_compared:
        check_comparable(found)
    groups, labels = groups_of(found), labels_of(found)
    return [
        replace(run, label=label, group=group)
        for run, label, group in zip(found, labels, groups, strict=True)
    ]


def _load_all(place: str | Path) -> list[ReportedRun]:
    """The run at a place, or all runs of a folder."""
    store = Store.at(place)
    if not store.is_local or store.exists(ABOUT) or not store.path.is_dir():
        return [_load(place)]
    folders = sorted(
        path.parent for depth in ("*", "*/*") for path in store.path.glob(f"{depth}/{ABOUT}")
    )
    found, without = [], []
    for folder in folders:
        try:
            found.append(_load(folder))
        except NothingRecordedError:
            without.append(folder.name)
    if found and without:
        words = f"runs of the folder that have recorded nothing yet: {listed(without)}"
        found[0] = replace(found[0], missing=(*found[0].missing, words))
    return found or [_load(folders[0] if folders else place)]


def _load(place: str | Path) -> ReportedRun:
    missing: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = load_run(place)
    for warning in caught:
        if not issubclass(warning.category, UnfinishedRunWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if run.rounds.empty:
        raise NothingRecordedError(
            f"{run.place}: no round of this run is recorded yet; report it later"
        )
    files = RunFiles(Store.at(place))
    settings = files.read_settings()
    environment = files.read_json("environment.json") if files.has("environment.json") else {}
    if not run.is_finished:
        missing.append(
            "labels, memory and the closing figures of devices, which are written when a run ends"
        )
        if run.evaluations.empty:
            missing.append("accuracy and loss of models: none has been evaluated yet")
    scenario: Scenario | None = None
    try:
        scenario = scenario_of_run(files)
    except RunDirectoryError:
        raise
    except EdgesimError as error:
        missing.append(f"what follows from its scenario, which this edgesim cannot read: {error}")
    return ReportedRun(
        run, settings, environment, scenario, run.place, "", tuple(missing), files.run_digest
    )


def check_comparable(runs: Sequence[ReportedRun]) -> None:
    """Refuse runs of which accuracies and losses measure different things."""
    first = runs[0]
    for other in runs[1:]:
        for key in ("data.source", "data.options", "training.task", "training.task_options"):
            one, two = (value_of(run.settings, key) for run in (first, other))
            parts = known_part(first, written(one)), known_part(other, written(two))
            if one != two and parts[0] != parts[1]:
                raise ReportError(
                    f"{first.run.place} and {other.run.place} can't be compared: {key} is "
                    f"{written(one)} in the first and {written(two)} in the second; report them "
                    "apart"
                )
        for key in ("data.source", "training.task"):
            one, two = (_code_digest(run, key) for run in (first, other))
            if one and two and one != two:
                raise ReportError(
                    f"{first.run.place} and {other.run.place} can't be compared: the code of {key} "
                    "was changed between the two; report them apart"
                )


def _code_digest(run: ReportedRun, key: str) -> str | None:
    """Digest of one's own code that a setting names; None of a part that edgesim has."""
    parts: Mapping[str, str] = run.environment.get("own_parts", {})
    return parts.get(str(value_of(run.settings, key)))
