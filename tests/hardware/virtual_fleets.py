"""Fleets of timelines for tests: an independent event simulation of them, and our own clocks."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import networkx as nx
import simpy

from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link, pass_over
from edgesim.hardware.profiles import DeviceProfile, Radio
from edgesim.hardware.timeline import Hardware, Stamp, Timeline
from edgesim.hardware.work import Work

RADIO = Radio(
    name="test radio",
    bandwidth_bps=8e6,
    send_j_per_byte=1e-7,
    receive_j_per_byte=5e-8,
    is_half_duplex=False,
)


def profile(fp32_macs_per_s: float = 1e9, memory_bandwidth: float = 1e12) -> DeviceProfile:
    return DeviceProfile(
        name="test",
        description="a device for tests",
        int8_macs_per_s=4 * fp32_macs_per_s,
        bits16_macs_per_s=2 * fp32_macs_per_s,
        fp32_macs_per_s=fp32_macs_per_s,
        memory_bytes=2**30,
        memory_bandwidth=memory_bandwidth,
        idle_power_w=1.0,
        active_power_w=3.0,
        radio=RADIO,
    )


def link(
    bandwidth_bps: float = 8e6,
    latency_s: float = 0.0,
    jitter_s: float = 0.0,
    loss: float = 0.0,
    packet_bytes: int = 1000,
) -> Link:
    return Link(
        bandwidth_bps=bandwidth_bps,
        latency_s=latency_s,
        jitter_s=jitter_s,
        loss=loss,
        packet_bytes=packet_bytes,
    )


@dataclass(frozen=True)
class VirtualFleet:
    """What both simulations are given; work in MACs and sizes in bytes by (device, round)."""

    graph: nx.DiGraph[int]
    hardware: tuple[Hardware, ...]
    rounds: int
    macs: dict[tuple[int, int], int]
    message_bytes: dict[tuple[int, int], int]
    seed: int = 1


def run_timelines(fleet: VirtualFleet) -> list[list[float]]:
    """End of each round of each device, by our clocks, driven round by round."""
    clocks = [
        Timeline(hardware, fleet.seed, device) for device, hardware in enumerate(fleet.hardware)
    ]
    ends: list[list[float]] = [[] for _ in clocks]
    for r in range(fleet.rounds):
        inbox: dict[int, list[tuple[int, Stamp]]] = {device: [] for device in fleet.graph}
        for i, clock in enumerate(clocks):
            clock.step(Work(macs_fp32=fleet.macs[i, r]), r)
            for receiver in sorted(fleet.graph.successors(i)):
                stamp = clock.send((i, receiver), fleet.message_bytes[i, r], r)
                inbox[receiver].append((i, stamp))
        for i, clock in enumerate(clocks):
            ends[i].append(clock.end_round(inbox[i]).end_s)
    return ends


def simulate(fleet: VirtualFleet) -> list[list[float]]:  # noqa: C901 (each process is short)
    """The same by SimPy: processes, resources and stores; nothing is shared but the draws."""
    env = simpy.Environment()
    num = len(fleet.hardware)
    ends: list[list[float]] = [[] for _ in range(num)]
    radios = [simpy.Resource(env) for _ in range(num)]
    arrived = {(i, r): simpy.Store(env) for i in range(num) for r in range(fleet.rounds)}
    audible = {(i, r): simpy.PriorityStore(env) for i in range(num) for r in range(fleet.rounds)}
    last_arrival: dict[tuple[int, int], float] = {}

    def asleep(cycle: DutyCycle) -> float:
        """Seconds until the device is awake."""
        into = into_period(cycle)
        return 0.0 if into < cycle.awake_s or cycle == ALWAYS_AWAKE else cycle.period_s - into

    def into_period(cycle: DutyCycle) -> float:
        into = (env.now - cycle.offset_s) % cycle.period_s
        return 0.0 if cycle.period_s - into < 1e-9 else into  # a rounded awakening

    def labour(i: int, seconds: float) -> Generator[Any, Any, None]:
        """Pass awake time."""
        cycle = fleet.hardware[i].duty_cycle
        while True:
            yield env.timeout(asleep(cycle))
            if cycle == ALWAYS_AWAKE:
                yield env.timeout(seconds)
                return
            left = cycle.awake_s - into_period(cycle)
            if seconds <= left:
                yield env.timeout(seconds)
                return
            yield env.timeout(left)
            seconds -= left
            yield env.timeout(cycle.period_s - cycle.awake_s)

    def transmit(i: int, receivers: list[int], r: int) -> Generator[Any, Any, None]:
        with radios[i].request() as turn:
            yield turn
            for j in receivers:
                yield env.timeout(asleep(fleet.hardware[i].duty_cycle))
                passage = pass_over(
                    fleet.hardware[i].links[j],
                    fleet.message_bytes[i, r],
                    seed=fleet.seed,
                    sender=i,
                    receiver=j,
                    sequence=r,
                )
                last_bit = env.event()
                env.process(announce(i, j, r, passage.delay_s, passage.air_s, last_bit))
                yield from labour(i, passage.air_s)
                env.process(carry(i, j, r, passage.delay_s, last_bit))

    def announce(
        i: int, j: int, r: int, delay: float, air: float, last_bit: simpy.Event
    ) -> Generator[Any, Any, None]:
        yield env.timeout(delay)
        yield audible[j, r].put(simpy.PriorityItem((env.now, i), (air, last_bit)))

    def carry(
        i: int, j: int, r: int, delay: float, last_bit: simpy.Event
    ) -> Generator[Any, Any, None]:
        due = max(env.now + delay, last_arrival.get((i, j), 0.0))
        last_arrival[i, j] = due
        yield env.timeout(due - env.now)
        last_bit.succeed()
        yield arrived[j, r].put(i)

    def device(i: int) -> Generator[Any, Any, None]:
        hardware = fleet.hardware[i]
        for r in range(fleet.rounds):
            step_s = fleet.macs[i, r] / hardware.profile.fp32_macs_per_s
            yield from labour(i, step_s)
            sending = env.process(transmit(i, sorted(fleet.graph.successors(i)), r))
            for _ in range(fleet.graph.in_degree(i)):
                if hardware.is_half_duplex:
                    if not sending.triggered:
                        yield sending
                    item = yield audible[i, r].get()
                    air, last_bit = item.item
                    yield from labour(i, air)
                    if not last_bit.processed:
                        yield last_bit
                else:
                    yield arrived[i, r].get()
            yield env.timeout(asleep(hardware.duty_cycle))
            ends[i].append(env.now)

    for i in range(num):
        env.process(device(i))
    env.run()
    return ends
