"""`edgesim sweep`: checks and runs the cells of a sweep, and prints their table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from edgesim.cli.answers import number
from edgesim.cli.garbage import uncollected
from edgesim.scenario.cell_names import settings_in_table
from edgesim.scenario.sweep import chosen, scaled_sweep
from edgesim.study.tables.lines import show
from edgesim.study.tables.table import Table
from edgesim.sweeps.progress import shown_progress

if TYPE_CHECKING:
    import pandas as pd

    from edgesim.sweeps.load import SweepResults

_FIGURES: dict[str, Callable[[float], str]] = {  # of the table, and how they are written
    **dict.fromkeys(
        ("accuracy", "device_accuracy_mean", "loss", "consensus_distance"), "{:.4f}".format
    ),
    "averaging_rate_found": "{:.4g}".format,
    **dict.fromkeys(("virtual_time_s", "total_energy_j"), number),
}
_HEADS = {
    "accuracy": "averaged model",
    "device_accuracy_mean": "devices",
    "consensus_distance": "consensus distance",
    "averaging_rate_found": "averaging rate",
    "virtual_time_s": "virtual s",
    "total_energy_j": "joules",
}
_ACCURACIES = {  # what their columns are
    "accuracy": "averaged model: its accuracy",
    "device_accuracy_mean": "devices: the mean of their own models' accuracies",
}


def show_sweep(
    file: Path,
    overrides: Sequence[str],
    only: Sequence[str],
    out: str | None,
    workers: int | None,
    address: str | None,
    console: Console,
    warn: Callable[[str], None],
    scale: float | None = None,
) -> bool:
    """Run a sweep, print its table; False if cells failed.

    Args:
        file: scenario with a block `sweep`.
        overrides: each `key.path=value`.
        only: each `key.path=value`; cells without one of them are not run.
        out: folder of the sweep; None: runs/<name>, with a scale runs/<name>-scale-<scale>.
        workers: cells at once; None: one for each core.
        address: of a Ray cluster that runs the cells; None: this machine does.
        console: to print on.
        warn: prints notices and errors.
        scale: shortens the training of all cells to this share; None: does not.

    Raises:
        ScenarioError: a key, a value or a cell can't be used.
        SweepError: the folder holds something else.
    """
    with uncollected():
        from edgesim.results.load import UnfinishedRunWarning
        from edgesim.sweeps.directory import as_begun
        from edgesim.sweeps.load import load_sweep
        from edgesim.sweeps.run import check_open_cells, default_place, read_sweep, run_sweep

    planned = read_sweep(file, overrides=overrides)
    if only:
        planned = chosen(planned, only, str(file))
    if scale is not None:
        planned = scaled_sweep(planned, scale)
        warn(f"{file}: --scale {scale:g}: {planned.cells[0].scenario.training.said}")
    place = str(out or default_place(planned))
    planned = as_begun(planned, place)
    for notice in check_open_cells(planned, place, str(file)):
        warn(f"{file}: {notice}")
    try:
        with shown_progress(planned, console, place) as tell:
            failures = run_sweep(planned, place, tell, workers, address)
    except KeyboardInterrupt:
        warn(f"stopped; the same command goes on with what is in {place}")
        raise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedRunWarning)  # what is missing is said below
        results = load_sweep(place)
    if len(results.evaluations):
        show(sweep_table(results), console)
    for name, reason in failures.items():
        warn(f"cell {name} failed: {reason}")
    return not failures


def check_sweep(file: Path, overrides: Sequence[str], warn: Callable[[str], None]) -> Table:
    """Check all cells of a sweep; a table of them. Nothing is written."""
    from edgesim.sweeps.run import check_cells, read_sweep

    planned = read_sweep(file, overrides=overrides)
    for notice in check_cells(planned, str(file)):
        warn(f"{file}: {notice}")
    columns = (
        settings_in_table([cell.settings.get(key, "") for cell in planned.cells], key)
        for key in planned.keys
    )
    rows = tuple(zip((cell.name for cell in planned.cells), *columns, strict=True))
    title = f"{planned.name}: {len(rows):,} cells, all valid"
    return Table(title, ("cell", *planned.keys), rows)


def sweep_table(results: SweepResults) -> Table:
    """Means and deviations over seeds of the last evaluations."""
    found = results.table()
    keys = [key for key in results.keys if key in found.columns]
    figures = [name for name in _FIGURES if name in found.columns and found[name].notna().any()]
    rows = []
    for row in found.to_dict("records"):
        cells = ["null" if row[key] is None else str(row[key]) for key in keys]
        for name in figures:
            mean, deviation, form = row[name], row[f"{name}_std"], _FIGURES[name]
            spread = "" if deviation != deviation else f" +- {form(deviation)}"
            cells.append(f"{form(mean)}{spread}" if mean == mean else "")
        sent = (f"{row[name]:,.0f}" for name in ("total_sent_bytes", "total_messages_sent"))
        rows.append((*cells, *sent, str(row["cells"])))
    heads = [_HEADS.get(name, name) for name in figures]
    columns = (*keys, *heads, "bytes sent", "messages", "cells")
    doubts = [f"warning: {line}" for line in results.warning_lines()]
    notes = (*doubts, *_notes(results.place, figures, found))
    return Table(results.name, columns, tuple(rows), notes)


def _notes(place: str, figures: Sequence[str], found: pd.DataFrame) -> tuple[str, ...]:
    """What the columns of a table are, as far as it has them."""
    accuracies = [words for name, words in _ACCURACIES.items() if name in figures]
    means = ""
    if (found["cells"] > 1).any():
        means = ": means, with sample deviations over seeds"
    return (
        *(["; ".join(accuracies)] if accuracies else []),
        f"all of the last evaluations{means}",
        f"all of it: edgesim.load_sweep({place!r})",
    )
