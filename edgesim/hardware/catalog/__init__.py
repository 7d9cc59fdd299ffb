"""The catalog of device profiles, by the names that scenarios use.

Rates of CPUs are those of fully used pipelines at the sustained clock: an upper bound, as in any
roofline, so that devices can be compared. Real kernels reach less; HPL reaches 39 to 48 % on
Raspberry Pis 5 and 4, as stated beside the number. Rates of the two GPUs that throttle are
measured. A scenario may override any number by a measurement of its own.

Memory is what a program can use. Powers are the whole board's or module's, as each citation says.
"""

from __future__ import annotations

from edgesim.hardware.catalog.boards import BOARDS
from edgesim.hardware.catalog.entry import CatalogEntry, Evidence, Row, Source
from edgesim.hardware.catalog.gpus import GPUS
from edgesim.hardware.catalog.microcontrollers import MICROCONTROLLERS
from edgesim.hardware.catalog.phones import PHONES_AND_LAPTOPS

__all__ = ["PROFILES", "CatalogEntry", "Evidence", "Row", "Source"]

PROFILES: dict[str, CatalogEntry] = {
    entry.profile.name: entry for entry in (*MICROCONTROLLERS, *BOARDS, *GPUS, *PHONES_AND_LAPTOPS)
}
