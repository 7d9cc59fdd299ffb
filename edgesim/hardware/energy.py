"""Energy that a device spent, computed from what the device did.

A run records counts and times, and prices are applied to them here. So another table of prices
needs no new run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from edgesim.hardware.energy_tables import Accumulate, EnergyTable, Memory
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work

PICOJOULE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a device did in a span of time.

    Attributes:
        work: operations and memory traffic.
        sent_bytes: bytes sent, retransmissions included; a mean of several spans has fractions.
        received_bytes: bytes received.
        compute_s: seconds in which the device computed.
        wait_s: seconds in which the device was awake and did not compute.
    """

    work: Work
    sent_bytes: float
    received_bytes: float
    compute_s: float
    wait_s: float

    def __add__(self, other: Activity) -> Activity:
        """Sum of two activities of one device."""
        return Activity(
            work=self.work + other.work,
            sent_bytes=self.sent_bytes + other.sent_bytes,
            received_bytes=self.received_bytes + other.received_bytes,
            compute_s=self.compute_s + other.compute_s,
            wait_s=self.wait_s + other.wait_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy by cause, in joules.

    Attributes:
        compute_j: energy of arithmetic; by the profile's powers, of the whole board while it
            computes.
        memory_j: energy of memory traffic; by the profile's powers 0, since `compute_j` has it.
        radio_j: energy of sending and receiving, above idle power.
        idle_j: energy while the device is awake and does not compute.
    """

    compute_j: float
    memory_j: float
    radio_j: float
    idle_j: float

    @property
    def total_j(self) -> float:
        """Energy of all causes together."""
        return self.compute_j + self.memory_j + self.radio_j + self.idle_j

    def __add__(self, other: Energy) -> Energy:
        """Sum of two energies, by cause."""
        return Energy(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Energy)}
        )


def price(
    activity: Activity,
    profile: DeviceProfile,
    table: EnergyTable | None,
    accumulate: Accumulate = "paper",
    memory: Memory = "dram",
) -> Energy:
    """Energy of an activity. The function is additive: a sum of activities has the sum of energies.

    With a table, operations and bytes have the energies of their silicon, and nothing else draws
    power while the device computes. That is a lower bound; it serves to compare precisions. Each
    element-wise operation costs one sum in fp32, since it is done in fp32 in either precision.
    Without a table, computing draws the profile's active power: that is what a wall meter shows.

    Args:
        activity: what the device did.
        profile: powers and radio of the device.
        table: prices of operations; None for the profile's powers.
        accumulate: width of the sums of 8-bit products (`EnergyTable.mac_pj`); for tables only.
        memory: memory that the traffic goes to; for tables only. The default is DRAM, since tensors
            of a training step are larger than caches.
    """
    radio = profile.radio
    return Energy(
        compute_j=(
            profile.active_power_w * activity.compute_s
            if table is None
            else _arithmetic_j(activity.work, table, accumulate)
        ),
        memory_j=(
            0.0
            if table is None
            else activity.work.traffic_bytes * table.byte_pj(memory) * PICOJOULE
        ),
        radio_j=(
            activity.sent_bytes * radio.send_j_per_byte
            + activity.received_bytes * radio.receive_j_per_byte
        ),
        idle_j=profile.idle_power_w * activity.wait_s,
    )


def _arithmetic_j(work: Work, table: EnergyTable, accumulate: Accumulate) -> float:
    picojoules = (
        work.macs_int8 * table.mac_pj("int8", accumulate)
        + work.macs_16bit * table.mac_pj("16bit", accumulate)
        + work.macs_fp32 * table.mac_pj("fp32", accumulate)
        + work.elementwise_ops * table.fp32_add_pj
    )
    return picojoules * PICOJOULE
