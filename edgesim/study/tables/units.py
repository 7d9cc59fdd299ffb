"""Quantities as text: a prefix, four digits, a unit; times also in minutes, hours and days."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Literal

Unit = Literal["B", "MB", "MiB", "J", "s", "MAC", "ops"]

KIB, MIB, GIB = 2**10, 2**20, 2**30

_PREFIXES = (
    *((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")),
    *((1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p")),
)
_MINUTE_S, _HOUR_S, _DAY_S, _YEAR_S = 60.0, 3600.0, 86400.0, 365.25 * 86400.0
# A time of so many seconds or more is written in this unit: 89 s, 1.5 min, 89 min, 1.5 h.
_LONG_TIMES = (
    *((2 * _YEAR_S, _YEAR_S, "years"), (2 * _DAY_S, _DAY_S, "days")),
    *((1.5 * _HOUR_S, _HOUR_S, "h"), (1.5 * _MINUTE_S, _MINUTE_S, "min")),
)
_JOULES_PER_WH = 3600.0


def with_unit(value: float, unit: Unit) -> str:
    """A quantity in the form that is usual for its unit, such as 18.02 mJ or 1,093,098 B.

    Bytes of messages are written out (B); many of them have decimal prefixes (MB), memory has
    binary ones (MiB). Times of minutes, hours or days are written so.
    """
    (text,) = alike((value,), unit)
    return text


def brief(value: float, unit: Unit) -> str:
    """A quantity with three digits, for sentences."""
    scale, prefix = _scale(abs(value), unit)
    number = value / scale
    digits = f"{number:.3g}" if abs(number) < 999.5 else f"{number:,.0f}"
    return f"{digits} {_name(prefix, unit)}"


def joules(energy_j: float) -> str:
    """An energy with three digits; if it is not small, also in the unit that batteries have."""
    text = brief(energy_j, "J")
    return text if energy_j < 0.1 * _JOULES_PER_WH else f"{text} ({watt_hours(energy_j)})"


def watt_hours(energy_j: float) -> str:
    """An energy in the unit that batteries have."""
    energy_wh = energy_j / _JOULES_PER_WH
    return f"{energy_wh:.3g} Wh" if energy_wh < 999.5 else f"{energy_wh / 1e3:,.3g} kWh"


def least_watt_hours(energy_j: float) -> str:
    """The same of an energy that must be there: rounded up."""
    energy_wh = energy_j / _JOULES_PER_WH
    per_step = 10.0 ** (2 - floor(log10(energy_wh))) if energy_wh > 0 else 1.0
    return watt_hours(ceil(energy_wh * per_step) / per_step * _JOULES_PER_WH)


def alike(values: Sequence[float], unit: Unit) -> tuple[str, ...]:
    """Quantities with one prefix, which suits the largest, so that they can be compared."""
    texts, name = with_one_unit(values, unit)
    return tuple(
        f"{text} {name}" if value or unit == "B" else "0"
        for value, text in zip(values, texts, strict=True)
    )


def with_one_unit(values: Sequence[float], unit: Unit) -> tuple[tuple[str, ...], str]:
    """Quantities with one prefix; the unit with its prefix is returned separately."""
    scale, prefix = _scale(max(map(abs, values), default=0.0), unit)
    return tuple(_digits(value / scale, unit) for value in values), _name(prefix, unit)


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    number = 100 * share
    return f"{number:.3g} %" if number < 1000 else f"{number:,.0f} %"


def share_used(share: float, decimals: int) -> str:
    """A share of a battery, rounded; one that is too small for its decimals is not called 0."""
    least = 10.0**-decimals
    if 0 < share < least / 2:
        return f"<{percent(least)}"
    return percent(round(share, decimals))


def plain(value: float) -> str:
    """A number with at most four digits, without trailing zeros."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _scale(largest: float, unit: Unit) -> tuple[float, str]:
    match unit:
        case "B":
            return 1.0, ""
        case "MiB":
            if largest >= GIB:
                return GIB, "Gi"
            return (KIB, "Ki") if largest < MIB else (MIB, "Mi")
        case "s" if largest >= _LONG_TIMES[-1][0]:
            return next((unit_s, name) for least, unit_s, name in _LONG_TIMES if largest >= least)
        case "s":
            prefixes = (pair for pair in _PREFIXES if pair[0] <= 1 and largest >= pair[0])
            return next(prefixes, (1.0, ""))
        case "MB":
            return next((pair for pair in _PREFIXES if largest >= pair[0] >= 1), (1.0, ""))
        case _:
            return next((pair for pair in _PREFIXES if largest >= pair[0]), (1.0, ""))


def _name(prefix: str, unit: Unit) -> str:
    """Name of a unit with its prefix; minutes, hours and days have none."""
    if unit in ("MiB", "MB"):
        return f"{prefix}B"
    return prefix if len(prefix) > 2 or prefix == "h" else f"{prefix}{unit}"


def _digits(value: float, unit: Unit) -> str:
    if unit == "B":
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    if unit == "MiB":
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return plain(value)
