"""Energy of an iteration by every price list: by each table, and by a device's powers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from edgesim.hardware.energy import PICOJOULE, Activity, price
from edgesim.hardware.energy_tables import (
    ENERGY_TABLES,
    Accumulate,
    EnergyTable,
    Memory,
    Precision,
)
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work

BOARD = "profile"
"""Name of the price list of a device's own powers, as in scenarios."""

ACCUMULATES: tuple[Accumulate, ...] = ("paper", "int32")
_MEMORIES: tuple[Memory, ...] = ("dram", "sram")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconEnergy:
    """Energy of operations and of memory traffic by a table, in joules.

    Attributes:
        mac_j: energy of multiply-accumulates.
        elementwise_j: energy of other operations, each priced as a sum in fp32.
        memory_j: energy of bytes read and written.
    """

    mac_j: float
    elementwise_j: float
    memory_j: float

    @property
    def total_j(self) -> float:
        """Energy of operations and traffic together."""
        return self.mac_j + self.elementwise_j + self.memory_j


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationEnergy:
    """Energy of one iteration by one price list, in joules.

    Attributes:
        table: name of the price list; `BOARD` for the profile's powers.
        accumulate: width of the sums of 8-bit products; does not affect powers.
        memory: memory that the traffic goes to; does not affect powers.
        compute_j: energy of arithmetic; by powers, of the whole board while it computes.
        memory_j: energy of memory traffic; by powers 0, since `compute_j` has it.
        radio_j: energy of sending and receiving; None without a profile.
        idle_j: energy of waiting; None without a profile.
    """

    table: str
    accumulate: Accumulate
    memory: Memory
    compute_j: float
    memory_j: float
    radio_j: float | None
    idle_j: float | None

    @property
    def total_j(self) -> float:
        """Sum of the energies that are known."""
        return self.compute_j + self.memory_j + (self.radio_j or 0.0) + (self.idle_j or 0.0)


def silicon_energy(
    work: Work, table: EnergyTable, accumulate: Accumulate = "paper", memory: Memory = "dram"
) -> SiliconEnergy:
    """Energy of work by a table, in parts; their sum is that of `edgesim.hardware.energy.price`."""
    macs: tuple[tuple[int, Precision], ...] = (
        (work.macs_int8, "int8"),
        (work.macs_16bit, "16bit"),
        (work.macs_fp32, "fp32"),
    )
    mac_pj = sum(count * table.mac_pj(precision, accumulate) for count, precision in macs)
    return SiliconEnergy(
        mac_j=mac_pj * PICOJOULE,
        elementwise_j=work.elementwise_ops * table.fp32_add_pj * PICOJOULE,
        memory_j=work.traffic_bytes * table.byte_pj(memory) * PICOJOULE,
    )


def energies_of_work(work: Work) -> tuple[IterationEnergy, ...]:
    """Energy by every table, for a device without a profile."""
    found = []
    for name, accumulate, memory in _price_lists():
        energy = silicon_energy(work, ENERGY_TABLES[name], accumulate, memory)
        found.append(
            IterationEnergy(
                table=name,
                accumulate=accumulate,
                memory=memory,
                compute_j=energy.mac_j + energy.elementwise_j,
                memory_j=energy.memory_j,
                radio_j=None,
                idle_j=None,
            )
        )
    return tuple(found)


def energies_of_activity(activity: Activity, profile: DeviceProfile) -> tuple[IterationEnergy, ...]:
    """Energy by the profile's powers, then by every table, with radio and idle power."""
    energy = price(activity, profile, None)
    of_board = IterationEnergy(
        table=BOARD,
        accumulate="paper",
        memory="dram",
        compute_j=energy.compute_j,
        memory_j=energy.memory_j,
        radio_j=energy.radio_j,
        idle_j=energy.idle_j,
    )
    of_tables = (
        replace(entry, radio_j=energy.radio_j, idle_j=energy.idle_j)
        for entry in energies_of_work(activity.work)
    )
    return (of_board, *of_tables)


def _price_lists() -> Iterator[tuple[str, Accumulate, Memory]]:
    for name in ENERGY_TABLES:
        for memory in _MEMORIES:
            for accumulate in ACCUMULATES:
                yield name, accumulate, memory
