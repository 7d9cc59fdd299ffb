"""What the cells of a sweep cost, without training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.api.costs import Costs, costs_of
from edgesim.api.display import tables_html
from edgesim.api.scenarios import ScenarioLike, errors_of_python, name_of, written_overrides
from edgesim.scenario.cell_names import settings_in_table, short_keys
from edgesim.scenario.strict_yaml import ARGUMENT, ONLY_ARGUMENT
from edgesim.scenario.sweep import TARGETS, Cell, Sweep, chosen
from edgesim.study.report import write_json
from edgesim.study.tables.as_json import FORMAT, answer_record
from edgesim.study.tables.table import Table
from edgesim.study.tables.units import brief
from edgesim.sweeps.load import SEED, settings_of
from edgesim.sweeps.run import read_sweep

if TYPE_CHECKING:
    import pandas as pd

_OPTIONS = ("sweep", "only")
_UNCHANGED = "the scenario as it is"
_MAYBE_NULL = ("round_s", "virtual_time_s", "battery_used")


@dataclass(frozen=True, slots=True, repr=False)
class SweepCosts:
    """Costs of the cells of a sweep.

    Attributes:
        name: of the scenario that the cells vary.
        keys: in which the cells differ.
        cells: the cells that were studied.
        costs: of each of them.
        num_all: number of cells that the sweep has.
        notices: allowed choices whose consequences are easily overlooked, each once.
    """

    name: str
    keys: tuple[str, ...]
    cells: tuple[Cell, ...]
    costs: tuple[Costs, ...]
    num_all: int
    notices: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        """A row for each cell: `cell`, the keys, and what it costs, unrounded.

        - `fits`: whether all devices have the memory;
        - `memory_bytes`: of the device that needs the most, at the peak of a round;
        - `rounds`, `round_s`: of the slowest device, rounds of the training and seconds of one;
        - `virtual_time_s`: seconds until the last device has ended;
        - `sent_bytes`: of the device that sends the most, in the whole training;
        - `total_sent_bytes`, `total_energy_j`: of all devices, in the whole training;
        - `battery_used`: largest share of its charge that the training asks of a battery;
        - `batteries_last`: whether all batteries last to the end.

        What a cell does not have is null: times without `fleet.profile`, batteries. The keys have
        the columns of `SweepResults.evaluations`.
        """
        import pandas as pd

        rows = []
        for cell, costs in zip(self.cells, self.costs, strict=True):
            content = cell.scenario.model_dump(mode="json")
            settings = settings_of(cell.settings, content, self.keys)
            rows.append({"cell": cell.name, **settings, **_figures(costs)})
        return pd.DataFrame(rows).astype(dict.fromkeys(_MAYBE_NULL, "float64"))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table that `edgesim cost` prints; figures that no cell has are left out.

        Cells that differ in their seed alone and cost the same share a row.
        """
        found = [_figures(costs) for costs in self.costs]
        columns = {
            head: [write(one) for one in found]
            for head, (column, write) in _COLUMNS.items()
            if any(one[column] is not None for one in found)
        }
        rows = _merged(_labels(self.cells), list(zip(*columns.values(), strict=True)))
        notes = self._notes(has_batteries="battery" in columns)
        if len(rows) < len(self.cells):
            notes.append("Cells that differ in their seed alone and cost the same share a row.")
        return (Table(self._title, ("cell", *columns), rows, tuple(notes)),)

    @property
    def _title(self) -> str:
        number, whole = len(self.cells), self.num_all
        said = f"{number:,} cells cost" if number > 1 else "1 cell costs"
        if number < whole:
            said = f"{number:,} of {whole:,} cells cost"
        return f"{self.name}: what {said}"

    def _notes(self, *, has_batteries: bool) -> list[str]:
        lines = ["Memory and sends: of the device with the most. Rounds, a round: of the slowest."]
        if has_batteries:
            lines.append("Battery: the largest share of its charge that the training asks of one.")
        studied = (costs.study.costs for costs in self.costs)
        without = {costs.energy_table for costs in studied if costs.steady_state is None}
        if without:
            lines.append(
                f"Without fleet.profile: no times, and energy by {', '.join(sorted(without))}, of "
                "arithmetic and memory traffic alone."
            )
        return lines

    def numbers(self) -> dict[str, Any]:
        """All numbers, unrounded, as `edgesim cost --json` writes them."""
        return {
            "format": FORMAT,
            "sweep": self.name,
            "num_cells": self.num_all,
            "notices": list(self.notices),
            "cells": [
                {
                    "cell": cell.name,
                    "settings": dict(cell.settings),
                    "energy_table": costs.study.costs.energy_table,
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
        write_json(self.numbers(), Path(path))

    def __repr__(self) -> str:
        return "\n".join([f"<{self._title}; .table() has them>", *self.notices])

    def _repr_html_(self) -> str:
        return tables_html(self.tables, self.notices)


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
        ScenarioError: a key, a value or a cell can't be used, or a cell can't be studied.
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
    """Study the cells of a sweep that are wanted.

    Args:
        planned: a checked sweep.
        name: of its file, for messages.
        tell: called before each cell with the number of cells studied, and of those to study.

    Raises:
        ScenarioError: a cell can't be studied; the message names it.
    """
    cells, found, said = planned.wanted, list[Costs](), Counter[str]()
    for done, cell in enumerate(cells):
        tell(done, len(cells))
        where = f"{name}: cell {cell.name}"
        costs = costs_of((cell.scenario, where), compares=False)
        said.update(notice.removeprefix(f"{where}: ") for notice in costs.notices)
        found.append(costs)
    return SweepCosts(
        name=planned.name,
        keys=planned.keys,
        cells=cells,
        costs=tuple(found),
        num_all=len(planned.cells),
        notices=tuple(f"{line} ({count} of {len(cells)} cells)" for line, count in said.items()),
    )


def _labels(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Of each cell the settings in which the cells differ: without the seed, and with it."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for key, value in cell.settings.items():
            values.setdefault(key, set()).add(str(value))
    keys = [
        key
        for key, found in values.items()
        if len(found) > 1 or any(key not in cell.settings for cell in cells)
    ]
    short = short_keys([key for key in keys if not key.startswith(TARGETS)])
    texts: dict[str, dict[str, str]] = {}  # by key and name of the cell
    for key in short:
        having = [cell for cell in cells if key in cell.settings]
        shown = settings_in_table([cell.settings[key] for cell in having], key)
        texts[key] = dict(zip((cell.name for cell in having), shown, strict=True))

    def label(cell: Cell, left_out: str | None) -> str:
        parts = (
            f"{name}={texts[key][cell.name]}"
            for key, name in short.items()
            if key in cell.settings and key != left_out
        )
        return ", ".join(parts)

    def without_seed(cell: Cell) -> str:
        return label(cell, SEED) or ("any seed" if SEED in cell.settings else _UNCHANGED)

    return [(without_seed(cell), label(cell, None) or _UNCHANGED) for cell in cells]


def _merged(
    labels: Sequence[tuple[str, str]], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Rows with their labels; rows that seeds do not change are there once."""
    alike: dict[str, set[tuple[str, ...]]] = {}
    for (label, _), row in zip(labels, rows, strict=True):
        alike.setdefault(label, set()).add(row)
    shown = (
        (label if len(alike[label]) == 1 else with_seed, *row)
        for (label, with_seed), row in zip(labels, rows, strict=True)
    )
    return tuple(dict.fromkeys(shown))


def _figures(costs: Costs) -> dict[str, Any]:
    """What a cell costs, by column of the table."""
    answer = costs.answer
    training, state = answer.training, answer.costs.steady_state
    return {
        "fits": answer.fits,
        "memory_bytes": answer.costs.heaviest.faithful_memory.total,
        "rounds": min(training.rounds),
        "round_s": state.period_s if state else None,
        "virtual_time_s": training.seconds,
        "sent_bytes": max(training.sent_bytes),
        "total_sent_bytes": sum(training.sent_bytes),
        "total_energy_j": sum(training.energy_j),
        "battery_used": max((life.used for life in training.lives), default=None),
        "batteries_last": not training.ends_early if training.lives else None,
    }


def _battery(found: Mapping[str, Any]) -> str:
    if found["battery_used"] is None:
        return ""
    used = f"{100 * found['battery_used']:.3g} %"
    return used if found["batteries_last"] else f"ENDS EARLY, {used}"


def _seconds(column: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda found: "" if found[column] is None else brief(found[column], "s")


_FITS = {None: "", True: "yes", False: "NO"}
_COLUMNS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "fits": ("fits", lambda found: _FITS[found["fits"]]),
    "memory": ("memory_bytes", lambda found: brief(found["memory_bytes"], "MiB")),
    "rounds": ("rounds", lambda found: f"{found['rounds']:,.0f}"),
    "a round": ("round_s", _seconds("round_s")),
    "in all": ("virtual_time_s", _seconds("virtual_time_s")),
    "sends": ("sent_bytes", lambda found: brief(found["sent_bytes"], "MB")),
    "energy of all": ("total_energy_j", lambda found: brief(found["total_energy_j"], "J")),
    "battery": ("battery_used", _battery),
}
