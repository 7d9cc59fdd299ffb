"""Columns of Parquet files that may say who owns a sample."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.data.errors import DataError
from edgesim.data.parquet.parquet_files import reading


class ParquetColumns(Mapping[str, NDArray[Any]]):
    """Columns of a split's files by name, one value a row; each is read when it is asked for.

    Args:
        paths: of the files, in their order.
        without: names of columns that are left out.
    """

    def __init__(self, paths: Sequence[Path], without: Collection[str]) -> None:
        self._paths, self._without = paths, without

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column.

        Raises:
            KeyError: a file has no such column.
            DataError: a file can't be read, or a row has no value.
        """
        if name not in self._names:
            raise KeyError(name)
        return np.concatenate([_read(path, name) for path in self._paths])

    def __iter__(self) -> Iterator[str]:
        """Names of columns that every file has."""
        return iter(self._names)

    def __len__(self) -> int:
        """Number of such columns."""
        return len(self._names)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        schemas = []
        for path in self._paths:
            with reading(path) as file:
                schemas.append(file.schema_arrow)
        return tuple(
            name
            for name in dict.fromkeys(schemas[0].names)
            if name not in self._without and all(name in schema.names for schema in schemas)
        )


def _read(path: Path, name: str) -> NDArray[Any]:
    with reading(path) as file:
        values = file.read([name]).column(0)
    if values.null_count:
        row = values.is_null().to_numpy().argmax()
        raise DataError(f"{path}: {name}, row {row}: no value; remove the row")
    column: NDArray[Any] = values.to_numpy()
    return column
