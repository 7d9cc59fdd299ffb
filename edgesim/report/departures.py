"""Settings of runs of the paper's rows that are others than those of the shipped scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from edgesim.report.reported_run import ReportedRun
from edgesim.report.run_settings import flat_settings, written
from edgesim.report.units import listed
from edgesim.scenario.files import parse_scenario
from edgesim.scenario.schema import Scenario
from edgesim.scenario.shipped import shipped_scenarios
from edgesim.scenario.sweep import parse_sweep

_FOLDER = "paper/"
_OF_NO_RESULT = ("name", "description", "seed", "paper", "recovery", "metrics")
_UNSAID = {
    *("data.path", "data.download"),  # where the files are
    *("training.epochs", "training.rounds", "training.virtual_time_s"),  # the table has them
}
_SCALED = {
    *("training.schedule.milestones", "training.schedule.warmup_epochs"),
    *("evaluation.every_epochs", "evaluation.every_rounds"),
}
_MOST_NAMED = 3  # rows in a line


@dataclass(frozen=True, slots=True)
class _Departure:
    """A setting of a run and of the shipped scenario, as text."""

    key: str
    here: str
    shipped: str


def departure_notes(rows: Sequence[tuple[str, ReportedRun]]) -> list[str]:
    """A line for each setting that is another than in the shipped scenario of the paper's row.

    Args:
        rows: of the table, each with its name and a run.
    """
    found: dict[_Departure, list[str]] = {}
    unknown: list[str] = []
    for place, members in groupby(rows, lambda row: str(row[1].settings["paper"]["place"])):
        cells = list(_shipped_cells(place))
        for name, run in members:
            if not cells:
                unknown.append(name)
                continue
            for departure in _departures(run, cells):
                found.setdefault(departure, []).append(name)
    lines = [
        f"Not as in scenarios/paper: {each.key} is {each.here}, there {each.shipped}"
        f"{_where(names, len(rows))}."
        for each, names in found.items()
    ]
    if unknown:
        lines.append(
            "No scenario of scenarios/paper has this place, so settings are not compared: "
            f"{listed(unknown)}."
        )
    return lines


def _where(names: Sequence[str], num_rows: int) -> str:
    if len(names) == num_rows:
        return " (all rows)" if num_rows > 1 else ""
    if len(names) > _MOST_NAMED:
        return f" ({len(names)} of {num_rows} rows)"
    return f" ({'; '.join(names)})"


def _shipped_cells(place: str) -> Iterator[Scenario]:
    """Shipped scenarios of a place of the paper."""
    for name, path in shipped_scenarios().items():
        text = path.read_text(encoding="utf-8") if name.startswith(_FOLDER) else ""
        if f"place: {place}\n" not in text:
            continue
        if "\nsweep:" in text:
            scenarios = [cell.scenario for cell in parse_sweep(text, name, path.parent).cells]
        else:
            scenarios = [parse_scenario(text, name, path.parent)]
        yield from (each for each in scenarios if each.paper and each.paper.place == place)


def _departures(run: ReportedRun, cells: Sequence[Scenario]) -> list[_Departure]:
    """Of the nearest cell; one with the accuracy that the run names is nearer than any other."""
    settings = run.settings if run.scenario is None else run.scenario.model_dump(mode="json")
    here, accuracy = _compared(settings), settings["paper"].get("accuracy")
    found = []
    for cell in cells:
        assert cell.paper is not None, "looked at before"
        departures = list(_differences(here, cell, settings["training"].get("epochs")))
        found.append((cell.paper.accuracy != accuracy, len(departures), departures))
    return min(found, key=lambda entry: entry[:2])[2]


def _compared(settings: Mapping[str, object]) -> dict[str, object]:
    kept = {key: value for key, value in settings.items() if key not in _OF_NO_RESULT}
    return {key: value for key, value in flat_settings(kept).items() if key not in _UNSAID}


def _differences(
    here: Mapping[str, object], cell: Scenario, epochs: int | None
) -> Iterator[_Departure]:
    there = _compared(cell.model_dump(mode="json"))
    for key in dict.fromkeys((*there, *here)):
        one, two = here.get(key), there.get(key)
        if one == two or (key in _SCALED and _is_scaled(one, two, epochs, cell.training.epochs)):
            continue
        yield _Departure(key, *("not set" if v is None else written(v) for v in (one, two)))


def _is_scaled(here: object, there: object, epochs: int | None, wanted: int | None) -> bool:
    """Whether `--scale`, which gave so many epochs of those wanted, may have given this value."""
    if not epochs or not wanted or epochs >= wanted:
        return False
    low = (epochs - 0.5) / wanted if epochs > 1 else 0.0
    high = (epochs + 0.5) / wanted
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        pairs = list(zip(here, there, strict=True))
    else:
        pairs = [(here, there)]
    return all(
        isinstance(one, int)
        and isinstance(two, int)
        and max(1, round(two * low)) <= one <= max(1, round(two * high))
        for one, two in pairs
    )
