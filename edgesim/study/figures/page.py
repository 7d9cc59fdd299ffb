"""One page with all tables and figures; needs no other file."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from edgesim.study.figures.charts import Picture
from edgesim.study.tables.table import Table, is_heading

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; }
table { border-collapse: collapse; margin: 0.4rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.7rem; text-align: left; border-bottom: 1px solid #ddd; }
td:not(:first-child) { white-space: nowrap; }
section.plain td { white-space: normal; }
section { margin: 0 0 2rem; overflow-x: auto; }
figure { margin: 0 0 2rem; }
figure svg { max-width: 100%; height: auto; }
figcaption, p.note { color: #555; font-size: 0.85rem; margin: 0.2rem 0; }
h2 { font-size: 1.05rem; margin: 0 0 0.3rem; }
"""


def page(
    title: str, answers: Iterable[Table], pictures: Iterable[Picture], tables: Iterable[Table]
) -> str:
    """HTML with the figures inlined.

    Args:
        title: of the page.
        answers: tables above the figures.
        pictures: in the order of the page.
        tables: in the order of the page, below the pictures.
    """
    figures = "".join(
        f"<figure>{picture.svg}<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
        for picture in pictures
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{''.join(map(section, answers))}{figures}"
        f"{''.join(map(section, tables))}</body>\n</html>\n"
    )


def section(table: Table) -> str:
    """A table with its title and notes, as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    head = f"<thead><tr>{head}</tr></thead>\n" if any(table.columns) else ""
    rows = "".join(map(_row, table.rows))
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in table.notes)
    title = f"<h2>{escape(table.title)}</h2>" if table.title else ""
    kind = "" if any(table.columns) else ' class="plain"'  # sentences may be broken
    return (
        f"<section{kind}>\n{title}\n<table>\n"
        f"{head}<tbody>\n{rows}</tbody>\n</table>\n{notes}</section>\n"
    )


def _row(row: tuple[str, ...]) -> str:
    if is_heading(row):
        return f'<tr><th colspan="{len(row)}">{escape(row[0])}</th></tr>\n'
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n"
