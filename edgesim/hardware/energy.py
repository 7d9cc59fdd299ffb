"""Energy that a device spent, priced after the run from what it did.

What a run records are counts and times; prices are chosen here, so another table needs no new run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from edgesim.hardware.energy_tables import Accumulate, EnergyTable, Memory
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work

PICOJOULE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a device did in some span of time.

    Attributes:
        work: operations and memory traffic.
        sent_bytes: bytes it sent, those of retransmissions included.
        received_bytes: bytes that reached it.
        compute_s: seconds that it computed.
        wait_s: seconds that it was awake and did not compute.
    """

    work: Work
    sent_bytes: int
    received_bytes: int
    compute_s: float
    wait_s: float

    def __add__(self, other: Activity) -> Activity:
        """Both activities, of one device."""
        return Activity(
            work=self.work + other.work,
            sent_bytes=self.sent_bytes + other.sent_bytes,
            received_bytes=self.received_bytes + other.received_bytes,
            compute_s=self.compute_s + other.compute_s,
            wait_s=self.wait_s + other.wait_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules by cause.

    Attributes:
        compute_j: arithmetic; with the profile's power, everything while it computes.
        memory_j: traffic with memory; 0 with the profile's power, which has it.
        radio_j: sending and receiving, above idle.
        idle_j: being awake without computing.
    """

    compute_j: float
    memory_j: float
    radio_j: float
    idle_j: float

    @property
    def total_j(self) -> float:
        """All of it."""
        return self.compute_j + self.memory_j + self.radio_j + self.idle_j

    def __add__(self, other: Energy) -> Energy:
        """Energy of both."""
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
    """Energy of an activity; the price of a sum is the sum of the prices.

    With a table, operations and bytes cost what they cost in silicon, and nothing else draws power
    while the device computes: a lower bound that compares precisions. Element-wise operations cost
    a sum in fp32 each, in which they are done whatever the precision of the products. Without one,
    computing costs the profile's active power for as long as it takes: what a wall meter shows.

    Args:
        activity: what the device did.
        profile: its powers and its radio.
        table: prices of operations; None: the profile's active power.
        accumulate: width of 8-bit products' sums, see `EnergyTable.mac_pj`; matters to tables only.
        memory: where the traffic goes; matters to tables only. A training step's tensors are
            larger than caches, hence DRAM unless told otherwise.
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
