"""Texts with their classes, read from CSV and Parquet files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgesim.data.errors import DataError
from edgesim.data.parquet.parquet_files import find_splits, reading

TEXT_COLUMNS = ("text", "sentence", "content")
LABEL_COLUMNS = ("label", "labels", "class")


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """A split of a corpus.

    Attributes:
        texts: one a sample.
        labels: its class, int64, shape (samples,).
        columns: by name, one value a sample, such as its owner.
    """

    texts: Sequence[str]
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)


def existing(path: str, expects: str) -> Path:
    """The file or folder of a corpus.

    Args:
        path: of the scenario; may be empty.
        expects: what should be there and where it comes from, for messages.

    Raises:
        DataError: there is none.
    """
    if not path:
        raise DataError(f"data.path is missing; give {expects}")
    place = Path(path)
    if not place.exists():
        raise DataError(f"data.path: {place} does not exist; give {expects}")
    return place


def read_csv(path: Path, num_columns: int, columns: str) -> Iterator[tuple[str, list[str]]]:
    """Rows of a CSV file without those that are empty, each with its place for messages.

    Args:
        path: of the file, in UTF-8.
        num_columns: of each row.
        columns: their meaning, for messages.

    Raises:
        DataError: another encoding, or a row with other columns.
    """
    csv.field_size_limit(sys.maxsize)
    with open_text(path) as file:
        rows = csv.reader(file)
        try:
            for row in rows:
                if not row:
                    continue
                where = f"{path}, line {rows.line_num}"
                if len(row) != num_columns:
                    raise DataError(
                        f"{where} has {len(row)} columns; must be {num_columns}: {columns}"
                    )
                yield where, row
        except csv.Error as error:
            raise DataError(f"{path}, line {rows.line_num}: {error}; mend the line") from error


@contextmanager
def open_text(path: Path) -> Iterator[Any]:
    """A text file in UTF-8, with or without a byte order mark.

    Raises:
        DataError: it can't be read, or is in another encoding.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise DataError(
            f"{path} is not UTF-8 text (byte {wrong:#04x}); save it as UTF-8, as by "
            f"`iconv -f latin1 -t utf-8`"
        ) from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error


def read_parquet_texts(folder: Path, num_classes: int | None) -> dict[str, Texts] | None:
    """Splits `train` and `test` of Parquet files with a column of text and one of classes.

    Args:
        folder: with `train*.parquet` and `test*.parquet`, or validation.
        num_classes: every label must be below; None: labels are not read and are 0.

    Returns:
        None if there are no files for both splits.

    Raises:
        DataError: a file is broken or has other columns, or a row has no text or no class.
    """
    paths_by_split = find_splits(folder)
    if paths_by_split is None:
        return None
    return {
        split: _joined([_read_table(path, num_classes) for path in paths])
        for split, paths in paths_by_split.items()
    }


def _read_table(path: Path, num_classes: int | None) -> Texts:
    with reading(path) as file:
        schema = file.schema_arrow
        names = schema.names
        text = _column(path, schema, TEXT_COLUMNS, "of text", pa.types.is_string)
        label = None
        if num_classes is not None:
            label = _column(path, schema, LABEL_COLUMNS, "of class numbers", pa.types.is_integer)
        others = [
            name
            for name in names
            if name not in (text, label) and may_name_owners(schema.field(name).type)
        ]
        table = file.read([name for name in (text, label, *others) if name is not None])
    for name in (text, label):
        if name is not None and (column := table.column(name)).null_count:
            row = column.is_null().to_numpy().argmax()
            raise DataError(f"{path}: {name}, row {row}: no value; remove the row")
    texts = table.column(text).to_pylist()
    if label is None or num_classes is None:
        labels = np.zeros(len(texts), np.int64)
    else:
        labels = table.column(label).to_numpy().astype(np.int64)
        outside = (labels < 0) | (labels >= num_classes)
        if outside.any():
            row = int(outside.argmax())
            raise DataError(
                f"{path}: {label}, row {row} is {labels[row]}; must be a class, 0 to "
                f"{num_classes - 1}"
            )
    columns = {name: table.column(name).to_numpy() for name in others}
    return Texts(texts, labels, columns)


def _column(path: Path, schema: pa.Schema, names: Sequence[str], kind: str, fits: Any) -> str:  # noqa: ANN401
    for name in names:
        if name in schema.names:
            found = schema.field(name).type
            if fits(found) or (kind == "of text" and pa.types.is_large_string(found)):
                return name
            raise DataError(f"{path}: column {name} holds {found}; must be {kind}")
    raise DataError(
        f"{path} has the columns {', '.join(schema.names)}; a column {kind} must be named "
        f"{' or '.join(names)}: rename it"
    )


def may_name_owners(kind: pa.DataType) -> bool:
    """Whether values of a column may name owners: texts, numbers, times."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    checks = (
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        *(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean),
        pa.types.is_temporal,
    )
    return any(check(kind) for check in checks)


def _joined(parts: Sequence[Texts]) -> Texts:
    names = set.intersection(*(set(part.columns) for part in parts))
    return Texts(
        [text for part in parts for text in part.texts],
        np.concatenate([part.labels for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in sorted(names)},
    )
