"""Contact traces from files."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import isfinite
from pathlib import Path

from topologies.errors import OtherDevicesError, TopologyError
from topologies.file_size import check_file
from topologies.files import LINK_FIGURES
from topologies.mixing import Weights
from topologies.traces import ContactTrace

_COLUMNS = ("time", "source", "target", "duration")
_LATEST_S = Decimal(10**12)  # so that rounds fit 64 bits; Unix times in milliseconds are beyond
_SHORTEST_ROUND_S = 1e-6
_MOST_DIGITS = 9  # of a device number
_LONGEST_CELL = 100  # characters; messages quote them


def load_trace(
    path: Path,
    num_devices: int,
    *,
    seconds_per_round: float,
    undirected: bool = False,
    repeat: bool = False,
    weights: Weights = "column_stochastic",
) -> ContactTrace:
    """Read a contact trace from comma-separated text.

    The first line names the columns `time,source,target,duration`, in any order. Every further
    line is a contact in which `source` can send to `target`, from `time` on for `duration`, in
    seconds with decimals; lines are sorted by time. Empty lines, and lines that start with #, are
    skipped. Times are read as exact decimals: with 0.1 seconds per round, 0.3 is the begin of round
    3.

    Further columns may be those of `LINK_FIGURES`, such as `bandwidth_mbps`: figures of the link
    from `source` to `target`, the same in all of its contacts. An empty cell says nothing.

    If all of `source` and `target` are whole numbers, they are the devices' numbers, from 0.
    Otherwise they are names, one of each device, numbered in their sorted order as in graph files.

    Args:
        path: of the file.
        num_devices: of the fleet.
        seconds_per_round: S; round k stands for the seconds from k S to (k + 1) S, at least 1e-6.
        undirected: each contact goes both ways.
        repeat: whether the trace begins again after its last round; otherwise there are no more
            contacts.
        weights: see `ContactTrace`.

    Raises:
        TopologyError: the file is missing or broken; says which line, and what would be right.
    """
    if not (isfinite(seconds_per_round) and seconds_per_round >= _SHORTEST_ROUND_S):
        raise TopologyError(
            f"seconds_per_round is {seconds_per_round:g}; must be at least {_SHORTEST_ROUND_S:g}"
        )
    # repr is the shortest decimal of this float: the one in the scenario.
    reader = _Reader(path, num_devices, Decimal(repr(float(seconds_per_round))), undirected)
    check_file(path)
    try:
        reader.read()
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path}: is no text in UTF-8 (byte {error.start})") from error
    except csv.Error as error:
        raise TopologyError(f"{path}: is no comma-separated text: {error}") from error
    names = reader.names()
    number = {name: device for device, name in enumerate(names)}

    def numbered(edge: tuple[str, str]) -> tuple[int, int]:
        source, target = edge
        return (number[source], number[target]) if names else (int(source), int(target))

    contacts = {numbered(edge): changes for edge, changes in reader.changes.items()}
    figures = {numbered(edge): own for edge, own in reader.figures.items()}
    spans_s = {numbered(edge): own for edge, own in reader.spans_s.items()}
    try:
        return ContactTrace(
            num_devices, contacts, seconds_per_round, repeat, weights, names, figures, spans_s
        )
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from error


@dataclass
class _Reader:
    """Reads a trace line by line.

    Attributes:
        changes: rounds in which each edge becomes active and inactive, by the names in the file
            (numbers without leading zeros).
        figures: of the links that have some, by the same names.
        spans_s: begin and length of each edge's contacts in turn, in seconds; those that overlap
            are one. Of an undirected trace for one way alone.
    """

    path: Path
    num_devices: int
    seconds_per_round: Decimal
    undirected: bool
    changes: dict[tuple[str, str], array[int]] = field(default_factory=dict)
    figures: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    spans_s: dict[tuple[str, str], array[float]] = field(default_factory=dict)
    _last_contact: dict[tuple[str, str], tuple[Decimal, Decimal]] = field(default_factory=dict)
    _line_of_figures: dict[tuple[str, str], int] = field(default_factory=dict)
    _first_line_by_device: dict[str, int] = field(default_factory=dict)
    _latest: tuple[Decimal, int] | None = None  # time and line of the last contact

    def read(self) -> None:
        """Read the file.

        Raises:
            TopologyError: what is wrong with its contents, with the line.
        """
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            lines = _without_comments(csv.reader(file, strict=True))
            line, header = next(lines, (0, []))
            if not header:
                raise TopologyError(
                    f"{self.path}: is empty; must begin with the line {','.join(_COLUMNS)}"
                )
            columns = [cell.lower() for cell in header]
            further = [column for column in columns if column not in _COLUMNS]
            if (
                not set(_COLUMNS) <= set(columns)
                or len(set(columns)) < len(columns)
                or not set(further) <= set(LINK_FIGURES)
            ):
                raise self._error(
                    line,
                    f"has the columns {', '.join(header)}; must be {', '.join(_COLUMNS)}, and of "
                    f"links maybe {', '.join(LINK_FIGURES)}",
                )
            for line, cells in lines:
                if len(cells) != len(columns):
                    raise self._error(line, f"has {len(cells)} cells; must be {', '.join(columns)}")
                if len(max(cells, key=len)) > _LONGEST_CELL:
                    raise self._error(line, f"has a cell of more than {_LONGEST_CELL} characters")
                self._add(line, dict(zip(columns, cells, strict=True)))
        if not self.changes:
            raise TopologyError(f"{self.path}: has no contacts")

    def names(self) -> tuple[str, ...]:
        """Names of the devices in their order; empty if they are numbered.

        Raises:
            TopologyError: there are less than the fleet has devices.
        """
        names = tuple(sorted(self._first_line_by_device))
        if _is_number(names[0]):
            return ()
        if len(names) < self.num_devices:
            raise OtherDevicesError(self.path, "names", names, self.num_devices)
        return names

    def _add(self, line: int, cells: dict[str, str]) -> None:
        time_s, end_s = self._times(line, cells)
        source, target = (self._device(line, cells[column]) for column in ("source", "target"))
        if source == target:
            raise self._error(line, f"{source} is in contact with itself; remove that line")
        first, _ = divmod(time_s, self.seconds_per_round)
        end, rest_s = divmod(end_s, self.seconds_per_round)
        # Even the shortest contact is active in a round; the rounded sum of its times may hide
        # that.
        first_round, end_round = int(first), max(int(end) + bool(rest_s), int(first) + 1)
        figures = {
            name: self._number(line, name, cells[name]) for name in LINK_FIGURES if cells.get(name)
        }
        edges = [(source, target), (target, source)] if self.undirected else [(source, target)]
        self._note_span(min(edges), time_s, end_s)
        for edge in edges:
            self._join(edge, first_round, end_round)
            self._note_figures(line, edge, {name: float(f) for name, f in figures.items()})

    def _note_figures(self, line: int, edge: tuple[str, str], figures: dict[str, float]) -> None:
        """Keep figures of a link; contacts without any have those of the others."""
        known = self.figures.get(edge)
        if not figures:
            return
        if known is not None and known != figures:
            raise self._error(
                line,
                f"the link {' -> '.join(edge)} has other figures than in line "
                f"{self._line_of_figures[edge]}; a link has the same ones in all of its contacts",
            )
        self.figures[edge] = figures
        self._line_of_figures.setdefault(edge, line)

    def _times(self, line: int, cells: dict[str, str]) -> tuple[Decimal, Decimal]:
        """Begin and end of a contact."""
        time_s, duration_s = (self._number(line, c, cells[c]) for c in ("time", "duration"))
        if time_s < 0:
            raise self._error(line, f"time is {time_s}; must be at least 0")
        if duration_s <= 0:
            raise self._error(line, f"duration is {duration_s}; must be above 0")
        # Each is checked by itself first: the sum may overflow.
        if max(time_s, duration_s) > _LATEST_S or time_s + duration_s > _LATEST_S:
            raise self._error(line, f"ends after {_LATEST_S:.0e} s; times are in seconds from 0")
        if self._latest is not None and time_s < self._latest[0]:
            raise self._error(
                line,
                f"time {time_s} is before {self._latest[0]} of line {self._latest[1]}; "
                "sort the lines by time",
            )
        self._latest = time_s, line
        return time_s, time_s + duration_s

    def _number(self, line: int, column: str, cell: str) -> Decimal:
        try:
            number = Decimal(cell)
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite():
            unit = "" if column in LINK_FIGURES else " of seconds"
            raise self._error(line, f"{column} is {cell!r}; must be a number{unit}")
        return number

    def _device(self, line: int, cell: str) -> str:
        """Name of a device, or its number without leading zeros."""
        if not cell:
            raise self._error(line, "names no device; must have a source and a target")
        name = (cell.lstrip("0") or "0") if _is_number(cell) else cell
        known = self._first_line_by_device
        if name not in known:
            self._check_new(line, name)
            known[name] = line
        return name

    def _check_new(self, line: int, name: str) -> None:
        """Refuse an impossible device number or name."""
        known = self._first_line_by_device
        if known:
            other, its_line = next(iter(known.items()))
            if _is_number(other) != _is_number(name):
                one, two = ("number", "name") if _is_number(name) else ("name", "number")
                raise self._error(
                    line, f"{name} is a {one}, but {other} of line {its_line} a {two}; use one kind"
                )
        if _is_number(name):
            if len(name) > _MOST_DIGITS or int(name) >= self.num_devices:
                raise self._error(
                    line, f"there is no device {name}; the fleet has 0 to {self.num_devices - 1}"
                )
        elif len(known) >= self.num_devices:
            raise self._error(
                line,
                f"{name} is one name more than the fleet has devices, {self.num_devices}: "
                f"beside {_some(known)}",
            )

    def _join(self, edge: tuple[str, str], first_round: int, end_round: int) -> None:
        """Add a contact to the contacts of an edge; contacts may overlap."""
        changes = self.changes.setdefault(edge, array("q"))
        # Lines are sorted by time, so it begins in the last of the edge's contacts or after it.
        if changes and first_round <= changes[-1]:
            changes[-1] = max(changes[-1], end_round)
        else:
            changes.extend((first_round, end_round))

    def _note_span(self, edge: tuple[str, str], time_s: Decimal, end_s: Decimal) -> None:
        """Keep the seconds of a contact, or lengthen the edge's last one that it goes on from."""
        spans_s = self.spans_s.setdefault(edge, array("d"))
        begin_s, until_s = self._last_contact.get(edge, (time_s, time_s))
        if spans_s and time_s <= until_s:
            del spans_s[-2:]
        else:
            begin_s, until_s = time_s, time_s
        self._last_contact[edge] = begin_s, max(until_s, end_s)
        spans_s.extend((float(begin_s), float(self._last_contact[edge][1] - begin_s)))

    def _error(self, line: int, problem: str) -> TopologyError:
        return TopologyError(f"{self.path}, line {line}: {problem}")


def _without_comments(lines: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Lines that are neither empty nor comments, with their numbers from 1."""
    for cells in lines:
        stripped = [cell.strip() for cell in cells]
        if any(stripped) and not stripped[0].startswith("#"):
            yield lines.line_num, stripped  # type: ignore[attr-defined]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _some(names: dict[str, int]) -> str:
    few = sorted(names)[:5]
    return ", ".join(few) + (", ..." if len(names) > len(few) else "")
