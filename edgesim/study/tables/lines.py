"""Tables as lines of text, in which every name, number and path can be copied.

A pipe or a file gets one line for each row, of any length. Cells that are longer than most move
what follows them. On a terminal, sentences of a table that is too wide are broken between words; if
that is not enough, rows become lists. No cell is ever cut, and no word, name, number or path is
broken.
"""

from __future__ import annotations

from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from edgesim.errors import printable
from edgesim.study.tables.table import Table, is_heading

GAP = "  "  # between columns
MOST_PADDED = 40  # characters to which the cells of a column are padded in a pipe
LEAST_PROSE = 24  # characters a line; a narrower column of sentences can't be read


def show(table: Table, console: Console) -> None:
    """Print a table with its title and notes."""
    width = console.width if console.is_terminal else None
    for line in _sentence(table.title, width):
        console.print(Text(line, style="bold"), soft_wrap=True)
    for line in table_lines(table, width):
        console.print(Text(line), soft_wrap=True)
    for note in table.notes:
        for line in _sentence(note, width):
            console.print(Text(line, style="dim"), soft_wrap=True)


def table_lines(table: Table, width: int | None) -> list[str]:
    """Lines of a table's columns and rows.

    Args:
        table: the table.
        width: largest length of a line; only a word, or a cell that is no sentence, can make a line
            longer. None: each row is one line.
    """
    columns = tuple(map(_one_line, table.columns))
    rows = [tuple(map(_one_line, row)) for row in table.rows]
    header = [columns] if any(columns) else []
    widths = _widths([*header, *rows], len(columns))
    if width is None:
        widths = [min(own, MOST_PADDED) for own in widths]
        return [_aligned(row, widths) for row in (*header, *rows)]
    if _total(widths) <= width:
        return [_aligned(row, widths) for row in (*header, *rows)]
    if narrowed := _narrowed(table, rows, widths, width):
        broken = [line for row in rows for line in _broken(row, narrowed, table)]
        return [_aligned(row, narrowed) for row in header] + broken
    if not header and len(columns) == 2:
        return [line for row in rows for line in _pair(row, widths[0], width, table.prose)]
    return [line for row in rows for line in _block(table, row, width)]


def _one_line(cell: str) -> str:
    return printable(cell.replace("\r", " ").replace("\n", " "))


def _sentence(text: str, width: int | None) -> list[str]:
    """Lines of a sentence, broken between words."""
    if not text:
        return []
    if width is None:
        return [_one_line(text)]
    return wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)


def _widths(rows: list[tuple[str, ...]], num_columns: int) -> list[int]:
    """Width of each column; a row that heads others may run over all columns."""
    of_cells = [row for row in rows if not is_heading(row)] or rows
    return [max((cell_len(row[c]) for row in of_cells), default=0) for c in range(num_columns)]


def _total(widths: list[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return row[0] if is_heading(row) else _joined(row, widths)


def _joined(cells: tuple[str, ...], widths: list[int]) -> str:
    """One line of cells, each padded to the width of its column."""
    filled = (
        cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)
    )
    return GAP.join(filled).rstrip()


def _narrowed(
    table: Table, rows: list[tuple[str, ...]], widths: list[int], width: int
) -> list[int] | None:
    """Widths with narrower columns of sentences; None if that does not help."""
    prose = [c for c, name in enumerate(table.columns) if name in table.prose]
    if not prose:
        return None
    room = width - _total([0 if c in prose else w for c, w in enumerate(widths)])
    narrowed = list(widths)
    for left, column in zip(range(len(prose), 0, -1), prose, strict=True):
        words = [word for row in rows for word in row[column].split()]
        longest = max(map(cell_len, words), default=0)
        narrowed[column] = min(widths[column], max(room // left, LEAST_PROSE, longest))
        room -= narrowed[column]
    return narrowed if room >= 0 else None


def _broken(row: tuple[str, ...], widths: list[int], table: Table) -> list[str]:
    """Lines of a row; its longest sentence decides how many."""
    cells = [
        _sentence(cell, width) or [""] if name in table.prose else [cell]
        for name, cell, width in zip(table.columns, row, widths, strict=True)
    ]
    height = max(map(len, cells))
    lines = zip(*(cell + [""] * (height - len(cell)) for cell in cells), strict=True)
    return [_joined(line, widths) for line in lines]


def _pair(row: tuple[str, ...], label_width: int, width: int, prose: frozenset[str]) -> list[str]:
    """A label with its value beside it, or below it if there is no room."""
    label, value = row
    line = _aligned(row, [label_width, 0])
    if cell_len(line) <= width:
        return [line]
    if label not in prose:
        return [label, f"{GAP}{value}"]
    broken = _sentence(value, max(width - len(GAP), LEAST_PROSE))
    return [label, *(f"{GAP}{part}" for part in broken)]


def _block(table: Table, row: tuple[str, ...], width: int) -> list[str]:
    """A row as a list: its first cell, and below it each other one with its column's name."""
    lines = [row[0]]
    names = table.columns[1:]
    label_width = max(map(cell_len, names))
    indent = " " * (len(row[0]) - len(row[0].lstrip())) + GAP
    for name, cell in zip(names, row[1:], strict=True):
        if not cell:
            continue
        label = f"{indent}{name.ljust(label_width)}{GAP}" if label_width else indent
        if name in table.prose:
            first, *others = _sentence(cell, max(width - cell_len(label), LEAST_PROSE))
            lines += [label + first, *(" " * cell_len(label) + other for other in others)]
        elif cell_len(label) + cell_len(cell) <= width or not name:
            lines.append(label + cell)
        else:
            lines += [indent + name, indent + GAP + cell]
    return lines
