"""What two runs have in common, as a table."""

from __future__ import annotations

from edgesim.report.provenance import unlike_code, unlike_processors
from edgesim.report.run_settings import differing_settings
from edgesim.report.runs import load_runs
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.differences import compare_runs
from edgesim.results.run_files import RunDirectoryError
from edgesim.study.tables.table import Table

_COLUMNS = ("what", "size", "both runs")


def diff_table(first: str, second: str) -> tuple[Table, bool]:
    """A row for each table of two runs and for their models, and whether all bits are the same.

    Raises:
        RunDirectoryError: one of them is not there, or not finished.
    """
    runs = load_runs([first, second], are_compared=False)
    if len(runs) > 2:
        raise RunDirectoryError(
            f"{first} and {second}: have {len(runs)} runs, such as {runs[0].place}; diff compares "
            "two: name the folder of each"
        )
    found = compare_runs(*(run.run for run in runs))
    rows = [
        (own.what, own.size, f"DIFFER: {own.difference}" if own.difference else "the same bits")
        for own in found
    ]
    settings = differing_settings(runs)
    rows += [(key, "setting", " and ".join(values)) for key, values in settings.items()]
    is_same = not any(own.difference for own in found)
    notes = (
        f"Left out, as they are of the machine: {', '.join(WALL_COLUMNS)}.",
        *unlike_code(runs),
        *([] if is_same else unlike_processors(runs)),
    )
    title = f"{first} and {second}"
    return Table(title, _COLUMNS, tuple(rows), notes, prose=frozenset(_COLUMNS[2:])), is_same
