"""Quantities as a person reads them, and units of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_JOULES_PER_WH = 3600.0
_LEAST_PERCENT = 0.001  # that is told


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows.

    Attributes:
        field: column of the table.
        title: title of the axis, with its unit.
        per_unit: number of the column's units in one of the axis's.
    """

    field: str
    title: str
    per_unit: float = 1.0


def time_axis(field: str, what: str, longest_s: float) -> Axis:
    """Axis of seconds, in the unit that suits the longest time."""
    scale, unit = _of_time(longest_s)
    return Axis(field, f"{what} ({unit})", scale)


def bytes_axis(field: str, what: str, most: float) -> Axis:
    """Axis of bytes, with the decimal prefix that suits the most."""
    scale, prefix = _prefix(most)
    return Axis(field, f"{what} ({prefix}B)", scale)


def energy_axis(field: str, what: str, most_j: float) -> Axis:
    """Axis of joules, with the prefix that suits the most."""
    scale, prefix = _prefix(most_j, smallest=1e-6)
    return Axis(field, f"{what} ({prefix}J)", scale)


def count_axis(field: str, what: str, unit: str, most: float) -> Axis:
    """Axis of counts, with the prefix that suits the most."""
    scale, prefix = _prefix(most)
    return Axis(field, f"{what} ({prefix}{unit})", scale)


def duration(seconds: float) -> str:
    """A time such as `850 ms`, `12.3 s`, `4 min 10 s` or `2 d 4 h`."""
    if not isfinite(seconds):
        return "unknown"
    if seconds < 0.9995:  # else it would be rounded to 1000 ms
        return f"{seconds * 1e3:.3g} ms" if seconds else "0 s"
    if seconds < _MINUTE - 0.05:
        return f"{seconds:.3g} s"
    for above, below, large, small, until in (
        (_MINUTE, 1.0, "min", "s", _HOUR),
        (_HOUR, _MINUTE, "h", "min", _DAY),
        (_DAY, _HOUR, "d", "h", inf),
    ):
        number = round(seconds / below)
        if number * below < until:
            whole, rest = divmod(number, round(above / below))
            return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"
    raise AssertionError("no time is infinite here")


def data_size(num_bytes: float) -> str:
    """Bytes with a decimal prefix, such as `32.2 MB`."""
    scale, prefix = _prefix(num_bytes)
    value = num_bytes / scale
    return f"{value:,.0f} B" if scale == 1 else f"{_three_digits(value)} {prefix}B"


def energy(joules: float) -> str:
    """Joules with a prefix, and watt-hours where there are many: `12.3 kJ (3.42 Wh)`."""
    scale, prefix = _prefix(joules, smallest=1e-6) if joules else (1.0, "")
    text = f"{_three_digits(joules / scale)} {prefix}J"
    return text if joules < _JOULES_PER_WH else f"{text} ({watt_hours(joules)})"


def watt_hours(joules: float) -> str:
    """Joules as watt-hours."""
    return f"{_three_digits(joules / _JOULES_PER_WH)} Wh"


def percent(share: float) -> str:
    """A share of 1 as a percentage; above 99 with as many digits as tell it from 100."""
    value = 100 * share
    if 0 < value < _LEAST_PERCENT:
        return f"under {_LEAST_PERCENT:g} %"
    if not 99 <= value < 100:
        return f"{_three_digits(value)} %"
    texts = (f"{value:.{digits}g}" for digits in range(4, 18))
    return f"{next((text for text in texts if float(text) < 100), '100')} %"


def points(share: float) -> str:
    """A difference of two shares in percentage points."""
    return f"{_three_digits(100 * share)} points"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence: `a`, `a and b`, `a, b, c, d and 7 more`."""
    shown = list(names[:most])
    if more := len(names) - len(shown):
        shown.append(f"{more:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def _of_time(longest_s: float) -> tuple[float, str]:
    for scale, unit, least in (
        (_DAY, "days", 2 * _DAY),
        (_HOUR, "hours", 2 * _HOUR),
        (_MINUTE, "minutes", 3 * _MINUTE),
        (1.0, "seconds", 1.0),
    ):
        if longest_s >= least:
            return scale, unit
    return 1e-3, "milliseconds"


def _prefix(most: float, smallest: float = 1.0) -> tuple[float, str]:
    for scale, prefix in (
        *((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")),
        *((1e-3, "m"), (1e-6, "µ")),
    ):
        if abs(most) >= scale or scale <= smallest:
            return scale, prefix
    raise AssertionError("the smallest is among them")
