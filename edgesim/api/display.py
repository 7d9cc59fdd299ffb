"""Tables as text and as HTML, for people who look at objects in a notebook or at a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from edgesim.study.figures.page import section
from edgesim.study.tables.table import Table, is_heading


def table_text(table: Table) -> list[str]:
    """Lines of a table: its title, its columns if they have names, its rows."""
    rows = [table.columns, *table.rows] if any(table.columns) else list(table.rows)
    full = [row for row in rows if not is_heading(row)] or rows
    widths = [max(len(row[place]) for row in full) for place in range(len(table.columns))]
    lines = [
        row[0]
        if is_heading(row)
        else "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [table.title, *lines, *table.notes]


def tables_html(tables: Sequence[Table], notices: Sequence[str] = ()) -> str:
    """Tables one below the other, with notices above them."""
    said = "".join(f"<p>notice: {escape(notice)}</p>\n" for notice in notices)
    return said + "".join(map(section, tables))
