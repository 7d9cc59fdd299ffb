"""The page: text, tables and figures in one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

from edgesim.report.figures.figure import Figure, csv_text
from edgesim.report.frames import Frame
from edgesim.report.libraries import libraries
from edgesim.study.tables.table import Table, is_heading

_LONG = 30  # characters of a cell that may have several lines
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
_CONFIG: dict[str, Any] = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": "#e8e8e8",
        "domainColor": "#999",
        "tickColor": "#999",
    },
    "axisX": {},
    "axisY": {},
    "legend": {
        "orient": "bottom",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "symbolLimit": 40,
        "symbolOpacity": 1,
        "symbolStrokeWidth": 2.5,
    },
}


@dataclass(frozen=True, slots=True)
class Notes:
    """A box of sentences.

    Attributes:
        title: heading of the box.
        lines: sentences.
        is_calm: whether there is nothing to worry about.
    """

    title: str
    lines: tuple[str, ...]
    is_calm: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page.

    Attributes:
        title: heading; empty for the part at the top.
        parts: what it consists of.
        is_open: whether it is shown at once; else it is opened by a click or a key.
    """

    title: str
    parts: Sequence[Part]
    is_open: bool = True


Part: TypeAlias = "Figure | Table | Notes"


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """HTML of the whole report.

    Args:
        title: title of the page.
        subtitle: a line below it.
        sections: parts, in their order.
    """
    content = _Content()
    bodies = [_section(section, number, content) for number, section in enumerate(sections)]
    links = "".join(
        f'<li><a href="#part-{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(sections)
        if section.title
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
        'img-src data: blob:">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_resource('page.css')}</style>\n</head>\n"
        f'<body>\n<h1>{escape(title)}</h1>\n<p class="under">{escape(subtitle)}</p>\n'
        f'<nav aria-label="Parts of the report"><ul>{links}</ul></nav>\n<main>\n'
        f"{''.join(bodies)}</main>\n"
        "<noscript><p>The figures need JavaScript, which is switched off here; text and tables "
        "do not.</p></noscript>\n"
        f'<script type="application/json" id="report-content">{content.as_json()}</script>\n'
        f"<script>{libraries()}</script>\n<script>\n{_resource('page.js')}</script>\n"
        "</body>\n</html>\n"
    )


class _Content:
    """What the script of the page reads: figures and their data, each table once."""

    def __init__(self) -> None:
        self._figures: dict[str, Any] = {}
        self._tables: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Frame] = []  # so that identities stay theirs

    def add(self, figure: Figure) -> list[tuple[str, str]]:
        """Add a figure.

        Returns:
            Name of the file and identity of each of its tables.
        """
        tables = {name: self._table(figure, name) for name in figure.tables}
        self._figures[figure.key] = {
            "description": f"{figure.title}. {figure.caption}",
            "views": [view.spec for view in figure.views],
            "tables": tables,
        }
        several = len(tables) > 1
        return [
            (f"{figure.key}-{name}" if several else figure.key, key) for name, key in tables.items()
        ]

    def _table(self, figure: Figure, name: str) -> str:
        table = figure.tables[name]
        if id(table) not in self._names:
            key = f"{figure.key}-{name}"
            self._names[id(table)], self._tables[key] = key, csv_text(table)
            self._kept.append(table)
        return self._names[id(table)]

    def as_json(self) -> str:
        """The same as JSON that may stand in a script element."""
        import altair as alt

        content = {
            "schema": alt.SCHEMA_URL,
            "config": _CONFIG,
            "figures": self._figures,
            "tables": self._tables,
        }
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.replace("<", "\\u003c")


def _resource(name: str) -> str:
    return files("edgesim.report").joinpath(name).read_text(encoding="utf-8")


def _section(section: Section, number: int, content: _Content) -> str:
    parts = "".join(_part(part, content) for part in section.parts)
    if not section.title:
        return f"<section>\n{parts}</section>\n"
    if section.is_open:
        return (
            f'<section id="part-{number}">\n<h2>{escape(section.title)}</h2>\n{parts}</section>\n'
        )
    return (
        f'<details id="part-{number}">\n<summary>{escape(section.title)}</summary>\n{parts}'
        "</details>\n"
    )


def _part(part: Part, content: _Content) -> str:
    if isinstance(part, Figure):
        return _figure(part, content)
    if isinstance(part, Table):
        return _table(part)
    items = "".join(f"<li>{escape(line)}</li>" for line in part.lines)
    calm = ' class="calm"' if part.is_calm else ""
    return f"<aside{calm}>\n<h3>{escape(part.title)}</h3>\n<ul>{items}</ul>\n</aside>\n"


def _figure(figure: Figure, content: _Content) -> str:
    links = "".join(
        f'<a href="#{figure.key}" data-table="{escape(key)}" download="{escape(name)}.csv">'
        f"{escape(name)}.csv</a>"
        for name, key in content.add(figure)
    )
    choice = ""
    if len(figure.views) > 1:
        buttons = "".join(
            f'<label><input type="radio" name="view-{figure.key}" data-figure="{figure.key}" '
            f'value="{place}"{" checked" if not place else ""}> {escape(view.label)}</label>'
            for place, view in enumerate(figure.views)
        )
        choice = f"<fieldset><legend>{escape(figure.choice)}</legend>{buttons}</fieldset>\n"
    return (
        f'<figure id="{figure.key}">\n<h3>{escape(figure.title)}</h3>\n'
        f"<figcaption>{escape(figure.caption)}</figcaption>\n{choice}"
        f'<div class="chart" data-figure="{figure.key}"></div>\n'
        f'<p class="data">Data: {links}</p>\n</figure>\n'
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    head = f"<thead><tr>{head}</tr></thead>\n" if any(table.columns) else ""
    rows = "".join(map(_row, table.rows))
    notes = "".join(f"<figcaption>{escape(note)}</figcaption>\n" for note in table.notes)
    wide = ' class="wide"' if len(table.columns) > 3 else ""
    heading = f"<h3>{escape(table.title)}</h3>\n" if table.title else ""
    return (
        f'<figure>\n{heading}<div class="scroll" tabindex="0"><table{wide}>\n{head}<tbody>\n'
        f"{rows}</tbody>\n</table></div>\n{notes}</figure>\n"
    )


def _row(row: Iterable[str]) -> str:
    cells = tuple(row)
    if len(cells) > 1 and is_heading(cells):
        return f'<tr><th colspan="{len(cells)}">{escape(cells[0])}</th></tr>\n'
    first, *others = cells
    rest = "".join(map(_cell, others))
    part_of_above = ' class="part"' if first.startswith("  ") else ""
    return f'<tr><th scope="row"{part_of_above}>{escape(first)}</th>{rest}</tr>\n'


def _cell(text: str) -> str:
    kind = ' class="long"' if len(text) > _LONG else ""
    return f"<td{kind}>{escape(text)}</td>"
