"""What an accuracy cost: figures of the fleet up to the first evaluation that has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor
from typing import Literal

from edgesim.report.figures.comparison import spread
from edgesim.report.reported_run import ReportedRun
from edgesim.report.seeds import by_group, one_per_seed
from edgesim.report.units import data_size, duration, energy, percent
from edgesim.results.run import Run
from edgesim.study.tables.table import Table

_MOST_LEVELS = 4
_ROUNDING = 1e-9  # of an accuracy in percent

_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("epochs", "epoch", lambda epochs: f"{epochs:.3g}" if epochs < 999.5 else f"{epochs:,.0f}"),
    ("rounds", "round", lambda rounds: f"{rounds:,.0f}" if rounds >= 99.5 else f"{rounds:.3g}"),
    ("virtual time", "virtual_time_s", duration),
    ("sent", "total_sent_bytes", data_size),
    ("energy", "total_energy_j", energy),
)
"""Head, column of the evaluations, and form of each figure."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """An accuracy of each evaluation of a run.

    Attributes:
        model: as `Run.reaching` takes it.
        title: what the table of this measure is called.
        note: what the measure is.
    """

    model: Literal["consensus", "device"]
    title: str
    note: str


_MEASURES = (
    _Measure(
        "consensus",
        "What an accuracy of the averaged model cost",
        "Figures of the fleet up to the first evaluation in which the averaged model had this "
        "accuracy.",
    ),
    _Measure(
        "device",
        "What an accuracy of the devices cost",
        "The same for the mean accuracy of the devices' own models.",
    ),
)


def reaching_tables(
    runs: Sequence[ReportedRun], accuracies: Sequence[float] | None = None
) -> list[Table]:
    """What each run had spent when it came to an accuracy, by the averaged model and by devices.

    Runs that differ in the seed alone share a row. There is no table of a measure of which no run
    has two evaluations.

    Args:
        runs: runs that can be compared.
        accuracies: in percent; None for some that follow from the best ones of the runs.
    """
    tables = (_table(runs, measure, accuracies) for measure in _MEASURES)
    return [table for table in tables if table is not None]


def _table(
    runs: Sequence[ReportedRun], measure: _Measure, accuracies: Sequence[float] | None
) -> Table | None:
    found = by_group(one_per_seed(runs))
    groups = {str(group): [run.run for run in members] for group, members in found.items()}
    counts: list[int] = []
    best: dict[str, float] = {}
    for group, members in groups.items():
        for values in (run.accuracies(measure.model) for run in members):
            counts.append(len(values))
            if len(values):
                best[group] = max(best.get(group, 0.0), 100 * float(values.max()))
    if max(counts, default=0) < 2:
        return None
    levels = sorted(set(accuracies)) if accuracies else _levels(sorted(best.values()))
    rows: list[tuple[str, ...]] = []
    for level in levels:
        named = f"{level:g} %"
        if len(groups) > 1:
            rows.append((named, *[""] * (len(_FIGURES) + 1)))
        for group, members in groups.items():
            rows.append(_row(group if len(groups) > 1 else named, members, measure, level))
    heads = "", "reached by", *(head for head, _, _ in _FIGURES)
    used = [p for p, _ in enumerate(heads) if p == 0 or any(row[p] for row in rows)]
    notes = [
        measure.note,
        "Devices are evaluated at intervals, so a figure may be late by one of them.",
    ]
    if any(run.is_free and not run.settings["evaluation"].get("every_virtual_s") for run in runs):
        notes.append(
            "At free pace, with evaluations by rounds or epochs, energy is that of the rounds. "
            "The last evaluation alone has what devices draw after them, while they wait for "
            "slower ones."
        )
    if any(len(members) > 1 for members in groups.values()):
        notes.append("Means over the runs that came to it; +-: standard deviation (n - 1).")
    return Table(
        measure.title,
        tuple(heads[place] for place in used),
        tuple(tuple(row[place] for place in used) for row in rows),
        tuple(notes),
    )


def _row(label: str, members: Sequence[Run], measure: _Measure, level: float) -> tuple[str, ...]:
    """What the runs of one row had spent; of those that did not come to it, their best."""
    import pandas as pd

    counts = [len(run.accuracies(measure.model)) for run in members]
    if max(counts) < 2:
        once = "evaluated once" if max(counts) else "not evaluated"
        return label, once, *[""] * len(_FIGURES)
    found = [run.with_accuracy((level - _ROUNDING) / 100, measure.model) for run in members]
    reached = [row for row in found if row is not None]
    pairs = zip(members, found, strict=True)
    going_on = sum(row is None and not run.is_finished for run, row in pairs)
    if not reached:
        accuracies = [run.accuracies(measure.model) for run in members]
        best = max(values.max() for values in accuracies if len(values))
        below = floor(1000 * float(best) + _ROUNDING) / 1000  # not rounded up to the level
        return (
            label,
            f"none; best {percent(below)}{_not_finished(going_on, len(members))}",
            *[""] * len(_FIGURES),
        )
    cells = []
    for _, column, form in _FIGURES:
        known = [row[column] for row in reached if column in row and pd.notna(row[column])]
        cells.append(spread([float(value) for value in known], form))
    share = f"{len(reached)} of {len(members)}" if len(members) > 1 else ""
    return label, f"{share}{_not_finished(going_on, len(members))}", *cells


def _not_finished(number: int, of: int) -> str:
    """Words about runs that may still come to it."""
    if not number:
        return ""
    return " (not finished)" if of == 1 else f" ({number:,} not finished)"


def _levels(best: Sequence[float]) -> list[float]:
    """Accuracies in percent that tell most about runs with these best ones, which increase.

    Of several runs: what all of them reached, what half of them did, and what the best one did. Of
    one: its best, and the tens below. All are whole percents, unless the best is below 1 %.
    """
    if best[-1] < 1:
        return [best[-1]]
    if len(best) > 1:
        wanted = best[0], best[len(best) // 2], best[-1]
        return sorted({float(floor(level + _ROUNDING)) for level in wanted if level >= 1})
    top = floor(best[0] + _ROUNDING)  # 100 * 0.29 is less than 29
    tens = range(10, top, 10)
    return [*(float(level) for level in tens[-(_MOST_LEVELS - 1) :]), float(top)]
