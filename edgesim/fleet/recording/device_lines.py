"""The lines about devices on a terminal: one for each, or only the extremes of a large fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size

from edgesim.fleet.recording.fleet_state import FleetState

WIDEST_NAME, NARROWEST_NAME = 24, 6
_FEWEST_ROWS = 2  # of each of the two lists of a large fleet
_LEAST_DOING = 22  # cells for what a device waits for
_DROPPED_FIRST = ("restarts", "mailbox", "clock", "accuracy", "staleness", "charge")


@dataclass(frozen=True, slots=True)
class _Figure:
    """A column of figures.

    Attributes:
        head: title.
        width: in cells.
        of_device: a device's figure as it sorts; None if there is none.
        text: the figure as it is shown.
    """

    head: str
    width: int
    of_device: Callable[[FleetState, int], float | None]
    text: Callable[[float], str]


def duration(seconds: float) -> str:
    """A time in the unit that suits it: 40.1 ms, 9.2 s, 4.2 min, 3.1 h, 2.3 d."""
    if 0 < seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    for size, unit, most in ((1, "s", 120), (60, "min", 120 * 60), (3600, "h", 48 * 3600)):
        if seconds < most:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:.1f} d"


def device_lines(fleet: FleetState, width: int, height: int) -> list[str]:
    """Lines about the devices, the first of them a head.

    Args:
        fleet: its state.
        width: of a line, in cells.
        height: most lines.
    """
    if height < 2:
        return []
    figures = _figures(fleet, width)
    if fleet.facts.num_devices < height:
        devices = range(fleet.facts.num_devices)
        labels = ["device", *map(fleet.facts.label, devices)]
        name_width = _name_width(labels, figures, width)
        return _table("device", figures, fleet, devices, width, name_width)
    return _extremes(fleet, figures, width, height)


def _figures(fleet: FleetState, width: int) -> list[_Figure]:
    """The columns that this fleet has and that the width has room for."""
    rounds = len(str(fleet.facts.num_rounds))
    known = [
        _Figure("round", max(rounds, 5), _progress("rounds_done"), lambda v: f"{v:.0f}"),
        _Figure("clock", 9, _progress("virtual_time_s"), duration),
        _Figure("loss", 7, _progress("loss"), lambda v: f"{v:.4f}" if abs(v) < 100 else f"{v:.1e}"),
        _Figure("accuracy", 8, _accuracy, lambda v: f"{v:.4f}"),
        _Figure("staleness", 9, _progress("staleness_s"), duration),
        _Figure("charge", 6, _charge, lambda v: "empty" if v <= 0 else f"{100 * v:.0f} %"),
    ]
    if width >= 100:
        known.append(_Figure("mailbox", 7, _progress("mailbox_messages"), lambda v: f"{v:.0f}"))
        known.append(_Figure("restarts", 8, _restarts, lambda v: f"{v:.0f}"))
    shown = [
        figure
        for figure in known
        if figure.head in {"round", "loss"}
        or any(figure.of_device(fleet, device) is not None for device in fleet.devices)
    ]
    for head in _DROPPED_FIRST:
        if NARROWEST_NAME + _width_of(shown) + _LEAST_DOING > width:
            shown = [figure for figure in shown if figure.head != head]
    return shown


def _progress(name: str) -> Callable[[FleetState, int], float | None]:
    def value(fleet: FleetState, device: int) -> float | None:
        found = getattr(fleet.devices[device], name) if device in fleet.devices else None
        return None if found is None or isnan(found) else float(found)

    return value


def _accuracy(fleet: FleetState, device: int) -> float | None:
    value = fleet.evaluated.get(device, {}).get("accuracy")
    return None if value is None else float(value)


def _charge(fleet: FleetState, device: int) -> float | None:
    """Share of the battery's energy that is left."""
    left_j = _progress("charge_left_j")(fleet, device)
    capacity_j = fleet.facts.capacities_j[device] if fleet.facts.capacities_j else None
    if capacity_j is None:
        return None
    return 1.0 if left_j is None else left_j / capacity_j


def _restarts(fleet: FleetState, device: int) -> float | None:
    return float(fleet.restarts[device]) if device in fleet.restarts else None


def _table(
    head: str,
    figures: Sequence[_Figure],
    fleet: FleetState,
    devices: Sequence[int],
    width: int,
    name_width: int,
    waited_for_by: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:
    """A head and a line for each device."""
    lines = [_line(head, name_width, [(f.head, f.width) for f in figures], "waits for", width)]
    room = width - name_width - _width_of(figures) - 2
    for device in devices:
        cells = []
        for figure in figures:
            value = figure.of_device(fleet, device)
            cells.append(("-" if value is None else figure.text(value), figure.width))
        waiting = waited_for_by.get(device)
        more = f", {waiting} wait for it" if waiting else ""
        doing = _doing(fleet, device, room - len(more)) + more
        lines.append(_line(fleet.facts.label(device), name_width, cells, doing, width))
    return lines


def _width_of(figures: Sequence[_Figure]) -> int:
    return sum(figure.width + 2 for figure in figures)


def _name_width(labels: Iterable[str], figures: Sequence[_Figure], width: int) -> int:
    """Cells for names: what a device waits for is to be read as well."""
    room = max(width - _width_of(figures) - _LEAST_DOING, NARROWEST_NAME)
    return min(max(map(cell_len, labels)), room, WIDEST_NAME)


def _line(
    label: str, name_width: int, cells: Sequence[tuple[str, int]], last: str, width: int
) -> str:
    parts = [_cut(label, name_width), *(text.rjust(w) for text, w in cells), last]
    return set_cell_size("  ".join(parts), width).rstrip()


def _cut(label: str, width: int) -> str:
    """A name in so many cells; of a long one the end shows that something is missing."""
    if cell_len(label) <= width:
        return set_cell_size(label, width)
    return set_cell_size(label, width - 1) + "~"


def _doing(fleet: FleetState, device: int, width: int) -> str:
    """For whom a device waits, or what else it does."""
    progress = fleet.devices.get(device)
    if progress is None:
        return "(starts)"
    if device in fleet.absent:
        return "(lost, restarts)"
    match progress.end:
        case "finished":
            return "(finished)"
        case "left":
            return "(left)"
        case "died":
            return "(died: no energy)"
    if not progress.waits_for:
        return "(computes)"
    return _names([fleet.facts.label(other) for other in progress.waits_for], width)


def _names(names: Sequence[str], width: int) -> str:
    """As many names as there is room for, and how many more there are."""
    for shown in range(len(names), 0, -1):
        hidden = len(names) - shown
        text = ", ".join(names[:shown]) + (f" and {hidden} more" if hidden else "")
        if cell_len(text) <= width:
            return text
    return f"{len(names)} devices"


def _extremes(fleet: FleetState, figures: Sequence[_Figure], width: int, height: int) -> list[str]:
    """What all do, the range of each figure, the slowest, and the most stale or most waited for."""
    owing = [d for d, progress in fleet.devices.items() if progress.end is None]
    slowest = sorted(owing, key=lambda d: (fleet.devices[d].rounds_done, d))
    second, others, waited_for_by = _second_list(fleet, owing)
    least_rows = height - 1 - 5 - 4  # ranges below an empty line, two lists with a head below one
    rows = least_rows // 2 if least_rows >= 2 * _FEWEST_ROWS else (height - 1 - 2) // 2
    if rows < 1:
        return [_counts(fleet, width)]
    slowest, others = slowest[:rows], others[:rows]
    labels = [*("slowest", second), *map(fleet.facts.label, {*slowest, *others})]
    name_width = _name_width(labels, figures, width)
    first = _table("slowest", figures, fleet, slowest, width, name_width)
    last = _table(second, figures, fleet, others, width, name_width, waited_for_by)
    if least_rows < 2 * _FEWEST_ROWS:
        return [_counts(fleet, width), *first, *last]
    ranges = _ranges(fleet, figures, width, name_width)
    return [_counts(fleet, width), "", *ranges, "", *first, "", *last]


def _second_list(
    fleet: FleetState, owing: Sequence[int]
) -> tuple[str, list[int], Mapping[int, int]]:
    """Head and devices of the second list; and how many wait for each, where it is about that."""
    stale = _progress("staleness_s")
    ages = {d: age for d in owing if (age := stale(fleet, d)) is not None}
    if ages:
        return "most stale", sorted(ages, key=lambda d: (-ages[d], d)), {}
    waiting = Counter(other for p in fleet.devices.values() for other in p.waits_for)
    return "most waited for", sorted(waiting, key=lambda d: (-waiting[d], d)), waiting


def _counts(fleet: FleetState, width: int) -> str:
    """What all devices do, in numbers."""
    counts: dict[str, int] = {}
    for device in range(fleet.facts.num_devices):
        progress = fleet.devices.get(device)
        if progress is None:
            what = "start"
        elif device in fleet.absent:
            what = "start again"
        elif progress.end is not None:
            what = {"finished": "finished", "left": "left", "died": "died"}[progress.end]
        else:
            what = "wait" if progress.waits_for else "compute"
        counts[what] = counts.get(what, 0) + 1
    order = ("compute", "wait", "start", "start again", "finished", "left", "died")
    text = ", ".join(f"{counts[what]} {what}" for what in order if what in counts)
    return set_cell_size(f"devices: {text}", width).rstrip()


def _ranges(
    fleet: FleetState, figures: Sequence[_Figure], width: int, name_width: int
) -> list[str]:
    """Least, mean and greatest value of each figure, in the columns of the tables below.

    Devices that have left or died are not among them.
    """
    columns: list[tuple[str, str, str]] = []
    for figure in figures:
        values = [v for d in fleet.staying if (v := figure.of_device(fleet, d)) is not None]
        if values:
            found = (min(values), sum(values) / len(values), max(values))
            least, mean, most = map(figure.text, found)
        else:
            least = mean = most = "-"
        columns.append((least, mean, most))
    heads = [(figure.head, figure.width) for figure in figures]
    lines = [_line("all", name_width, heads, "", width)]
    for place, name in enumerate(("least", "mean", "greatest")):
        cells = [(c[place], f.width) for c, f in zip(columns, figures, strict=True)]
        lines.append(_line(name, name_width, cells, "", width))
    return lines
