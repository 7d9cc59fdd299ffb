"""Output of `edgesim cost`: the study of a scenario, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from edgesim.cli.tables import show
from edgesim.errors import EdgesimError, ScenarioError
from edgesim.scenario.files import load_scenario
from edgesim.scenario.schema import Scenario

if TYPE_CHECKING:
    from edgesim.study.iteration import IterationCosts


def show_costs(
    path: Path,
    overrides: Sequence[str],
    console: Console,
    *,
    other: Path | None,
    other_overrides: Sequence[str],
    json_file: Path | None,
    out: Path | None,
    all_models: bool,
    say: Callable[[str], None],
) -> None:
    """Print the study of a scenario; write its numbers and figures if asked for.

    Args:
        path: file of the scenario.
        overrides: overrides of both scenarios.
        console: console to print on.
        other: file of a scenario to compare with; None for none.
        other_overrides: overrides of the other scenario alone.
        json_file: file for all numbers; None for none.
        out: folder for figures and a page; None for none.
        all_models: whether to compare all models of the catalog too.
        say: called with each notice about the scenario.

    Raises:
        ScenarioError: a scenario cannot be studied.
        StudyError: a file cannot be written.
    """
    from edgesim.study.report import study, write_folder, write_json  # loads torch

    if other is None and other_overrides:
        raise ScenarioError("--compare-set changes the scenario of --compare: add one")
    scenario = _load(path, overrides, say)
    beside = None if other is None else _costs_of(other, [*overrides, *other_overrides], say)
    try:
        found = study(scenario, beside, all_models=all_models)
    except EdgesimError as error:
        raise _named(path, error) from error
    for table in found.short_tables():
        show(table, console)
        console.print()
    if json_file is not None:
        write_json(found, json_file)
        console.print(f"all numbers: {json_file}")
    if out is not None:
        *_, index = write_folder(found, out)
        console.print(f"figures and page: {index}")


def _load(path: Path, overrides: Sequence[str], say: Callable[[str], None]) -> Scenario:
    """Read a scenario, find its averaging rate, and print its notices."""
    from edgesim.assembly.rate_search.search import with_found_rate
    from edgesim.assembly.subject import subject_of
    from edgesim.study.notices import notices

    scenario = load_scenario(path, overrides)
    try:
        scenario, found = with_found_rate(scenario)
        subject = subject_of(scenario)
        lines = notices(subject, subject.num_rounds)
    except EdgesimError as error:
        raise _named(path, error) from error
    for line in [str(found), *lines] if found else lines:
        say(f"{path}: {line}")
    return scenario


def _costs_of(path: Path, overrides: Sequence[str], say: Callable[[str], None]) -> IterationCosts:
    from edgesim.study.iteration import iteration_costs

    scenario = _load(path, overrides, say)
    try:
        return iteration_costs(scenario)
    except EdgesimError as error:
        raise _named(path, error) from error


def _named(path: Path, error: EdgesimError) -> EdgesimError:
    """Name the scenario's file in errors that are found after reading it."""
    return ScenarioError(f"{path}: {error}") if isinstance(error, ValueError) else error
