"""Reads a sweep back as one table: a row for each cell and evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.errors import did_you_mean
from edgesim.results.load import UnfinishedRunWarning, load_run
from edgesim.results.run import Run
from edgesim.scenario.cell_names import settings_in_table
from edgesim.scenario.plain import in_yaml, value_of
from edgesim.storage.store import Store
from edgesim.sweeps.directory import NOT_FINISHED, is_finished, read_failures, read_plan
from edgesim.sweeps.sameness import Contents, check_settings, environment_of, warnings_of_code
from edgesim.sweeps.unlike_rounds import notice_of_rounds, rounds_follow

if TYPE_CHECKING:
    import pandas as pd

SEED = "seed"
DEVICE_ACCURACY = "device_accuracy_mean"  # as in summary.json
_FIGURES = (
    "accuracy",
    DEVICE_ACCURACY,
    "loss",
    "consensus_distance",
    "virtual_time_s",
    "total_sent_bytes",
    "total_messages_sent",
)

_MOST_WARNINGS = 3  # that a sweep shows

_OF_DEVICES = ["model", "device", "name"]  # columns that say which model a row is of


@dataclass(frozen=True, repr=False, eq=False)
class SweepResults:
    """Results of the finished cells of a sweep.

    Attributes:
        place: path or URI of the sweep's folder.
        name: of the scenario that the cells vary.
        keys: in which cells differ; they are columns of `evaluations`. Where an entry of a list
            lacks a key, its cells have the value of the scenario. Own files are without folders
            that tell no two apart.
        evaluations: a row for each cell and evaluation of its averaged model: `cell`, its name; the
            keys; the columns of `Run.evaluations`; and `device_accuracy_mean`, the mean of the
            devices' own models in the same evaluation, null where none was evaluated.
            `averaging_rate_found` has the rates that `gossip.averaging_rate: auto` found.
        missing: cells that are not finished, each with its reason.
        warnings: of finished cells whose figures are in doubt, such as models that move apart.
        notices: of rows whose cells can't well be averaged, as they did unlike numbers of rounds.
    """

    place: str
    name: str
    keys: tuple[str, ...]
    evaluations: pd.DataFrame
    missing: dict[str, str]
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether all cells are finished."""
        return not self.missing

    @property
    def final(self) -> pd.DataFrame:
        """The last evaluation of each cell: one row per cell."""
        return self.evaluations.groupby("cell", sort=False).tail(1).reset_index(drop=True)

    def means(self, over: str = SEED) -> pd.DataFrame:
        """Means and deviations over seeds, of each evaluation.

        Args:
            over: the key to average over.

        Returns:
            A row for each combination of the other keys and each evaluation: `round`, `epoch`,
            `cells` (how many were averaged), and of each figure its mean under its own name and its
            sample deviation under `<name>_std`, which is null for a single cell.
        """
        return self._averaged(self.evaluations, over)

    def table(self, over: str = SEED) -> pd.DataFrame:
        """The same of the last evaluations: a row for each combination of the other keys."""
        return self._averaged(self.final, over)

    def run(self, cell: str) -> Run:
        """The run of a cell, with all its tables."""
        return load_run(f"{self.place}/{cell}")

    def _averaged(self, rows: pd.DataFrame, over: str) -> pd.DataFrame:
        import pandas as pd

        if over not in (*self.keys, SEED):
            remedy = did_you_mean(over, self.keys, f"its keys are {', '.join(self.keys)}")
            raise ValueError(f"the sweep has no {over!r}; {remedy}")
        numbered = rows.assign(evaluation=rows.groupby("cell", sort=False).cumcount())
        if rows is not self.evaluations:  # last evaluations, whatever their numbers
            numbered["evaluation"] = 0
        kept = [key for key in self.keys if key != over]
        figures = [
            name
            for name in rows.columns
            if name not in ("cell", "round", "epoch", *self.keys)
            and pd.api.types.is_numeric_dtype(rows[name])
        ]
        groups = numbered.groupby([*kept, "evaluation"], sort=False, dropna=False)
        averaged = groups[["round", "epoch"]].mean()
        averaged["cells"] = groups.size()
        for name in figures:
            averaged[name] = groups[name].mean()
            averaged[f"{name}_std"] = groups[name].std()
        averaged = averaged.reset_index().drop(columns="evaluation")
        # Grouped keys have one type: numbers beside null would have become floats, null nan.
        first_rows = numbered.drop_duplicates([*kept, "evaluation"])
        first_rows.index = averaged.index
        return averaged.assign(**{key: first_rows[key] for key in kept})

    def warning_lines(self) -> list[str]:
        """Notices and the first warnings, a line each, and how many cells have more."""
        lines = [f"{cell}: {said[0]}" for cell, said in self.warnings.items()]
        more = len(lines) - _MOST_WARNINGS
        shown = lines[:_MOST_WARNINGS] + ([f"and {more} more cells"] if more > 0 else [])
        return [*self.notices, *shown]

    def __repr__(self) -> str:
        lines = [f"<sweep {self.name}: {self._said}; files {self.place}>"]
        lines += (f"missing {name}: {why}" for name, why in self._shown)
        return "\n".join(lines + [f"warning: {line}" for line in self.warning_lines()])

    def _repr_html_(self) -> str:
        missing = "".join(f"<p>missing {escape(n)}: {escape(why)}</p>" for n, why in self._shown)
        missing += "".join(f"<p>warning: {escape(line)}</p>" for line in self.warning_lines())
        table: str = self.table().to_html(index=False) if len(self.evaluations) else ""
        return f"<p>{escape(f'{self.name}: {self._said}')}</p>{missing}{table}"

    @property
    def _said(self) -> str:
        done = self.evaluations["cell"].nunique() if len(self.evaluations) else 0
        return f"{done} of {done + len(self.missing)} cells are finished"

    @property
    def _shown(self) -> Sequence[tuple[str, str]]:
        return list(self.missing.items())[:5]


def load_sweep(place: str | Path) -> SweepResults:
    """Load the results of a sweep's finished cells.

    Args:
        place: folder of the sweep; a path, or a URI that fsspec knows.

    Raises:
        SweepError: the place is no folder of a sweep; a cell's folder holds a run of other
            settings; or samples, files or own code differ between cells.
        RunDirectoryError: a file of a finished cell is damaged.
    """
    import pandas as pd

    store = Store.at(str(place))
    plan, failures = read_plan(store), read_failures(store)
    keys, tables, missing, told = tuple(plan["keys"]), [], {}, {}
    contents, environments, rounds = Contents(), {}, []
    every = _settings_of_all(plan["cells"], keys)
    for name, cell in plan["cells"].items():
        if not is_finished(store, name):
            missing[name] = failures.get(name, NOT_FINISHED)
            continue
        check_settings(store, name, cell["scenario"], cell["own_parts"])
        environments[name] = environment_of(store, name)
        contents.add(cell["scenario"], environments[name], f"cell {name}")
        run = load_run(f"{store.url}/{name}")
        if of_cell := run.summary.get("warnings"):
            told[name] = tuple(of_cell)
        rows, settings = _with_devices(run), every[name]
        if rounds_follow(run.scenario):
            row = tuple(value for key, value in settings.items() if key != SEED)
            rounds.append((row, _planned_rounds(run)))
        if cell["scenario"]["gossip"].get("averaging_rate") == "auto":
            rows = rows.assign(averaging_rate_found=run.summary["averaging_rate"])
        front = pd.DataFrame({"cell": name, **settings}, index=rows.index)
        tables.append(pd.concat([front, rows.drop(columns=_OF_DEVICES, errors="ignore")], axis=1))
    for name, warning in warnings_of_code(environments).items():
        told[name] = (*told.get(name, ()), warning)
    columns = ["cell", *keys, "round", "epoch", *_FIGURES]
    found = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
    if missing:
        warnings.warn(
            f"{store.url}: {len(missing)} of {len(plan['cells'])} cells are not finished; "
            "SweepResults.missing names them",
            UnfinishedRunWarning,
            stacklevel=2,
        )
    notices = tuple(notice_of_rounds(rounds))
    return SweepResults(store.url, plan["name"], keys, found, missing, told, notices)


def _planned_rounds(run: Run) -> int:
    """Rounds of its epochs, also where the fleet did fewer as batteries ran empty."""
    epochs, done = run.summary["epochs"], run.summary["rounds"]
    return round((run.scenario.training.epochs or 0) * done / epochs) if epochs else 0


def _with_devices(run: Run) -> pd.DataFrame:
    """Evaluations of the averaged model, beside the mean accuracy of the devices' own models."""
    rows = run.evaluations
    number = (rows["model"] == "consensus").cumsum()
    of_devices = rows["accuracy"].where(rows["model"] == "device").astype(float)
    means = of_devices.groupby(number).mean()
    consensus = run.consensus
    place = list(consensus.columns).index("accuracy") + 1
    consensus.insert(place, DEVICE_ACCURACY, means.to_numpy())
    return consensus


def _settings_of_all(
    cells: Mapping[str, Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Values of all cells by key; own files without folders that tell no two apart."""
    every = {
        name: settings_of(cell["settings"], cell["scenario"], keys) for name, cell in cells.items()
    }
    for key in keys:
        short = settings_in_table([found[key] for found in every.values()], key)
        for found, text in zip(every.values(), short, strict=True):
            if isinstance(found[key], str):
                found[key] = text
    return every


def settings_of(
    given: Mapping[str, Any], scenario: Mapping[str, Any], keys: Iterable[str]
) -> dict[str, Any]:
    """Values of a cell by key.

    Args:
        given: what the sweep gave it.
        scenario: its scenario as plain values, which has the value of a key that an entry of a list
            lacks.
        keys: of the sweep.
    """
    return {key: given[key] if key in given else _value(scenario, key) for key in keys}


def _value(scenario: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 (of any type)
    value = value_of(scenario, key)
    return in_yaml(value) if isinstance(value, dict | list) else value
