"""Joins the parts of a table; a part is in memory only while its rounds are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from edgesim.results.arrow_table import scalar_of, table_of
from edgesim.results.run_files import sealable_writer

ROWS_PER_GROUP = 2**17  # at least, in all groups but the last; a few tens of MB


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of consecutive rounds of one device.

    Attributes:
        first_round: first round of the rows.
        name: name of the file.
    """

    first_round: int
    name: str


def merge_parts(
    parts: Sequence[Part],
    read: Callable[[str], pa.Table],
    order: Sequence[str],
    empty: pa.Schema,
    target: IO[bytes],
) -> None:
    """Write all rows of the parts as one Parquet file.

    Args:
        parts: parts in the order of their first rounds.
        read: reads the part of a name.
        order: columns by which rows are sorted; the first is "round".
        empty: columns of the file if there is no part.
        target: file that is written.
    """
    assert order[0] == "round", "parts are known by it"
    groups = _groups(parts, read)
    first = next(groups, table_of((), empty))
    with sealable_writer(target, first.schema) as writer:
        for rows in chain([first], groups):
            writer.write_table(rows.sort_by([(column, "ascending") for column in order]))


def _groups(parts: Sequence[Part], read: Callable[[str], pa.Table]) -> Iterator[pa.Table]:
    """All rows in groups; the rounds of a group are not earlier than those of the groups before."""
    waiting: list[pa.Table] = []
    num_waiting, wanted = 0, ROWS_PER_GROUP
    for part, following in zip(parts, [*parts[1:], None], strict=False):
        waiting.append(read(part.name))
        num_waiting += waiting[-1].num_rows
        if following is None:
            yield pa.concat_tables(waiting)
        elif num_waiting >= wanted and following.first_round > part.first_round:
            rows = pa.concat_tables(waiting)
            behind = scalar_of(following.first_round, rows["round"].type)
            is_complete = pc.less(rows["round"], behind)
            yield rows.filter(is_complete)
            waiting = [rows.filter(pc.invert(is_complete))]
            num_waiting = waiting[0].num_rows
            # Remaining rows are filtered again; this is done rarely, as it takes much time.
            wanted = max(ROWS_PER_GROUP, 2 * num_waiting)
