"""Device profiles: rates of computing and sending, memory, power.

All quantities are in SI: operations, bytes and bits per second, bytes, seconds, watts, joules.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.hardware.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Radio:
    """How a device reaches its neighbours.

    Attributes:
        name: technology.
        bandwidth_bps: bits per second that it sends or receives.
        send_j_per_byte: energy above idle to send a byte.
        receive_j_per_byte: energy above idle to receive a byte.
        is_half_duplex: it can't send while it receives.
    """

    name: str
    bandwidth_bps: float
    send_j_per_byte: float
    receive_j_per_byte: float
    is_half_duplex: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """One kind of device.

    Attributes:
        name: as scenarios name it.
        description: one line for people.
        int8_macs_per_s: multiply-accumulates of 8-bit integers.
        bits16_macs_per_s: of 16-bit floats; the fp32 rate where there is no 16-bit arithmetic.
        fp32_macs_per_s: of 32-bit floats.
        memory_bytes: memory that a program can use for training.
        memory_bandwidth: bytes per second between memory and processor.
        idle_power_w: drawn while it waits.
        active_power_w: drawn while it computes, idle power included.
        radio: how it reaches its neighbours.
        battery_j: energy it can spend; None where it is plugged in.
    """

    name: str
    description: str
    int8_macs_per_s: float
    bits16_macs_per_s: float
    fp32_macs_per_s: float
    memory_bytes: int
    memory_bandwidth: float
    idle_power_w: float
    active_power_w: float
    radio: Radio
    battery_j: float | None = None

    def compute_s(self, work: Work) -> float:
        """Seconds for some work: arithmetic or memory, whichever takes longer (roofline).

        Element-wise operations are assumed to take no longer than their memory traffic.
        """
        arithmetic_s = (
            work.macs_int8 / self.int8_macs_per_s
            + work.macs_16bit / self.bits16_macs_per_s
            + work.macs_fp32 / self.fp32_macs_per_s
        )
        return max(arithmetic_s, work.traffic_bytes / self.memory_bandwidth)
