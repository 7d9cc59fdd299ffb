"""Sizes of the decompressed pages of a Parquet column.

Reading a page takes the memory that its header announces, and a page of a few kB can announce 2
GiB. The file's footer has sums of these sizes, but a damaged or hostile footer may not agree with
the pages; so the headers are read. The footer is parsed here, too, because pyarrow can crash the
process on a damaged footer.

Source: the Parquet format's parquet.thrift; the numbers below are those of its fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from edgesim.data.parquet.thrift_compact import CompactReader, Struct, Value

FOOTER_END = b"PAR1"
HEADER_BYTES = (1 << 9, 1 << 16, 1 << 24)  # read at a time; statistics may make a header long

_NUM_ROWS, _ROW_GROUPS = 3, 4  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_COLUMN_META_DATA = 3  # of ColumnChunk
_PATH, _NUM_VALUES, _COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 5, 7, 9, 11  # of its data
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3  # of PageHeader
_DATA_PAGE_HEADERS = (5, 8)  # likewise, version 1 and 2; the first field of each counts values

_UNKNOWN = "metadata of unknown form"

Wanted = TypeVar("Wanted", int, list[Value], Struct)


def num_rows(path: Path) -> int:
    """Rows that a file announces.

    Raises:
        ValueError: the footer can't be read.
        OSError: the file can't be read. Both hold for the functions below, too.
    """
    with path.open("rb") as file:
        return _field(_footer(file), _NUM_ROWS, int)


def largest_page_bytes(path: Path, column: tuple[str, ...]) -> int:
    """Decompressed size of the largest page of a column, over all row groups.

    Args:
        path: of the file.
        column: its name, in a struct the names of both.
    """
    wanted: list[Value] = [name.encode() for name in column]
    largest = 0
    with path.open("rb") as file:
        for row_group in _structs(_footer(file), _ROW_GROUPS):
            for chunk in _structs(row_group, _COLUMNS):
                data = _field(chunk, _COLUMN_META_DATA, dict)
                if data.get(_PATH) == wanted:
                    largest = max([largest, *_page_sizes(file, data)])
    return largest


def _footer(file: BinaryIO) -> Struct:
    """The struct FileMetaData."""
    end = file.seek(0, os.SEEK_END) - len(FOOTER_END) - 4
    if end > 0:
        file.seek(end)
        size, ending = int.from_bytes(file.read(4), "little"), file.read()
        if ending == FOOTER_END and size <= end:
            file.seek(end - size)
            try:
                return CompactReader(file.read(size)).struct()
            except IndexError:
                pass
    raise ValueError("a footer that is cut short")


def _page_sizes(file: BinaryIO, data: Struct) -> Iterator[int]:
    """Decompressed sizes of the pages of a column chunk, in the order of reading."""
    at, left = _field(data, _DATA_OFFSET, int), _field(data, _NUM_VALUES, int)
    dictionary_at = data.get(_DICTIONARY_OFFSET, 0)
    if isinstance(dictionary_at, int) and 0 < dictionary_at < at:
        at = dictionary_at
    end = at + _field(data, _COMPRESSED, int)
    while left > 0 and 0 <= at < end:
        header, header_bytes = _page_header(file, at)
        size = _field(header, _COMPRESSED_SIZE, int)
        if size < 0:
            raise ValueError("a page of less than no bytes")
        yield _field(header, _UNCOMPRESSED_SIZE, int)
        for number in _DATA_PAGE_HEADERS:
            if number in header:
                left -= _field(_field(header, number, dict), 1, int)
        at += header_bytes + size


def _page_header(file: BinaryIO, at: int) -> tuple[Struct, int]:
    """The header of the page at a place, and its length."""
    for size in HEADER_BYTES:
        file.seek(at)
        data = file.read(size)
        reader = CompactReader(data)
        try:
            return reader.struct(), reader.at
        except IndexError:
            if len(data) < size:
                break
    raise ValueError("a page header that is cut short")


def _structs(struct: Struct, number: int) -> Iterator[Struct]:
    """The structs in a field that is a list."""
    for value in _field(struct, number, list):
        if not isinstance(value, dict):
            raise ValueError(_UNKNOWN)  # noqa: TRY004  # the file's fault, not the program's
        yield value


def _field(struct: Struct, number: int, kind: type[Wanted]) -> Wanted:
    """A field that must be there."""
    value = struct.get(number)
    if not isinstance(value, kind):
        raise ValueError(_UNKNOWN)  # noqa: TRY004  # likewise
    return value
