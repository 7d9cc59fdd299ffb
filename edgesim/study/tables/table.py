"""A table of text, the same for the terminal and for pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title.

    Attributes:
        title: what it shows.
        columns: names of the columns.
        rows: rows with equal numbers of cells; a row with text in its first cell alone is a
            heading.
        notes: explanations, one line each.
        prose: names of columns with sentences, which may be broken between words. In a table
            without column names, labels of rows whose value is a sentence. Other cells are never
            broken.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    prose: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), "one cell a column"


def is_heading(row: tuple[str, ...]) -> bool:
    """Whether a row heads those below it."""
    return bool(row[0]) and not any(row[1:])
