"""Device profiles: rates of computing and sending, memory, power.

All quantities are in SI: operations, bytes and bits per second, bytes, seconds, watts, joules.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.hardware.work import LayerTally, Work


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
class LayerTime:
    """Time of one kind of layer in a training step: a sum over its calls and sizes.

    Attributes:
        kind: a key of `layer_kinds.LAYER_KINDS`.
        call_s: seconds of a call of any size, both passes: Python, dispatch, preparation.
        s_per_mac: seconds of a multiply-accumulate of any pass and precision.
        s_per_entry: seconds of a number that goes into the layer or comes out of it.
        s_per_far_entry: seconds that such a number takes in addition where caches can't hold them.
        s_per_weight: seconds of a weight: its codes, its packing, its gradient.
    """

    kind: str
    call_s: float = 0.0
    s_per_mac: float = 0.0
    s_per_entry: float = 0.0
    s_per_far_entry: float = 0.0
    s_per_weight: float = 0.0

    def seconds(self, layers: LayerTally) -> float:
        """Seconds of layers of the kind, forward and backward pass."""
        return (
            layers.calls * self.call_s
            + layers.macs * self.s_per_mac
            + layers.entries * self.s_per_entry
            + layers.far_entries * self.s_per_far_entry
            + layers.weights * self.s_per_weight
        )


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
        elementwise_ops_per_s: operations outside of multiply-accumulates; None: they take no longer
            than their memory traffic.
        layer_times: times of kinds of layers, where they were measured, one a kind.
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
    elementwise_ops_per_s: float | None = None
    layer_times: tuple[LayerTime, ...] = ()

    def compute_s(self, work: Work) -> float:
        """Seconds for some work.

        Layers of a kind with a measured time take that time. All other work takes the longest of
        arithmetic, memory traffic and, where its rate is known, element-wise operations (roofline).
        """
        times = {time.kind: time for time in self.layer_times}
        known = [layers for layers in work.layers if layers.kind in times]
        if not known:
            return self._roofline_s(work)
        seconds = sum(times[layers.kind].seconds(layers) for layers in known)
        return seconds + self._roofline_s(work.without(known))

    def _roofline_s(self, work: Work) -> float:
        arithmetic_s = (
            work.macs_int8 / self.int8_macs_per_s
            + work.macs_16bit / self.bits16_macs_per_s
            + work.macs_fp32 / self.fp32_macs_per_s
        )
        roofline_s = max(arithmetic_s, work.traffic_bytes / self.memory_bandwidth)
        if self.elementwise_ops_per_s is None:
            return roofline_s
        return max(roofline_s, work.elementwise_ops / self.elementwise_ops_per_s)
