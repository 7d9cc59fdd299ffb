"""Output of `edgesim cost`: the study of a scenario, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from edgesim.cli.garbage import uncollected
from edgesim.errors import ScenarioError
from edgesim.results.scenario_file import load_scenario
from edgesim.study.tables.lines import show

if TYPE_CHECKING:
    from edgesim.study.answer import Answer


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
    is_short: bool,
    with_paper: bool,
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
        is_short: whether to print the answer without the tables of the scenario.
        with_paper: whether to print the paper's ratios of fp32 to 8 bits too.
        say: called with each notice about the scenario.

    Raises:
        ScenarioError: a scenario cannot be studied.
        StudyError: a file cannot be written.
    """
    if other is None and other_overrides:
        raise ScenarioError("--compare-set changes the scenario of --compare: add one")
    scenario = load_scenario(path, overrides)
    beside = None if other is None else load_scenario(other, [*overrides, *other_overrides])
    with uncollected():
        from edgesim.api.costs import costs_of  # loads torch

    found = costs_of(
        (scenario, str(path)),
        None if beside is None else (beside, str(other)),
        all_models=all_models,
        advises=other is None,
        compares=with_paper or json_file is not None or out is not None,
    )
    for notice in found.notices:
        say(notice)
    if with_paper and not found.study.paper_tables():
        say("--paper: left out, since a model of your own has no closed form in other bits")
    for answer in found.study.answers:
        _show_answer(answer, console)
    for table in (
        *(() if is_short else found.tables),
        *(found.study.paper_tables() if with_paper else ()),
        *found.study.catalog_tables(),
    ):
        show(table, console)
        console.print()
    if json_file is not None:
        found.write_numbers(json_file)
        console.print(f"all numbers: {json_file}")
    if out is not None:
        console.print(f"figures and page: {found.write(out)}")


def _show_answer(answer: Answer, console: Console) -> None:
    """Print an answer, the title in bold; in a pipe, too, its lines have the length of a page."""
    from edgesim.study.tables.answer_text import WIDTH, answer_lines

    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    for number, line in enumerate(answer_lines(answer, width)):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
    console.print()
