"""How often a calibration takes each measurement, and which of the times counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns of each measurement.

    Attributes:
        count: number of turns.
        takes_median: the median time counts; otherwise the fastest. Other work on the machine can
            only make a step longer, so the fastest is the machine's own. The median is that of the
            machine with what else runs on it, or within its quota.
    """

    count: int
    takes_median: bool = False

    def chosen(self, seconds: Sequence[float]) -> float:
        """The time that counts."""
        return median(seconds) if self.takes_median else min(seconds)

    def __str__(self) -> str:
        """For comments in the file."""
        return f"{'median' if self.takes_median else 'fastest'} of {self.count} turns"
