"""Power of the processor by the counters of the Linux kernel (powercap, RAPL), where it has them.

The counters tell the energy of processor packages, not that of the board: memory, radio and power
supply take more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """Counters of all processor packages.

    Attributes:
        zones: folders of the packages, each with `energy_uj` and `max_energy_range_uj`.
    """

    zones: tuple[Path, ...]

    def power_w(self, run: Callable[[], object]) -> float:
        """Mean watts while something runs; the counters must not wrap around twice meanwhile."""
        before, start_s = self._microjoules(), perf_counter()
        run()
        seconds, after = perf_counter() - start_s, self._microjoules()
        used = 0
        for zone, first, last in zip(self.zones, before, after, strict=True):
            wraps = _number(zone / "max_energy_range_uj") if last < first else 0
            used += last - first + wraps
        return 1e-6 * used / seconds

    def _microjoules(self) -> list[int]:
        return [_number(zone / "energy_uj") for zone in self.zones]


def find_counter(folder: Path = POWERCAP) -> EnergyCounter | str:
    """The counters of the machine; or, in words, why they can't be used."""
    zones = sorted(path for path in folder.glob("*:*") if path.name.count(":") == 1)
    if not zones:
        return f"{folder} has no counters"
    try:
        for zone in zones:
            _number(zone / "energy_uj")
            _number(zone / "max_energy_range_uj")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"the counters in {folder} can't be read ({reason}); root can"
    return EnergyCounter(tuple(zones))


def _number(file: Path) -> int:
    return int(file.read_text())
