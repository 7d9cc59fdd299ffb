"""Images in Parquet files, in the layout of the Hugging Face hub.

A row is an image and its label: `image` is a struct with the file's `bytes`, or the bytes alone;
`label` is a class number. Class names are in the schema's metadata if the hub's library wrote it.
Further columns may say who owns an image.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from edgesim.data.decoding import EncodedImage
from edgesim.data.encoded import EncodedSplit, make_splits
from edgesim.data.errors import DataError
from edgesim.data.images import Splits, first_label_outside
from edgesim.data.limits import GIB, MOST_MEMORY, memory_bytes
from edgesim.data.parquet.parquet_columns import ParquetColumns
from edgesim.data.parquet.parquet_files import find_splits, reading
from edgesim.data.parquet.parquet_pages import largest_page_bytes, num_rows
from edgesim.data.source import FolderSource

EXPECTS = "train*.parquet and test*.parquet (or validation*.parquet)"
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")
ROWS_PER_READ = 1024
BYTES_PER_READ = 1 << 28  # of decompressed images; rows are read one by one if a page has as many


def read_parquet(folder: Path, image_size: int | None) -> Splits | None:
    """Read both splits, of any number of classes; None if there are no files for both.

    Raises:
        DataError: a file is broken or has other columns, an image can't be read, or a label is
            no class number; with file, column and row.
    """
    return _read(folder, image_size, num_classes=None)


def read_parquet_of(num_classes: int) -> Callable[[Path, int | None], Splits | None]:
    """Reader of a well-known dataset's Parquet files, which must be of its number of classes."""
    return partial(_read, num_classes=num_classes)


def _read(folder: Path, image_size: int | None, num_classes: int | None) -> Splits | None:
    paths_by_split = find_splits(folder)
    if paths_by_split is None:
        return None
    train, test = ([_Table.open(p) for p in paths_by_split[split]] for split in ("train", "test"))
    class_names = _class_names([*train, *test], num_classes)
    if num_classes not in {None, len(class_names)}:
        raise DataError(
            f"data.path: {folder} has {len(class_names)} classes where this data.source has "
            f"{num_classes}; give its own files, or use data.source: parquet"
        )
    splits = make_splits(
        _read_split(train, class_names, image_size),
        _read_split(test, class_names, image_size),
        class_names,
    )
    columns, test_columns = (
        ParquetColumns(paths_by_split[split], without=IMAGE_COLUMNS) for split in ("train", "test")
    )
    return replace(splits, columns=columns, test_columns=test_columns)


@dataclass(frozen=True, slots=True)
class _Table:
    """A Parquet file with an image column and a label column; its labels are read."""

    path: Path
    image_path: tuple[str, ...]  # name of the column; in a struct, also of its field
    rows_per_read: int
    label_column: str
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None

    @property
    def image_column(self) -> str:
        """Its name."""
        return self.image_path[0]

    @classmethod
    def open(cls, path: Path) -> _Table:
        with reading(path) as file:
            schema = file.schema_arrow
            image_column = _column(path, schema, IMAGE_COLUMNS, _holds_bytes, "image bytes")
            label_column = _column(path, schema, LABEL_COLUMNS, pa.types.is_integer, "integers")
            _check_num_rows(path)
            _page_bytes(path, label_column)
            is_struct = pa.types.is_struct(schema.field(image_column).type)
            image_path = (image_column, "bytes") if is_struct else (image_column,)
            page_bytes = _page_bytes(path, *image_path)
            labels = file.read([label_column]).column(0)
            class_names = _names_in_metadata(schema, label_column)
        if labels.null_count:
            row = labels.is_null().to_numpy().argmax()
            raise DataError(f"{path}: {label_column}, row {row}: no label; remove the row")
        return cls(
            path,
            image_path,
            # A value lies in one page: so many rows take no more than BYTES_PER_READ.
            min(max(BYTES_PER_READ // max(page_bytes, 1), 1), ROWS_PER_READ),
            label_column,
            labels.to_numpy().astype(np.int64),
            class_names,
        )

    def check_labels(self, num_classes: int) -> None:
        """Refuse a label that is no class number."""
        if (row := first_label_outside(self.labels, num_classes)) is not None:
            raise DataError(
                f"{self.path}: {self.label_column}, row {row}: {self.labels[row]} is none of the "
                f"class numbers 0 to {num_classes - 1}; correct or remove the row"
            )

    def images(self, positions: NDArray[np.int64]) -> Iterator[EncodedImage]:
        """The images in the rows `positions`, which increase; row groups without them are not read.

        A few rows are in memory at a time.
        """
        start = 0
        with reading(self.path) as file:
            if file.metadata.num_rows != len(self.labels):
                raise self._unequal_columns()
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                wanted = positions[np.searchsorted(positions, start) :]
                wanted = wanted[: np.searchsorted(wanted, end)]
                if len(wanted):
                    yield from self._images_of_group(file, group, start, end, wanted)
                start = end

    def _images_of_group(
        self,
        file: pq.ParquetFile,
        group: int,
        start: int,
        end: int,
        positions: NDArray[np.int64],
    ) -> Iterator[EncodedImage]:
        """The images in some rows of a row group, which has the rows from `start` to `end`."""
        first = start
        batches = file.iter_batches(
            self.rows_per_read, row_groups=[group], columns=[".".join(self.image_path)]
        )
        for batch in batches:
            cells = batch.column(0)
            if pa.types.is_struct(cells.type):
                cells = pc.struct_field(cells, "bytes")
            inside = (positions >= first) & (positions < first + len(cells))
            rows = positions[inside]
            for row, cell in zip(rows, cells.take(pa.array(rows - first)), strict=True):
                data = cell.as_py()
                where = f"{self.path}: {self.image_column}, row {row}"
                if data is None:
                    raise DataError(f"{where} has no image bytes; embed them or remove the row")
                yield EncodedImage(data, where)
            first += len(cells)
        if first != end:
            raise self._unequal_columns()

    def _unequal_columns(self) -> DataError:
        return DataError(
            f"{self.path}: {self.image_column} and {self.label_column} differ in length; "
            "fetch the file again"
        )


def _check_num_rows(path: Path) -> None:
    """Refuse a file whose labels do not fit into memory; all labels are read at once."""
    rows, memory = num_rows(path), memory_bytes()
    if 8 * rows > MOST_MEMORY * memory:
        raise DataError(
            f"{path}: {rows:,} rows; their labels alone take more than a quarter of this machine's "
            f"{memory / GIB:,.1f} GiB of memory; give fewer"
        )


def _page_bytes(path: Path, *column: str) -> int:
    """Size of a column's largest page, which is read as a whole; checked."""
    num_bytes = largest_page_bytes(path, column)
    if num_bytes > BYTES_PER_READ:
        raise DataError(
            f"{path}: {'.'.join(column)} has a page of {num_bytes:,} bytes; at most "
            f"{BYTES_PER_READ:,} are read; write the file again with smaller pages"
        )
    return num_bytes


def _column(
    path: Path,
    schema: pa.Schema,
    names: Sequence[str],
    has_type: Callable[[pa.DataType], bool],
    content: str,
) -> str:
    """The column of one of these names; its type is checked."""
    name = next((name for name in names if name in schema.names), None)
    if name is None:
        raise DataError(
            f"{path}: no column {names[0]!r}, only {', '.join(map(repr, schema.names))}; "
            "images with labels are needed"
        )
    if schema.names.count(name) > 1:
        raise DataError(f"{path}: column {name!r} is there twice; remove one")
    if not has_type(column_type := schema.field(name).type):
        raise DataError(f"{path}: column {name!r} is {column_type}; it must hold {content}")
    return name


def _holds_bytes(column_type: pa.DataType) -> bool:
    if pa.types.is_struct(column_type):
        index = column_type.get_field_index("bytes")
        return index >= 0 and _holds_bytes(column_type.field(index).type)
    return bool(pa.types.is_binary(column_type) or pa.types.is_large_binary(column_type))


def _names_in_metadata(schema: pa.Schema, label_column: str) -> tuple[str, ...] | None:
    metadata = (schema.metadata or {}).get(b"huggingface")
    if metadata is None:
        return None
    try:
        names = json.loads(metadata)["info"]["features"][label_column]["names"]
    except (KeyError, TypeError):  # labels that are numbers only
        return None
    except RecursionError as error:
        raise ValueError("metadata nested without end") from error
    return tuple(map(str, names)) if isinstance(names, list) else None


def _class_names(tables: Sequence[_Table], num_classes: int | None) -> tuple[str, ...]:
    """Class names of the files if they agree.

    Else numbers, `num_classes` of them or up to the largest label.
    """
    named = [table for table in tables if table.class_names is not None]
    for table in named[1:]:
        if table.class_names != named[0].class_names:
            raise DataError(
                f"{table.path}: its class names are not those of {named[0].path}; "
                "give files of one dataset"
            )
    if named and named[0].class_names:
        return named[0].class_names
    labels = np.concatenate([table.labels for table in tables])
    # no more classes than rows, so that a stray huge number is refused by its row
    up_to_largest = min(int(labels.max(initial=0)) + 1, len(labels))
    return tuple(map(str, range(num_classes or up_to_largest)))


def _read_split(
    tables: Sequence[_Table], class_names: tuple[str, ...], image_size: int | None
) -> EncodedSplit:
    for table in tables:
        table.check_labels(len(class_names))
    labels = np.concatenate([table.labels for table in tables])
    if not len(labels):
        raise DataError(f"{tables[0].path}: no rows; at least one image is needed")

    def images(positions: NDArray[np.int64]) -> Iterator[EncodedImage]:
        start = 0
        for table in tables:
            end = start + len(table.labels)
            inside = positions[(positions >= start) & (positions < end)]
            if len(inside):
                yield from table.images(inside - start)
            start = end

    return EncodedSplit(labels, images, image_size)


PARQUET = FolderSource(
    description="your images, in Parquet files as on the Hugging Face hub",
    expects=EXPECTS,
    read=read_parquet,
    owners="any other column of the files that has a value in each row",
)
