"""The whole study of a scenario, and its output as tables, figures and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgesim.assembly.build import quantization_settings
from edgesim.costs.measured_model import MeasuredModel
from edgesim.results.run_files import ABOUT
from edgesim.scenario.schema import Scenario
from edgesim.study.answer import Answer, answer_of
from edgesim.study.catalog_study import compare_catalog
from edgesim.study.changes import advise
from edgesim.study.comparison import PrecisionComparison, compare_precisions, setting_of
from edgesim.study.errors import StudyError
from edgesim.study.figures.catalog_figures import catalog_pictures
from edgesim.study.figures.charts import Picture
from edgesim.study.figures.fleet_figure import fleet_picture
from edgesim.study.figures.model_figures import model_pictures
from edgesim.study.figures.page import page
from edgesim.study.figures.side_by_side_figure import side_by_side_picture
from edgesim.study.iteration import IterationCosts, iteration_costs
from edgesim.study.own_gossip import OwnGossip
from edgesim.study.tables.answer_text import answer_table, change_table
from edgesim.study.tables.as_json import (
    FORMAT,
    answer_record,
    comparison_record,
    price_records,
    scenario_record,
    side_by_side_record,
)
from edgesim.study.tables.comparison_tables import catalog_tables, comparison_tables
from edgesim.study.tables.precision_ratios import precision_ratios, time_ratios
from edgesim.study.tables.ratio import Ratio
from edgesim.study.tables.scenario_tables import measured_notes, overview_table, scenario_tables
from edgesim.study.tables.side_by_side import Pair, side_by_side, side_by_side_table
from edgesim.study.tables.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Results of a study.

    Attributes:
        answer: what is asked first, with the costs of the scenario.
        comparison: of its model, fp32 against 8 bits; None of a model of one's own, or if it
            was not asked for.
        ratios: of the comparison.
        catalog: comparison of every model of the catalog; may be empty.
        other: costs of another scenario; None if none was given.
    """

    answer: Answer
    comparison: PrecisionComparison | None
    ratios: tuple[Ratio, ...]
    catalog: tuple[PrecisionComparison, ...]
    other: IterationCosts | None

    @property
    def costs(self) -> IterationCosts:
        """Costs of an iteration of the scenario."""
        return self.answer.costs

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answer for the scenario, and for the one beside it."""
        return (self.answer, answer_of(self.other)) if self.other else (self.answer,)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Both scenarios side by side."""
        return side_by_side(self.costs, self.other) if self.other else ()

    @property
    def names(self) -> tuple[str, str]:
        """Names of the scenario and of the one beside it."""
        first = self.costs.studied.scenario.name
        second = self.other.studied.scenario.name if self.other else ""
        return first, second if second != first else "other"

    def tables(self) -> tuple[Table, ...]:
        """All tables of the study."""
        tables = [*scenario_tables(self.costs), *self.paper_tables()]
        if self.other is not None:
            overview, *others = scenario_tables(self.other)
            tables += [overview, *(replace(t, title=f"other: {t.title}") for t in others)]
            tables.append(self._side_by_side_table(self.other))
        return (*tables, *self.catalog_tables())

    def short_tables(self) -> tuple[Table, ...]:
        """Tables for the terminal: of two scenarios only the overviews and both side by side."""
        if self.other is None:
            return scenario_tables(self.costs)
        overviews = overview_table(self.costs), overview_table(self.other)
        return (*overviews, self._side_by_side_table(self.other))

    def _side_by_side_table(self, other: IterationCosts) -> Table:
        measured = (
            *measured_notes(self.costs, "work and memory of"),
            *measured_notes(other, "work and memory of"),
        )
        return side_by_side_table(self.names, self.pairs, tuple(dict.fromkeys(measured)))

    def paper_tables(self) -> tuple[Table, ...]:
        """The paper's ratios of fp32 to 8 bits, of the scenario's model."""
        if self.comparison is None:
            return ()
        return comparison_tables(self.comparison, self.ratios)

    def catalog_tables(self) -> tuple[Table, ...]:
        """The same for every model of the catalog."""
        return catalog_tables(self.catalog) if self.catalog else ()

    def answer_tables(self) -> tuple[Table, ...]:
        """The answers as tables, for a page."""
        tables = ((answer_table(answer), change_table(answer)) for answer in self.answers)
        return tuple(table for pair in tables for table in pair if table is not None)

    def pictures(self) -> tuple[Picture, ...]:
        """All figures of the study."""
        pictures = [] if self.comparison is None else list(model_pictures(self.comparison))
        if self.costs.steady_state is not None:
            pictures.append(fleet_picture(self.costs))
        if self.other is not None:
            pictures.append(side_by_side_picture(self.names, self.pairs))
        if self.catalog:
            profiles = [device.profile for device in self.costs.devices if device.profile]
            pictures += catalog_pictures(self.catalog, tuple(dict.fromkeys(profiles)))
        return tuple(pictures)

    def record(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        return {
            "format": FORMAT,
            "answer": answer_record(self.answer),
            "scenario": scenario_record(self.costs),
            "comparison": self.comparison and comparison_record(self.comparison, self.ratios),
            "prices": price_records(),
            "models": [
                comparison_record(comparison, precision_ratios(comparison))
                for comparison in self.catalog
            ],
            "other": scenario_record(self.other) if self.other else None,
            "other_answer": answer_record(self.answers[1]) if self.other else None,
            "side_by_side": side_by_side_record(self.pairs),
        }


def study(
    scenario: Scenario,
    other: IterationCosts | None = None,
    *,
    all_models: bool,
    advises: bool = False,
    compares: bool = True,
) -> Study:
    """Find out what a scenario costs.

    Args:
        scenario: to study.
        other: another one, studied before.
        all_models: compare all models of the catalog too.
        advises: look for settings that help most; some changed scenarios are studied for it.
        compares: compare the model in fp32 with the model in 8 bits; a model of one's own never is.

    Raises:
        ScenarioError, DataError: the scenario can't work, or its images' size is not known.
    """
    costs = iteration_costs(scenario)
    settings = costs.studied.model.form.settings or quantization_settings()
    own = OwnGossip(costs.studied.scenario, costs.studied.schedule)
    comparison: PrecisionComparison | None = None
    ratios: tuple[Ratio, ...] = ()
    if compares and not isinstance(costs.studied.model, MeasuredModel):
        comparison = compare_precisions(setting_of(costs.studied))
        profiles = [device.profile for device in costs.devices if device.profile is not None]
        ratios = (*precision_ratios(comparison), *time_ratios(comparison, profiles))
    return Study(
        answer=answer_of(costs, advise(scenario, costs) if advises else None),
        comparison=comparison,
        ratios=ratios,
        catalog=compare_catalog(settings, own) if all_models else (),
        other=other,
    )


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write all numbers.

    Raises:
        StudyError: the file can't be written.
    """
    _write(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


def write_folder(found: Study, folder: Path) -> tuple[Path, ...]:
    """Write every figure as SVG, and a page with these and the tables.

    Raises:
        StudyError: the folder is that of a run, or can't be made or written to.
    """
    if (folder / ABOUT).exists():
        raise StudyError(f"{folder}: is the folder of a run; name another one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from error
    pictures = found.pictures()
    paths = [folder / f"{picture.name}.svg" for picture in pictures]
    for path, picture in zip(paths, pictures, strict=True):
        _write(path, picture.svg)
    title = f"{found.costs.studied.scenario.name}: what it costs"
    index = folder / "index.html"
    _write(index, page(title, found.answer_tables(), pictures, found.tables()))
    return (*paths, index)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> StudyError:
    return StudyError(f"{path}: can't be written ({error.strerror}); name another place")
