"""Joins the parts of a table, each in memory only while rows of its rounds are still to come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from edgesim.errors import EdgesimError
from topologies import Presence

ROWS_PER_GROUP = 2**17  # at least, in all groups but the last; a few tens of MB


class RowsError(EdgesimError):
    """A table that does not hold what it should."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of rounds from one on, of one device.

    Attributes:
        first_round: no row is of an earlier one.
        name: of the file.
    """

    first_round: int
    name: str


def merge_parts(
    parts: Sequence[Part],
    read: Callable[[str], pa.Table],
    order: Sequence[str],
    empty: pa.Schema,
    target: IO[bytes],
    look_at: Callable[[pa.Table], None] | None = None,
) -> None:
    """Write all rows of the parts as one Parquet file.

    Args:
        parts: by first round, not decreasing.
        read: reads a part.
        order: columns by which rows are ordered; the first is "round".
        empty: columns of the file if there is no part.
        target: takes the file.
        look_at: is shown all rows, in groups whose rounds do not decrease.
    """
    assert order[0] == "round", "parts are known by it"
    groups = _groups(parts, read)
    first = next(groups, empty.empty_table())
    with pq.ParquetWriter(target, first.schema) as writer:
        for rows in chain([first], groups):
            if look_at is not None:
                look_at(rows)
            writer.write_table(rows.sort_by([(column, "ascending") for column in order]))


def _groups(parts: Sequence[Part], read: Callable[[str], pa.Table]) -> Iterator[pa.Table]:
    """All rows in groups; no row is of an earlier round than one of a group before."""
    waiting: list[pa.Table] = []
    num_waiting, wanted = 0, ROWS_PER_GROUP
    for part, following in zip(parts, [*parts[1:], None], strict=False):
        waiting.append(read(part.name))
        num_waiting += waiting[-1].num_rows
        if following is None:
            yield pa.concat_tables(waiting)
        elif num_waiting >= wanted and following.first_round > part.first_round:
            rows = pa.concat_tables(waiting)
            is_complete = pc.less(rows["round"], following.first_round)
            yield rows.filter(is_complete)
            waiting = [rows.filter(pc.invert(is_complete))]
            num_waiting = waiting[0].num_rows
            # What stays is filtered again: rarely, lest it be more work than all the rest.
            wanted = max(ROWS_PER_GROUP, 2 * num_waiting)


class RoundsOfDevices:
    """Makes sure that each device has one row for each round in which it took part, up to its last.

    Whatever was lost and done again, no round must be counted twice or not at all.

    Args:
        presence: who is there in which round.
    """

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._next: dict[int, int] = {}

    def look_at(self, rows: pa.Table) -> None:
        """Take in rows of rounds that no row before was later than.

        Raises:
            RowsError: a round is missing, or is there twice.
        """
        devices, rounds = (rows[name].to_numpy() for name in ("device", "round"))
        order = np.lexsort((rounds, devices))
        for own in np.split(order, np.flatnonzero(np.diff(devices[order])) + 1):
            if len(own):
                self._look_at_device(int(devices[own[0]]), rounds[own])

    def _look_at_device(self, device: int, rounds: NDArray[np.int64]) -> None:
        expected = np.append(self._next.get(device, 0), rounds[:-1] + 1)
        for place in np.flatnonzero(rounds != expected):
            if rounds[place] < expected[place]:
                raise RowsError(f"has round {rounds[place]} of device {device} twice")
            for missing in range(expected[place], rounds[place]):
                if self._presence.is_present(device, missing):
                    raise RowsError(f"lacks round {missing} of device {device}")
        self._next[device] = int(rounds[-1]) + 1
