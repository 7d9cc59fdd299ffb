"""`edgesim report`: the page of runs, and what is printed beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from edgesim.report.report import write_accuracy_report, write_paper_report, write_report
from edgesim.storage.store import Store
from edgesim.study.tables.lines import show
from edgesim.study.tables.table import Table
from edgesim.sweeps.directory import missing_cells


def show_report(
    runs: Sequence[str],
    out: Path | None,
    console: Console,
    *,
    with_paper: bool,
    accuracies: Sequence[float],
) -> None:
    """Write the page of runs; print where it is, and the tables that were asked for.

    Args:
        runs: directories of runs, or their URIs.
        out: file to write; None for the usual place.
        console: where it is printed.
        with_paper: whether to print what the paper reports.
        accuracies: whose costs are printed, in percent; none if empty.

    Raises:
        EdgesimError: see `edgesim.report.report.write_report`.
    """
    troubles = [
        f"Cell {name} of the sweep has no result: {reason}."
        for run in (() if with_paper else runs)
        for name, reason in missing_cells(Store.at(run)).items()
    ]
    tables: Sequence[Table] = ()
    if with_paper:
        tables, (place, num_bytes) = write_paper_report(runs, out, accuracies)
    elif accuracies:
        tables, (place, num_bytes) = write_accuracy_report(runs, accuracies, out, troubles)
    else:
        place, num_bytes = write_report(runs, out, troubles)
    for table in tables:
        show(table, console)
    console.print(f"report: {place} ({num_bytes / 1e6:.1f} MB)")
