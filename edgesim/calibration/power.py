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

    def power_w(self, run: Callable[[Callable[[], None]], object]) -> float:
        """Mean watts while something runs.

        Args:
            run: is given a function that looks at the counters. It calls it so often that none
                wraps around twice between two calls: each minute is enough.
        """
        reading, start_s = _Reading(self.zones), perf_counter()
        run(reading.look)
        seconds = perf_counter() - start_s
        reading.look()
        return 1e-6 * reading.used_uj / seconds


class _Reading:
    """Energy since its beginning, summed over looks at the counters."""

    def __init__(self, zones: tuple[Path, ...]) -> None:
        self.used_uj = 0
        self._last_uj = {zone: _number(zone / "energy_uj") for zone in zones}

    def look(self) -> None:
        for zone, before in self._last_uj.items():
            now = _number(zone / "energy_uj")
            wrap = _number(zone / "max_energy_range_uj") if now < before else 0
            self.used_uj += now - before + wrap
            self._last_uj[zone] = now


def find_counter(folder: Path = POWERCAP) -> EnergyCounter | str:
    """The counters of the machine; or, in words, why they can't be used."""
    zones = sorted(path for path in folder.glob("*:*") if path.name.count(":") == 1)
    try:
        # psys is the whole platform, packages included; mmio counts the packages once more.
        zones = [
            zone
            for zone in zones
            if (zone / "name").read_text().startswith("package") and "mmio" not in zone.name
        ]
        if not zones:
            return f"{folder} has no counters of processor packages"
        for zone in zones:
            _number(zone / "energy_uj")
            _number(zone / "max_energy_range_uj")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"the counters in {folder} can't be read ({reason}); root can"
    return EnergyCounter(tuple(zones))


def _number(file: Path) -> int:
    return int(file.read_text())
