"""What the cells of a sweep cost, without training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.api.costs import Costs, costs_of
from edgesim.api.display import tables_html
from edgesim.api.scenarios import ScenarioLike, errors_of_python, name_of, written_overrides
from edgesim.scenario.strict_yaml import ARGUMENT, ONLY_ARGUMENT
from edgesim.scenario.sweep import Cell, Sweep, chosen
from edgesim.study.errors import StudyError
from edgesim.study.tables.as_json import FORMAT, answer_record
from edgesim.study.tables.table import Table
from edgesim.study.tables.units import brief, percent
from edgesim.sweeps.load import SEED
from edgesim.sweeps.run import read_sweep

if TYPE_CHECKING:
    import pandas as pd

_OPTIONS = ("sweep", "only")
_MAYBE_NULL = ("round_s", "virtual_time_s", "battery_used")
_TARGETS = "paper."  # keys that only stand beside a result


@dataclass(frozen=True, slots=True, repr=False)
class SweepCosts:
    """Costs of the cells of a sweep.

    Attributes:
        name: of the scenario that the cells vary.
        keys: in which the cells differ, without the seed.
        cells: the cells that were studied; of those that differ in their seed alone, the first.
        costs: of each of them.
        seeds: number of cells that differ in their seed alone, of each of them.
        notices: allowed choices whose consequences are easily overlooked, each once.
    """

    name: str
    keys: tuple[str, ...]
    cells: tuple[Cell, ...]
    costs: tuple[Costs, ...]
    seeds: tuple[int, ...]
    notices: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        """A row for each cell: its name, the keys, and what it costs, unrounded.

        `fits` says whether all devices have the memory, `memory_bytes` is what the one with the
        most needs, `sent_bytes` what the one that sends the most does, and `battery_used` the share
        of its charge that the training asks of the battery that it asks most of. The rest is of the
        whole training and all devices. What a cell does not have is null: times without
        `fleet.profile`, batteries.
        """
        import pandas as pd

        rows = (
            {
                "cell": cell.name,
                **{key: cell.settings.get(key) for key in self.keys},
                **_figures(costs),
            }
            for cell, costs in zip(self.cells, self.costs, strict=True)
        )
        return pd.DataFrame(rows).astype(dict.fromkeys(_MAYBE_NULL, "float64"))

    def text_table(self) -> Table:
        """The same for people, with units.

        Columns that no cell has are left out, as are keys with one value in all cells.
        """
        found = [_figures(costs) for costs in self.costs]
        shown = {
            name: [write(one[column]) for one in found]
            for name, (column, write) in _COLUMNS.items()
            if any(one[column] is not None for one in found)
        }
        settings = {
            key: values
            for key in self.keys
            if len(set(values := [str(cell.settings.get(key, "")) for cell in self.cells])) > 1
        }
        rows = tuple(zip(*settings.values(), *shown.values(), strict=True))
        return Table(_title(self), (*settings, *shown), rows, tuple(self._notes()))

    def _notes(self) -> Sequence[str]:
        lines = ["of the whole training; memory and sends of the device with the most"]
        tables = {costs.study.costs.energy_table for costs in self.costs}
        if any(costs.study.costs.steady_state is None for costs in self.costs):
            lines.append(
                "times need fleet.profile; energy without it is that of arithmetic and memory "
                f"traffic alone, by {', '.join(sorted(tables))}"
            )
        if max(self.seeds) > 1:
            lines.append("of cells that differ in their seed alone, the first was studied")
        return lines

    def record(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        return {
            "format": FORMAT,
            "sweep": self.name,
            "cells": [
                {
                    "cell": cell.name,
                    "settings": dict(cell.settings),
                    "answer": answer_record(costs.answer),
                }
                for cell, costs in zip(self.cells, self.costs, strict=True)
            ],
        }

    def write_numbers(self, path: Path | str) -> None:
        """Write all numbers as JSON.

        Raises:
            StudyError: the file can't be written.
        """
        text = json.dumps(self.record(), indent=1, allow_nan=False)
        try:
            Path(path).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise StudyError(
                f"{path}: can't be written ({error.strerror}); name another place"
            ) from error

    def __repr__(self) -> str:
        return f"<costs of {_title(self)}; .table() has them>"

    def _repr_html_(self) -> str:
        return tables_html([self.text_table()], self.notices)


def sweep_costs(
    scenario: ScenarioLike,
    sweep: Mapping[str, object] | None = None,
    *,
    only: Mapping[str, object] | None = None,
    **overrides: object,
) -> SweepCosts:
    """Say what each cell of a sweep costs its devices, without training.

    Args:
        scenario: a file, the name of a shipped scenario, a mapping, or a scenario.
        sweep: the block `sweep`, as in `edgesim.sweep`; None: that of the scenario.
        only: values by key; only cells that have all of them are studied. None: all cells.
        **overrides: values of all cells by key, as in `edgesim.run`.

    Raises:
        ScenarioError: a key, a value or a cell can't be used.
        DataError: the size of a cell's inputs is not known.
    """
    planned = read_sweep(scenario, sweep, written_overrides(overrides, _OPTIONS), ARGUMENT)
    if only:
        wanted = written_overrides(only)
        planned = chosen(planned, wanted, name_of(scenario), origin=ONLY_ARGUMENT)
    with errors_of_python():
        return costs_of_cells(planned, name_of(scenario))


def costs_of_cells(
    planned: Sweep, name: str, tell: Callable[[int, int], None] = lambda *_: None
) -> SweepCosts:
    """Study the cells of a sweep.

    Args:
        planned: a checked sweep.
        name: of its file, for messages.
        tell: called before each cell with the number of cells studied, and of those to study.

    Raises:
        ScenarioError: a cell can't be studied; the message names it.
        DataError: the size of a cell's inputs is not known.
    """
    unlike: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in planned.wanted:
        unlike.setdefault(_costly(cell.settings), []).append(cell)
    cells = [same[0] for same in unlike.values()]
    found, said = [], Counter[str]()
    for done, cell in enumerate(cells):
        tell(done, len(cells))
        where = f"{name}: cell {cell.name}"
        costs = costs_of((cell.scenario, where), compares=False)
        said.update(notice.removeprefix(f"{where}: ") for notice in costs.notices)
        found.append(costs)
    keys = (key for key in planned.keys if key != SEED and not key.startswith(_TARGETS))
    return SweepCosts(
        name=planned.name,
        keys=tuple(keys),
        cells=tuple(cells),
        costs=tuple(found),
        seeds=tuple(map(len, unlike.values())),
        notices=tuple(f"{line} ({count} of {len(cells)} cells)" for line, count in said.items()),
    )


def _costly(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Settings of a cell without its seed and what only stands beside its result."""
    return tuple(
        (key, str(value))
        for key, value in settings.items()
        if key != SEED and not key.startswith(_TARGETS)
    )


def _title(found: SweepCosts) -> str:
    number, of_all = len(found.cells), sum(found.seeds)
    said = "1 cell costs" if number == 1 else f"{number:,} cells cost"
    return f"{found.name}: what {said}{f' (of {of_all:,})' if of_all > number else ''}"


def _figures(costs: Costs) -> dict[str, Any]:
    """What a cell costs, by column."""
    answer = costs.answer
    training, state = answer.training, answer.costs.steady_state
    return {
        "fits": answer.fits,
        "memory_bytes": answer.costs.heaviest.faithful_memory.total,
        "rounds": max(training.rounds),
        "round_s": state.period_s if state else None,
        "virtual_time_s": training.seconds,
        "sent_bytes": max(training.sent_bytes),
        "total_sent_bytes": sum(training.sent_bytes),
        "total_energy_j": sum(training.energy_j),
        "battery_used": max((life.used for life in training.lives), default=None),
    }


def _unless_none(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "" if value is None else write(value)


_COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "fits": ("fits", _unless_none(lambda fits: "yes" if fits else "NO")),
    "memory": ("memory_bytes", lambda size: brief(size, "MiB")),
    "rounds": ("rounds", lambda rounds: f"{rounds:,.0f}"),
    "a round": ("round_s", _unless_none(lambda seconds: brief(seconds, "s"))),
    "in all": ("virtual_time_s", _unless_none(lambda seconds: brief(seconds, "s"))),
    "sends": ("sent_bytes", lambda size: brief(size, "MB")),
    "energy of all": ("total_energy_j", lambda energy: brief(energy, "J")),
    "battery": ("battery_used", _unless_none(lambda used: percent(round(used, 2)))),
}
