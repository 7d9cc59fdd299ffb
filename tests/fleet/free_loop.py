"""Fleets at free pace, by one sequential event loop: written from the semantics, not from our code.

What is shared with the code under test are the draws (losses, jitter, step times) and the
arithmetic of duty cycles, which tests of their own hold; so results must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, inf

from edgesim.hardware.links import pass_over
from edgesim.hardware.timeline import Hardware
from edgesim.streams import Purpose, stream

RADIO, STEP_END, AT_RECEIVER = range(3)
ANYBODY = -1  # sorts before every device: what a radio does by itself comes first


@dataclass(frozen=True)
class FreeFleet:
    """What both simulations are given; work in MACs and sizes in bytes by (device, round).

    A device ends with its last round, or with the first step that ends at or after the horizon.
    """

    hardware: tuple[Hardware, ...]
    receivers: dict[tuple[int, int], tuple[int, ...]]
    rounds: tuple[int, ...]
    macs: dict[tuple[int, int], int]
    message_bytes: dict[tuple[int, int], int]
    absorb_macs: int
    seed: int
    horizon_s: float = inf

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Edges on which there can be a message."""
        return sorted({(i, k) for (i, _), peers in self.receivers.items() for k in peers})

    def is_last(self, device: int, round_index: int, step_end_s: float) -> bool:
        return round_index + 1 == self.rounds[device] or step_end_s >= self.horizon_s

    def step_s(self, device: int, round_index: int) -> float:
        """Awake seconds of a step."""
        hardware, factor = self.hardware[device], 1.0
        if hardware.compute_jitter:
            rng = stream(self.seed, Purpose.COMPUTE_TIME, device, round_index)
            factor = exp(hardware.compute_jitter * rng.standard_normal())
        return self.macs[device, round_index] / hardware.profile.fp32_macs_per_s * factor

    def absorb_s(self, device: int, messages: int) -> float:
        """Awake seconds that it takes to absorb messages."""
        return messages * self.absorb_macs / self.hardware[device].profile.fp32_macs_per_s


@dataclass
class Round:
    """All that a round of a device leaves behind; x stands for a model, its sums for gossip."""

    step_end_s: float
    sent: list[tuple[float, float, float, int]] = field(default_factory=list)
    absorbed: list[tuple[int, int, int]] = field(default_factory=list)
    end_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0
    x: float = 0.0


def trained(x: float, device: int, round_index: int) -> float:
    """What a step does to x."""
    return 0.9 * x + 0.1 * (device + 1) / (round_index + 3)


def mixed(x: float, values: list[float]) -> float:
    """What absorbing does to x: a float sum, which shows every change of order."""
    for value in values:
        x += 0.3 * value
    return x


@dataclass
class _Device:
    """One device of the event loop."""

    rounds: list[Round] = field(default_factory=list)
    x: float = 1.0
    radio_free_s: float = 0.0
    queue: list[tuple[float, tuple[int, int, int], float, float]] = field(default_factory=list)
    arrived: list[tuple[int, int, int]] = field(default_factory=list)
    last_arrival_s: float = 0.0


class EventLoop:
    """All devices' events in one heap, by (time, device)."""

    def __init__(self, fleet: FreeFleet) -> None:
        self.fleet = fleet
        self.devices = [_Device() for _ in fleet.hardware]
        self.events: list[tuple[float, int, int, tuple[int, ...], float, float]] = []
        self.values: dict[tuple[int, int, int], float] = {}
        self.arrival_on: dict[tuple[int, int], float] = {}
        self.sequences: dict[tuple[int, int], int] = {}
        for i in range(len(self.devices)):
            self.begin_step(i, 0.0)

    def run(self) -> list[list[Round]]:
        while self.events:
            at, _, kind, what, air_s, arrival_s = heappop(self.events)
            if kind == STEP_END:
                self.end_step(what[0], at)
            elif kind == RADIO:
                self.use_radio(what[0], at)
            elif air_s < 0:  # it is here
                device = self.devices[what[1]]
                device.arrived.append(what)
                device.last_arrival_s = at
            else:  # a half-duplex radio can hear it
                heappush(self.devices[what[1]].queue, (at, what, air_s, arrival_s))
                self.wake_radio(what[1], at)
        for i in range(len(self.devices)):
            self.end_last_round(i)
        return [device.rounds for device in self.devices]

    def begin_step(self, i: int, at: float) -> None:
        seconds = self.fleet.step_s(i, len(self.devices[i].rounds))
        ends = self.fleet.hardware[i].duty_cycle.after(at, seconds)
        self.push(ends, i, STEP_END, (i,))

    def end_step(self, i: int, at: float) -> None:
        device, r = self.devices[i], len(self.devices[i].rounds)
        device.x = trained(device.x, i, r)
        step_s = self.fleet.step_s(i, r)
        device.rounds.append(Round(at, list(self.send(i, r, at)), compute_s=step_s))
        if not self.fleet.is_last(i, r, at):
            self.begin_step(i, self.absorb(i, at))

    def send(self, i: int, r: int, at: float) -> Iterator[tuple[float, float, float, int]]:
        device, cycle = self.devices[i], self.fleet.hardware[i].duty_cycle
        for k in self.fleet.receivers[i, r]:
            sequence = self.sequences.get((i, k), 0)
            self.sequences[i, k] = sequence + 1
            passage = pass_over(
                self.fleet.hardware[i].links[k],
                self.fleet.message_bytes[i, r],
                seed=self.fleet.seed,
                sender=i,
                receiver=k,
                sequence=sequence,
            )
            start = cycle.awakening(max(at, device.radio_free_s))
            device.radio_free_s = cycle.after(start, passage.air_s)
            # On one edge nothing overtakes: neither a first bit nor a last one.
            before = self.arrival_on.get((i, k), 0.0)
            first_bit = max(start + passage.delay_s, before)
            arrival = max(device.radio_free_s + passage.delay_s, before)
            self.arrival_on[i, k] = arrival
            self.values[i, k, sequence] = device.x
            if self.fleet.hardware[k].is_half_duplex:
                self.push(first_bit, i, AT_RECEIVER, (i, k, sequence), passage.air_s, arrival)
            else:
                self.push(arrival, i, AT_RECEIVER, (i, k, sequence), -1.0)
            yield start, first_bit, arrival, passage.lost_packets
        self.wake_radio(i, at)

    def wake_radio(self, i: int, at: float) -> None:
        """Let a radio look at its queue when it is next free and awake."""
        device = self.devices[i]
        if device.queue:
            free = self.fleet.hardware[i].duty_cycle.awakening(max(at, device.radio_free_s))
            self.push(free, ANYBODY, RADIO, (i,))

    def use_radio(self, i: int, at: float) -> None:
        device = self.devices[i]
        if device.queue and device.radio_free_s <= at:
            _, key, air_s, arrival = heappop(device.queue)
            device.radio_free_s = max(self.fleet.hardware[i].duty_cycle.after(at, air_s), arrival)
            self.push(device.radio_free_s, key[0], AT_RECEIVER, key, -1.0)
        self.wake_radio(i, at)

    def absorb(self, i: int, at: float) -> float:
        """Absorb what is here, which takes until the time that is returned."""
        device = self.devices[i]
        keys, device.arrived = device.arrived, []
        absorb_s = self.fleet.absorb_s(i, len(keys))
        device.x = mixed(device.x, [self.values[key] for key in keys])
        last = device.rounds[-1]
        last.absorbed, last.x = keys, device.x
        last.compute_s += absorb_s
        last.end_s = self.fleet.hardware[i].duty_cycle.after(at, absorb_s)
        return last.end_s

    def end_last_round(self, i: int) -> None:
        device, cycle = self.devices[i], self.fleet.hardware[i].duty_cycle
        step_end = device.rounds[-1].step_end_s
        still_to_come = device.last_arrival_s if device.arrived else step_end
        at = cycle.awakening(max(step_end, still_to_come))
        device.rounds[-1].wait_s = cycle.awake_between(step_end, at)
        self.absorb(i, at)

    def push(
        self,
        at: float,
        who: int,
        kind: int,
        what: tuple[int, ...],
        air_s: float = 0.0,
        arrival_s: float = 0.0,
    ) -> None:
        heappush(self.events, (at, who, kind, what, air_s, arrival_s))
