"""What a scenario costs its devices, without training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgesim.api.display import tables_html
from edgesim.api.scenarios import ScenarioLike, errors_named, name_of, read_scenario
from edgesim.assembly.parts.own_imports import check_imports
from edgesim.assembly.rate_search.search import rate_notice, with_found_rate
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.scenario.schema import Scenario
from edgesim.study.answer import Answer
from edgesim.study.churn_notices import handover_notices, presence_notices
from edgesim.study.iteration import IterationCosts, iteration_costs
from edgesim.study.notices.notices import notices, partition_notices
from edgesim.study.report import Study, study, write_folder, write_json
from edgesim.study.rounds.free_pace import trace_notices
from edgesim.study.tables.answer_text import answer_lines
from edgesim.study.tables.table import Table


@dataclass(frozen=True, slots=True)
class Costs:
    """Memory, compute, bytes, energy and time of a scenario.

    Attributes:
        study: all of it as objects.
        notices: allowed choices whose consequences are easily overlooked, a line each with the
            name of its scenario.
    """

    study: Study
    notices: tuple[str, ...]

    @property
    def scenario(self) -> Scenario:
        """The scenario, with every default, and with the averaging rate that was found."""
        return self.study.costs.studied.scenario

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that `edgesim cost` prints below the answer."""
        return self.study.short_tables()

    @property
    def answer(self) -> Answer:
        """What is asked first: memory, time, limits, batteries, settings that help most."""
        return self.study.answer

    def numbers(self) -> dict[str, Any]:
        """All numbers, unrounded, as `edgesim cost --json` writes them."""
        return self.study.record()

    def write(self, folder: Path | str) -> Path:
        """Write figures (SVG) and a page with these and the tables; gives the page.

        Raises:
            StudyError: the folder can't be written to.
        """
        return write_folder(self.study, Path(folder))[-1]

    def write_numbers(self, path: Path | str) -> None:
        """Write all numbers as JSON.

        Raises:
            StudyError: the file can't be written.
        """
        write_json(self.numbers(), Path(path))

    def __repr__(self) -> str:
        said = ["\n".join(answer_lines(answer)) for answer in self.study.answers]
        return "\n\n".join([*said, *self.notices])

    def _repr_html_(self) -> str:
        return tables_html((*self.study.answer_tables(), *self.tables), self.notices)


def cost(
    scenario: ScenarioLike,
    *,
    compare: ScenarioLike | None = None,
    all_models: bool = False,
    advice: bool = True,
    **overrides: object,
) -> Costs:
    """Say what a scenario costs each device, without training.

    Args:
        scenario: a file, the name of a shipped scenario, a mapping, or a scenario.
        compare: another scenario to set beside it; overrides change both.
        all_models: compare all models of the catalog too.
        advice: look for settings that help most, for which some changed scenarios are studied;
            never if there is a scenario to compare with.
        **overrides: values by key, as in `edgesim.run`.

    Raises:
        ScenarioError: a scenario can't be studied.
        DataError: the size of its inputs is not known.
    """
    options = ("compare", "all_models", "advice")
    first = read_scenario(scenario, overrides, options)
    other = None if compare is None else read_scenario(compare, overrides, options)
    return costs_of(
        (first, name_of(scenario)),
        None if other is None or compare is None else (other, name_of(compare)),
        all_models=all_models,
        advises=advice and other is None,
    )


def costs_of(
    scenario: tuple[Scenario, str],
    other: tuple[Scenario, str] | None = None,
    *,
    all_models: bool = False,
    advises: bool = False,
    compares: bool = True,
) -> Costs:
    """Study a scenario, maybe beside another one, each with what messages call it.

    The other arguments are those of `edgesim.study.report.study`.

    Raises:
        ScenarioError: a scenario can't be studied.
    """
    with errors_named(scenario[1]):
        first, said = _ready(*scenario)
    beside: IterationCosts | None = None
    if other is not None:
        with errors_named(other[1]):
            second, more = _ready(*other)
            beside = iteration_costs(second)
        said = (*said, *more)
    with errors_named(scenario[1]):
        found = study(first, beside, all_models=all_models, advises=advises, compares=compares)
    named = [(found.answer.costs, scenario[1])]
    if other is not None and beside is not None:
        named.append((beside, other[1]))
    of_traces = [
        f"{name}: {line}"
        for costs, name in named
        for line in trace_notices(costs.studied, costs.steady_state)
    ]
    return Costs(found, (*said, *of_traces))


def _ready(scenario: Scenario, name: str) -> tuple[Scenario, tuple[str, ...]]:
    """A scenario with the averaging rate that was found, and its notices."""
    of_imports = check_imports(scenario)
    scenario, found = with_found_rate(scenario)
    studied = studied_scenario(scenario)
    lines = [
        *of_imports,
        *notices(studied, studied.num_rounds),
        *partition_notices(scenario),
        *handover_notices(studied),
        *presence_notices(studied),
    ]
    if found is None and (of_rate := rate_notice(studied)):
        lines.append(of_rate)
    said = [str(found), *lines] if found else lines
    return scenario, tuple(f"{name}: {line}" for line in said)
