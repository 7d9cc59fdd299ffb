"""Tables as HTML, for people who look at objects in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from edgesim.study.figures.page import section
from edgesim.study.tables.table import Table


def tables_html(tables: Sequence[Table], notices: Sequence[str] = ()) -> str:
    """Tables one below the other, with notices above them."""
    said = "".join(f"<p>notice: {escape(notice)}</p>\n" for notice in notices)
    return said + "".join(map(section, tables))
