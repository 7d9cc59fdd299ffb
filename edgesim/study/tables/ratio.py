"""A ratio together with the arithmetic that it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgesim.study.tables.units import Unit, alike, with_one_unit

Topic = Literal["compute", "memory", "communication", "energy", "time", "fleet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ratio of a cost in fp32 to that in 8 bits.

    Attributes:
        topic: topic of the cost.
        key: name in files; unique within its topic.
        method: how the cost is counted.
        case: kind of training or message.
        value: the ratio.
        formula: its arithmetic with the rounded numbers, which give the value.
        source: where the numbers or the convention come from.
    """

    topic: Topic
    key: str
    method: str
    case: str
    value: float
    formula: str
    source: str

    @property
    def text(self) -> str:
        """The value with its arithmetic."""
        return f"{times(self.value)} = {self.formula}"


def times(value: float) -> str:
    """A ratio as text."""
    if value < 0.1:
        return f"{value:.2g}x"
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def quotient_text(numerator: float, denominator: float, unit: Unit) -> str:
    """Arithmetic of a ratio of two quantities."""
    return " / ".join(alike((numerator, denominator), unit))


def quotient_column(pairs: Sequence[tuple[float, float]], unit: Unit) -> tuple[str, list[str]]:
    """Ratios with their arithmetic, all in one unit.

    Args:
        pairs: numerators and denominators.
        unit: of all.

    Returns:
        The unit, prefix included; one text a pair.
    """
    texts, name = with_one_unit([value for pair in pairs for value in pair], unit)
    cells = [
        f"{times(pair[0] / pair[1])} {numerator}/{denominator}"
        for pair, numerator, denominator in zip(pairs, texts[::2], texts[1::2], strict=True)
    ]
    return name, cells
