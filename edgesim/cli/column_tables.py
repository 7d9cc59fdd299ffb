"""Output of `edgesim list columns`: what the columns of a run's tables mean."""

from __future__ import annotations

from collections.abc import Iterator

from edgesim.cli.key_tables import ListingError
from edgesim.errors import did_you_mean
from edgesim.results import columns
from edgesim.results.columns import Column
from edgesim.study.tables.table import Table

_ALWAYS, _PROFILES, _FREE = "always", "where devices have profiles", "at free pace"
_BATTERIES, _OWN = "where devices have batteries", "where devices have samples of their own"

TABLES: dict[str, dict[str, tuple[Column, ...]]] = {
    "rounds": {
        _ALWAYS: columns.ROUNDS,
        _PROFILES: columns.VIRTUAL_ROUNDS,
        _FREE: columns.FREE_ROUNDS,
        _BATTERIES: columns.BATTERY_ROUNDS,
    },
    "messages": {_ALWAYS: columns.MESSAGES, _PROFILES: columns.VIRTUAL_MESSAGES},
    "evaluations": {
        _ALWAYS: columns.EVALUATIONS,
        _OWN: columns.OWN_EVALUATIONS,
        "with evaluation.gossip_rounds": columns.GOSSIPED_EVALUATIONS,
        _PROFILES: columns.VIRTUAL_EVALUATIONS,
        "added by edgesim.load_run": columns.TOTALS,
    },
    "devices": {
        _ALWAYS: columns.DEVICES,
        _OWN: columns.OWN_DEVICES,
        _PROFILES: columns.VIRTUAL_DEVICES,
        _BATTERIES: columns.BATTERY_DEVICES,
        _FREE: columns.FREE_DEVICES,
    },
}
"""Columns of each table, by when they are there."""


def columns_table(name: str | None) -> Table:
    """Columns with their meanings: of all tables, of one, or one alone.

    Args:
        name: a table, or the name of a column, which several tables may have.

    Raises:
        ListingError: neither a table nor a column has this name.
    """
    tables = [name] if name in TABLES else list(TABLES)
    rows = [row for table in tables for row in _rows(table) if name in TABLES or _is(name, row)]
    if not rows:
        known = dict.fromkeys([*TABLES, *(row[1] for table in TABLES for row in _rows(table))])
        remedy = did_you_mean(str(name), known, "see `edgesim list columns`")
        raise ListingError(f"{name} is neither a table nor a column; {remedy}")
    heads = ("table", "column", "type", "meaning", "when")
    notes = ("Where devices have names, a column with the name follows each number.",)
    return Table("", heads, tuple(rows), notes, prose=frozenset({"meaning", "when"}))


def _rows(table: str) -> Iterator[tuple[str, ...]]:
    for when, group in TABLES[table].items():
        for column in group:
            yield table, column.name, column.type, column.meaning, when


def _is(name: str | None, row: tuple[str, ...]) -> bool:
    return name is None or name == row[1]
