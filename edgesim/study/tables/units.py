"""Quantities as text: a prefix, four digits, a unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Unit = Literal["B", "MiB", "J", "s", "MAC", "ops"]

KIB, MIB = 2**10, 2**20

_PREFIXES = (
    *((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")),
    *((1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p")),
)


def with_unit(value: float, unit: Unit) -> str:
    """A quantity in the form that is usual for its unit, such as 18.02 mJ or 1,093,098 B.

    Bytes of messages are written out, memory is in binary units.
    """
    (text,) = alike((value,), unit)
    return text


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
    name = prefix + ("B" if unit == "MiB" else unit)
    return tuple(_digits(value / scale, unit) for value in values), name


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{100 * share:.3g} %"


def plain(value: float) -> str:
    """A number with at most four digits, without trailing zeros."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _scale(largest: float, unit: Unit) -> tuple[float, str]:
    match unit:
        case "B":
            return 1.0, ""
        case "MiB":
            return (KIB, "Ki") if largest < MIB else (MIB, "Mi")
        case _:
            return next((pair for pair in _PREFIXES if largest >= pair[0]), (1.0, ""))


def _digits(value: float, unit: Unit) -> str:
    if unit == "B":
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    if unit == "MiB":
        return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
    return plain(value)
