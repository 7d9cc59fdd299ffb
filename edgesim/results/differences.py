"""Whether two finished runs have the same bits, and where they part."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.load import load_run
from edgesim.results.run_files import RunDirectoryError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from edgesim.results.models import DeviceModel
    from edgesim.results.run import Run

TABLES = ("rounds", "messages", "evaluations", "devices")
MODELS = "models"
_KEYS = ("round", "device", "sender", "receiver", "model")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table of two runs, or their final models.

    Attributes:
        what: name of the table, or `MODELS`.
        size: rows or models of both runs, in words.
        difference: how and where they differ first; empty if all bits are the same.
    """

    what: str
    size: str
    difference: str


def compare_runs(
    first: Run | PathLike[str] | str, second: Run | PathLike[str] | str
) -> tuple[Comparison, ...]:
    """Compare the tables and final models of two finished runs, bit by bit.

    Columns of this machine's times (`edgesim list columns`: `compute_wall_s`, `compute_cpu_s`,
    `wait_wall_s`) are left out: they differ always.

    Args:
        first: its folder, or as `edgesim.load_run` reads it.
        second: another one.

    Returns:
        One for each table, then one for the models.

    Raises:
        RunDirectoryError: one of them is not finished.
    """
    one, other = (
        load_run(fspath(run)) if isinstance(run, str | PathLike) else run for run in (first, second)
    )
    for run in (one, other):
        if not run.is_finished:
            raise RunDirectoryError(
                f"{run.place}: is not finished; edgesim resume goes on with it, or says why not"
            )
    tables = (
        Comparison(
            name,
            _counts(len(getattr(one, name)), len(getattr(other, name)), "row"),
            (_of_evaluations if name == "evaluations" else _difference)(
                _content(getattr(one, name)), _content(getattr(other, name))
            ),
        )
        for name in TABLES
    )
    counts = _counts(len(one.models), len(other.models), "model")
    return (*tables, Comparison(MODELS, counts, _difference_of_models(one, other)))


def _counts(first: int, second: int, what: str) -> str:
    text = f"{first:,}" if first == second else f"{first:,} and {second:,}"
    return f"{text} {what}{'' if first == second == 1 else 's'}"


def _content(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=list(WALL_COLUMNS), errors="ignore")


def _difference(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Where two tables differ first; empty if they don't."""
    import numpy as np

    if unlike := set(first.columns) ^ set(second.columns):
        return f"columns of one run alone: {', '.join(sorted(unlike))}"
    num_rows = min(len(first), len(second))
    differs: NDArray[Any] = np.zeros(num_rows, bool)
    by_column = {}
    for column in first.columns:
        own = _unequal(first[column].iloc[:num_rows], second[column].iloc[:num_rows])
        if own.any():
            by_column[str(column)] = own
            differs |= own
    if not by_column:
        return "" if len(first) == len(second) else "the same bits as far as both go"
    row = int(differs.argmax())
    column = next(column for column, own in by_column.items() if own[row])
    one, two = (table[column].iloc[row] for table in (first, second))
    others = [name for name in by_column if name != column]
    also = f"; also in {', '.join(others)}" if others else ""
    return (
        f"{int(differs.sum()):,} of {num_rows:,}, first in {_place(first, row)}: "
        f"{column} {one} and {two}{also}"
    )


def _of_evaluations(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """The same of evaluations, which may be of other rounds; then of those that both runs have."""
    keys = ["round", "device"]
    one, two = (table.set_index(keys, drop=False) for table in (first, second))
    is_known = one.index.is_unique and two.index.is_unique  # not of devices that ended early
    if set(first["round"]) == set(second["round"]) or not is_known:
        return _difference(first, second)
    both = one.index.intersection(two.index)
    if both.empty:
        return "other rounds were evaluated, none in both"
    difference = _difference(one.loc[both], two.loc[both]) or "the same bits"
    return f"other rounds were evaluated; models in both: {difference}"


def _unequal(first: pd.Series[Any], second: pd.Series[Any]) -> NDArray[Any]:
    """Rows in which two columns differ: in bits, or in values if they are no numbers."""
    import numpy as np
    import pandas as pd

    one, two = first.to_numpy(), second.to_numpy()
    found: NDArray[Any]
    if one.dtype == two.dtype and one.dtype.kind in "iubf":
        bits = np.dtype(f"u{one.dtype.itemsize}")
        # Two NaN are alike.
        found = (one.view(bits) != two.view(bits)) & ~(pd.isna(one) & pd.isna(two))
        return found
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return np.array([not _same(a, b) for a, b in pairs], bool)


def _same(first: object, second: object) -> bool:
    """Whether two cells are alike: texts, lists, or nothing."""
    import numpy as np

    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return first == second or (first != first and second != second)


def _place(table: pd.DataFrame, row: int) -> str:
    keys = [key for key in _KEYS if key in table]
    return ", ".join(f"{key} {table[key].iloc[row]}" for key in keys)


def _difference_of_models(first: Run, second: Run) -> str:
    if set(first.models) != set(second.models):
        lacking = sorted(set(first.models) ^ set(second.models))
        whose = "the second" if lacking[0] in first.models else "the first"
        return f"{whose} run lacks that of device {lacking[0]}"
    unlike = [
        device
        for device in sorted(first.models)
        if _bytes(first.models[device]) != _bytes(second.models[device])
    ]
    if not unlike:
        return ""
    return f"{len(unlike):,} of them, first that of device {unlike[0]}"


def _bytes(model: DeviceModel) -> tuple[object, ...]:
    return model.x.tobytes(), model.u, model.buffers.tobytes(), model.rounds_done, model.gone
