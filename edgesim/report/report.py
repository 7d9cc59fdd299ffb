"""The report of one run or several: which parts it has, and where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgesim.report.ends import device_table
from edgesim.report.errors import ReportError
from edgesim.report.figures.breakdowns import (
    bytes_figure,
    compute_figure,
    energy_figure,
    label_figure,
    label_skew,
    label_table,
    memory_figure,
)
from edgesim.report.figures.comparison import groups_table
from edgesim.report.figures.curves import curve_figures
from edgesim.report.figures.figure import Figure
from edgesim.report.figures.graph_figure import graph_figure
from edgesim.report.figures.spending import charge_figure
from edgesim.report.figures.time_figures import time_figures
from edgesim.report.figures.training_loss import training_loss_figure
from edgesim.report.frames import Frame
from edgesim.report.page import Notes, Part, Section, page
from edgesim.report.paper import paper_table, required_paper_table
from edgesim.report.provenance import provenance_table, unlike_code
from edgesim.report.reaching import reaching_tables
from edgesim.report.reported_run import ReportedRun
from edgesim.report.runs import check_comparable, load_runs
from edgesim.report.seeds import repeated_seeds
from edgesim.report.summary import device_rows, in_short, results_table, settings_table, turned
from edgesim.report.troubles import troubles
from edgesim.storage.store import Store
from edgesim.study.tables.table import Table

FILE = "report.html"
_MOST_LINES = 30  # of the box at the top
MOST_PARTS = 6  # runs that have a part each and a column each; of more there are curves and rows


def write_report(
    places: Sequence[str | Path], out: Path | None = None, troubles: Sequence[str] = ()
) -> tuple[str, int]:
    """Write the report of runs, as one HTML page that opens without a network.

    Args:
        places: run directories; paths or URIs.
        out: file to write; None for `report.html` in the run or folder of runs, or of several
            places in this folder.
        troubles: what else went wrong, such as runs that are not there; a sentence each.

    Returns:
        Path or URI of the page, and its bytes.

    Raises:
        EdgesimError: a place is no run, or holds no round yet; the page cannot be written.
        ReportError: the runs cannot be compared.
    """
    return _write(report_page(load_runs(places), troubles), places, out)


def write_paper_report(
    places: Sequence[str | Path], out: Path | None = None, accuracies: Sequence[float] = ()
) -> tuple[list[Table], tuple[str, int]]:
    """Write a report with what the paper says beside what was measured.

    Runs of several tables cannot be compared in everything; then the page has this table alone.

    Args:
        places: see `write_report`.
        out: see `write_report`.
        accuracies: whose costs are told too, in percent; only of runs that can be compared.

    Returns:
        The table, those of the accuracies' costs, and what `write_report` returns.

    Raises:
        EdgesimError: see `write_report`.
        ReportError: no scenario of the runs has a target; or there are accuracies, and the runs
            cannot be compared or have too few evaluations.
    """
    runs = load_runs(places, are_compared=False)
    tables = [required_paper_table(runs)]
    try:
        check_comparable(runs)
    except ReportError:
        if accuracies:
            raise
        text = page("The paper and what was measured", "", [Section("", tables)])
    else:
        if accuracies:
            tables += _required_reaching_tables(runs, accuracies)
        text = report_page(runs, accuracies=accuracies or None)
    return tables, _write(text, places, out)


def write_accuracy_report(
    places: Sequence[str | Path],
    accuracies: Sequence[float],
    out: Path | None = None,
    troubles: Sequence[str] = (),
) -> tuple[list[Table], tuple[str, int]]:
    """Write a report that says what these accuracies cost.

    Args:
        places: see `write_report`.
        accuracies: in percent.
        out: see `write_report`.
        troubles: see `write_report`.

    Returns:
        What they cost, by the averaged model and by devices; and what `write_report` returns.

    Raises:
        EdgesimError: see `write_report`.
        ReportError: no run has two evaluations with an accuracy.
    """
    runs = load_runs(places)
    tables = _required_reaching_tables(runs, accuracies)
    return tables, _write(report_page(runs, troubles, accuracies), places, out)


def _required_reaching_tables(
    runs: Sequence[ReportedRun], accuracies: Sequence[float]
) -> list[Table]:
    if not (tables := reaching_tables(runs, accuracies)):
        raise ReportError(
            "--accuracy: no run has two evaluations with an accuracy yet; set "
            "evaluation.every_epochs or every_rounds"
        )
    return tables


def _write(text: str, places: Sequence[str | Path], out: Path | None) -> tuple[str, int]:
    """Write a page; `write_report` has the arguments."""
    data = text.encode()
    if out is None and len(places) == 1:
        store = Store.at(places[0])
        store.write(FILE, data)
        return f"{store.url}/{FILE}", len(data)
    path = out or Path(FILE)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise ReportError(f"--out {path}: a report is a page; its name must end in .html")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ReportError(
            f"{path}: can't be written ({error.strerror}); name another --out"
        ) from error
    return str(path), len(data)


def report_page(
    runs: Sequence[ReportedRun],
    troubles: Sequence[str] = (),
    accuracies: Sequence[float] | None = None,
) -> str:
    """HTML of the report of runs that can be compared.

    Args:
        runs: the runs.
        troubles: see `write_report`.
        accuracies: whose costs are told, in percent; None for some that follow from the runs.
    """
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # else each part of a drawing is checked when it is made: tests do that
        return _page(runs, troubles, accuracies)


def _page(
    runs: Sequence[ReportedRun], others: Sequence[str], accuracies: Sequence[float] | None
) -> str:
    devices = [device_table(run) for run in runs]
    sections = [Section("", _top(runs, devices, others))]
    curves = curve_figures(runs)
    if len(runs) == 1:
        curves.append(training_loss_figure(runs[0]))
    learning: list[Part] = [*curves, *reaching_tables(runs, accuracies)]
    if learning:
        sections.append(Section("How well the models learn", learning))
    alone = zip(runs, devices, strict=True) if len(runs) <= MOST_PARTS else ()
    for number, (run, table) in enumerate(alone):
        own = _of_run(run, table)
        sections += own if len(runs) == 1 else [_folded(run, number, own)]
    made = provenance_table(runs)
    made = made if len(runs) <= MOST_PARTS else turned(made)
    sections.append(Section("What it was made with", [made], is_open=False))
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs side by side"
    return page(f"{title}: what happened", _subtitle(runs), sections)


def _subtitle(runs: Sequence[ReportedRun]) -> str:
    if len(runs) > 1:
        return "; ".join(dict.fromkeys(run.group for run in runs))
    settings = runs[0].settings
    if not (description := settings.get("description")):
        return f"seed {settings['seed']}"
    return f"Its scenario says: {description}"  # the scenario's words, whatever --set has changed


def _top(
    runs: Sequence[ReportedRun], devices: Sequence[Frame], others: Sequence[str]
) -> list[Part]:
    parts: list[Part] = []
    several = len(runs) > 1
    others = [*others, *repeated_seeds(runs), *unlike_code(runs)]
    wrong = [troubles(run, table) for run, table in zip(runs, devices, strict=True)]
    if not several:
        wrong[0] = [*others, *wrong[0]]
        if wrong[0]:
            parts.append(Notes("What went wrong", tuple(wrong[0])))
        calm = "In short" if wrong[0] else "In short; nothing went wrong"
        parts.append(Notes(calm, tuple(in_short(runs[0], devices[0])), is_calm=True))
    elif others or any(wrong):
        lines = [*others] + [
            f"{run.label}: {line}" for run, own in zip(runs, wrong, strict=True) for line in own
        ]
        more = len(lines) - _MOST_LINES
        rest = [f"And {more:,} more; report a run alone to see all of it."] if more > 0 else []
        parts.append(Notes("What went wrong", (*lines[:_MOST_LINES], *rest)))
    if several and (settings := settings_table(runs)) is not None:
        parts.append(settings if len(runs) <= MOST_PARTS else turned(settings))
    if several and (groups := groups_table(runs, devices)) is not None:
        parts.append(groups)
    if (targets := paper_table(runs)) is not None:
        parts.append(targets)
    results = results_table(runs, devices)
    parts.append(results if len(runs) <= MOST_PARTS else turned(results))
    if len(runs) > MOST_PARTS:
        said = f"Each of up to {MOST_PARTS} runs has a part of its own; these are {len(runs)}."
        remedy = "Report one alone to see its devices, its times and what it spent."
        parts.append(Notes("Single runs", (said, remedy), is_calm=True))
    return parts


def _folded(run: ReportedRun, number: int, sections: Sequence[Section]) -> Section:
    """All parts about one run of several, to be opened; keys of figures get its number."""
    parts = [
        replace(part, key=f"run-{number + 1}-{part.key}") if isinstance(part, Figure) else part
        for section in sections
        for part in section.parts
    ]
    loss = training_loss_figure(run)
    parts.insert(1, replace(loss, key=f"run-{number + 1}-{loss.key}"))
    return Section(f"Run {number + 1}: {run.label}", parts, is_open=False)


def _of_run(run: ReportedRun, devices: Frame) -> list[Section]:
    """Parts of a report about one run alone."""
    labels = label_table(run)
    held: list[Figure | None] = []
    if labels is not None:
        devices = devices.assign(label_skew=label_skew(labels))
        held.append(label_figure(run, labels, devices))
    held += [memory_figure(run), compute_figure(run)]
    spent = [energy_figure(run, devices), bytes_figure(run, devices), charge_figure(run)]
    parts: list[tuple[str, Sequence[Part | None]]] = [
        ("Devices", [device_rows(run, devices), graph_figure(run, devices)]),
        ("Who computes, waits, sends and sleeps", time_figures(run, devices)),
        ("What was spent", spent),
        ("What devices hold and compute", held),
    ]
    sections = [
        Section(title, [part for part in group if part is not None]) for title, group in parts
    ]
    return [section for section in sections if section.parts]
