"""A table of one's own, CSV or Parquet: some columns are inputs, one is the target."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray
from pydantic import Field

from edgesim.data.errors import DataError
from edgesim.data.parquet.parquet_files import find_splits, reading
from edgesim.data.text.corpus import may_name_owners
from edgesim.errors import did_you_mean
from edgesim.streams import StreamPurpose, stream

EXPECTS = (
    "a CSV or Parquet file with a line of column names, or a folder with train.csv and test.csv, "
    "or with train*.parquet and test*.parquet"
)
_MANY_CLASSES = 100  # whole numbers beyond are more likely quantities
_CONSTANT = 1e-12  # deviation by the mean of a column that rounding alone makes differ
_LARGEST_BLOCK = 2**31 - 1
_INDEX = re.compile(r"(|Unnamed: \d+|__index_level_\d+__)")  # as pandas writes numbers of rows
_OPTIONS = "data.options"


class Table:
    """Rows of a CSV or Parquet file: columns of numbers are inputs, one column is the target.

    Further columns may name the owner of each row (`data.partition.column`). `mean` and
    `deviation`, shape (features,), are those that inputs were standardized by.

    Attributes:
        target: name of the column to predict. Texts, true and false, and whole numbers are classes,
            numbered in their order; other numbers are quantities, for training.task: regression.
        features: list of the columns that are inputs, all of numbers; * stands for any letters, as
            in [temperature, acc_*], and [*] for all columns of numbers but the target and the
            numbers of rows that pandas writes.
        split: of one file, the column that says of each row whether it is of train or test; null:
            test_share says how many are.
        test_share: of one file without such a column, the share of the rows, drawn at random, to
            test with; the same ones for every seed.
        target_is: what the target is, where its values do not say it; null: they do.
        standardize: subtract from each input the mean of its column, and divide by the deviation,
            both of the training rows.
    """

    def __init__(
        self,
        path: str,
        *,
        target: str,
        features: Any,  # noqa: ANN401 (a scenario may hold anything)
        split: str | None = None,
        test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2,
        target_is: Literal["classes", "quantities"] | None = None,
        standardize: bool = True,
    ) -> None:
        train, test = _splits(Path(path), split, test_share)
        names = _features(features, train, target, split)
        self.columns, self.test_columns = (
            {
                name: _plain(rows[name])
                for name in rows.column_names
                if name not in (*names, target, split) and may_name_owners(rows[name].type)
            }
            for rows in (train, test)
        )
        inputs, test_inputs = (
            np.stack([_numbers(rows, name, which) for name in names], axis=1)
            for rows, which in ((train, "training"), (test, "test"))
        )
        self.mean, self.deviation = np.zeros(len(names)), np.ones(len(names))
        if standardize:
            self.mean, self.deviation = inputs.mean(axis=0), inputs.std(axis=0)
            self.deviation[self.deviation <= _CONSTANT * np.abs(self.mean)] = 1.0
        labels, test_labels = _targets(train, test, target, target_is)
        self.train = self._standardized(inputs), labels
        self.test = self._standardized(test_inputs), test_labels

    def _standardized(self, inputs: NDArray[np.float64]) -> NDArray[np.float32]:
        standardized: NDArray[np.float64] = (inputs - self.mean) / self.deviation
        return standardized.astype(np.float32)


def _splits(path: Path, split: str | None, test_share: float) -> tuple[pa.Table, pa.Table]:
    """Rows to train on and rows to test with; both have the same columns.

    Raises:
        DataError: there are no such files, one can't be read, or a split has no row.
    """
    if path.is_dir():
        if split is not None:
            raise DataError(
                f"{_OPTIONS}.split is {split}, but the folder {path} has a file of each split; "
                "remove it"
            )
        train, test = _of_folder(path)
    elif path.is_file():
        rows = _read(path)
        is_test = _drawn(len(rows), test_share) if split is None else _said(path, rows, split)
        train, test = rows.filter(pa.array(~is_test)), rows.filter(pa.array(is_test))
    else:
        raise DataError(f"data.path: {path} does not exist; give {EXPECTS}")
    for name, rows in (("train on", train), ("test with", test)):
        if not len(rows):
            raise DataError(f"data.path: {path} has no row to {name}; at least one is needed")
    if unlike := set(train.column_names) ^ set(test.column_names):
        raise DataError(
            f"data.path: {path}: only one of the splits has the column {min(unlike)}; give both "
            "the same columns"
        )
    return train, test


def _of_folder(folder: Path) -> tuple[pa.Table, pa.Table]:
    files = [folder / f"{name}.csv" for name in ("train", "test")]
    if all(file.is_file() for file in files):
        train, test = map(_read, files)
        return train, test
    if (found := find_splits(folder)) is None:
        raise DataError(f"data.path: {folder} lacks what table needs; give {EXPECTS}")
    train, test = (
        pa.concat_tables([_read(file) for file in found[name]]) for name in ("train", "test")
    )
    return train, test


def _read(path: Path) -> pa.Table:
    """Rows of a file, whose columns have different names.

    Raises:
        DataError: it can't be read.
    """
    if path.suffix == ".parquet":
        with reading(path) as file:
            rows = file.read()
    else:
        rows = _read_csv(path)
    for name, many in Counter(rows.column_names).items():
        if many > 1:
            raise DataError(f"data.path: {path} has two columns named {name}; rename one")
    return rows


def _read_csv(path: Path) -> pa.Table:
    try:
        rows = pa_csv.read_csv(
            path,
            # The type of a column follows from all its rows, not from the first megabyte.
            pa_csv.ReadOptions(block_size=min(path.stat().st_size + 1, _LARGEST_BLOCK)),
            pa_csv.ParseOptions(newlines_in_values=True),
        )
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"data.path: {path} can't be read: {reason}") from error
    if any(map(pa.types.is_binary, rows.schema.types)):
        raise DataError(
            f"data.path: {path} is not UTF-8 text; save it as UTF-8, as by `iconv -f latin1 -t "
            "utf-8`"
        )
    return rows


def _drawn(num_rows: int, share: float) -> NDArray[np.bool_]:
    """Which rows are to test with: at least one, and not all."""
    chosen = stream(0, StreamPurpose.VALIDATION, device=1).permutation(num_rows)
    is_test = np.zeros(num_rows, bool)
    is_test[chosen[: min(max(round(share * num_rows), 1), num_rows - 1)]] = True
    return is_test


def _said(path: Path, rows: pa.Table, column: str) -> NDArray[np.bool_]:
    """Which rows a column says are to test with."""
    _check_there(f"{_OPTIONS}.split", column, rows)
    names = np.array([str(name) for name in rows[column].to_pylist()])
    unknown = ~np.isin(names, ("train", "test"))
    if unknown.any():
        row = int(unknown.argmax())
        raise DataError(
            f"{path}: {column} of row {row + 1} is {str(names[row])!r}; must be train or test"
        )
    return np.asarray(names == "test")


def _features(features: object, rows: pa.Table, target: str, split: str | None) -> list[str]:
    """Columns that are inputs, in the order of the file.

    Raises:
        DataError: a name is no column, or a column holds no numbers.
    """
    key = f"{_OPTIONS}.features"
    if not isinstance(features, list | tuple) or not features:
        raise DataError(f"{key} is {features!r}; must be a list of columns, such as [acc_*]")
    _check_there(f"{_OPTIONS}.target", target, rows)
    chosen = set()
    for name in map(str, features):
        if "*" in name:
            like = [each for each in rows.column_names if fnmatchcase(each, name)]
            numbers = {each for each in like if _holds_numbers(rows[each])}
            found = {each for each in numbers if not _INDEX.fullmatch(each)} - {target, split}
            if not found:
                raise DataError(f"{key}: no column of numbers is like {name}; {_there(rows)}")
            chosen |= found
            continue
        _check_there(key, name, rows)
        if name == target:
            raise DataError(f"{key} has {name}, which is the target; remove it")
        if not _holds_numbers(rows[name]):
            raise DataError(
                f"{key}: {name} holds {rows[name].type}, and inputs are numbers; remove it, or "
                "write it as numbers, such as a column of 0 and 1 for each value"
            )
        chosen.add(name)
    return [name for name in rows.column_names if name in chosen]


def _check_there(key: str, name: str, rows: pa.Table) -> None:
    names = rows.column_names
    if name not in names:
        if len(names) == 1 and ";" in names[0]:
            raise DataError(f"{key}: the file has semicolons between its columns; write commas")
        raise DataError(
            f"{key}: no column is named {name}; {did_you_mean(name, names, _there(rows))}"
        )


def _there(rows: pa.Table) -> str:
    return f"there are {', '.join(rows.column_names)}"


def _holds_numbers(column: pa.ChunkedArray) -> bool:
    kind = column.type
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(check(kind) for check in checks)


def _numbers(rows: pa.Table, name: str, which: str) -> NDArray[np.float64]:
    """A column of numbers, none of them missing.

    Raises:
        DataError: the column of this split holds something else, or a number is missing.
    """
    column = rows[name]
    if not _holds_numbers(column):
        raise DataError(
            f"data.path: {name} holds {column.type} in the {which} rows; it must hold numbers in "
            "both splits"
        )
    numbers = column.cast(pa.float64(), safe=False).to_numpy()
    is_missing = ~np.isfinite(numbers)
    if is_missing.any():
        raise DataError(
            f"data.path: {name} is empty or not finite in {which} row {is_missing.argmax() + 1}, "
            f"and in {is_missing.sum():,} in all; fill or remove these rows"
        )
    return np.asarray(numbers, np.float64)


def _targets(
    train: pa.Table, test: pa.Table, name: str, target_is: str | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Targets of both splits: numbers of classes, or quantities."""
    parts = [train[name], test[name]]
    kind = target_is or _kind_of_target(name, parts)
    if kind == "quantities":
        values, test_values = (
            _numbers(rows, name, which).astype(np.float32)
            for rows, which in ((train, "training"), (test, "test"))
        )
        return values, test_values
    if _holds_numbers(parts[0]) != _holds_numbers(parts[1]):
        raise DataError(
            f"data.path: {name}, the target, holds {parts[0].type} in training rows and "
            f"{parts[1].type} in test rows; write both alike"
        )
    columns = [_classes(name, *each) for each in zip(("training", "test"), parts, strict=True)]
    number_of = {value: number for number, value in enumerate(sorted({*columns[0], *columns[1]}))}
    labels, test_labels = (
        np.array([number_of[value] for value in column], np.int64) for column in columns
    )
    return labels, test_labels


def _classes(name: str, which: str, column: pa.ChunkedArray) -> list[Any]:
    """The class of each row, as it is written."""
    found: list[Any] = column.to_pylist()
    for row, value in enumerate(found):
        if value is None or value == "" or value != value:
            raise DataError(
                f"data.path: {name}, the target, is empty in {which} row {row + 1}; fill or "
                "remove the row"
            )
    return found


def _kind_of_target(name: str, parts: Sequence[pa.ChunkedArray]) -> str:
    """What the values of a target say that they are.

    Raises:
        DataError: they do not say it.
    """
    kinds = [part.type for part in parts]
    if any(pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds):
        return "quantities"
    if all(map(pa.types.is_integer, kinds)):
        values = len(set().union(*(part.unique().to_pylist() for part in parts)))
        if values > _MANY_CLASSES:
            raise DataError(
                f"{_OPTIONS}.target: {name} has {values:,} whole numbers; say what they are with "
                f"{_OPTIONS}.target_is: quantities (for training.task: regression), or classes"
            )
    return "classes"


def _plain(column: pa.ChunkedArray) -> NDArray[Any]:
    """Values of a column, such as names of owners."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values: NDArray[Any] = column.to_numpy()
    return values
