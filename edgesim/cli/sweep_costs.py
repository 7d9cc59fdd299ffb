"""Output of `edgesim cost` of a sweep: a table of its cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from rich.console import Console

from edgesim.cli.garbage import uncollected
from edgesim.errors import ScenarioError
from edgesim.scenario.sweep import chosen
from edgesim.study.tables.lines import show

_LINE_INTERVAL_S = 30.0  # between lines of progress in a pipe


def show_sweep_costs(
    file: Path,
    overrides: Sequence[str],
    only: Sequence[str],
    json_file: Path | None,
    console: Console,
    errors: Console,
    unfit: Sequence[str],
) -> None:
    """Print what the cells of a sweep cost; write the numbers if asked for.

    Args:
        file: scenario with a block `sweep`.
        overrides: each `key.path=value`.
        only: each `key.path=value`; cells without one of them are not studied.
        json_file: file for all numbers; None for none.
        console: for the table.
        errors: for progress and notices.
        unfit: options of the command that are for one scenario alone, and were given.

    Raises:
        ScenarioError: an option is of no use here, or a cell can't be studied.
        StudyError: the file can't be written.
    """
    if unfit:
        raise ScenarioError(
            f"{unfit[0]} is for one scenario, and {file} is a sweep of many: leave it out, or name "
            "a file without the block sweep"
        )
    with uncollected():
        from edgesim.sweeps.costs import costs_of_cells  # loads torch
        from edgesim.sweeps.run import read_sweep

    planned = read_sweep(file, overrides=overrides)
    if only:
        planned = chosen(planned, only, str(file))
    with errors.status("reading the cells") as status:
        found = costs_of_cells(planned, str(file), _teller(errors, status.update))
    for notice in found.notices:
        errors.print(f"{file}: {notice}")
    for table in found.tables:
        show(table, console)
    if json_file is not None:
        found.write_numbers(json_file)
        console.print(f"all numbers: {json_file}")


def _teller(errors: Console, update: Callable[[str], None]) -> Callable[[int, int], None]:
    """Tells how many cells were studied; a pipe gets a line now and then."""
    told_s = monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told_s
        text = f"{done:,} of {total:,} cells were studied so far"
        if errors.is_terminal:
            update(text)
        elif monotonic() - told_s > _LINE_INTERVAL_S:
            told_s = monotonic()
            errors.print(text)

    return tell
