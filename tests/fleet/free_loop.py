"""Fleets at free pace, by one sequential event loop: written from the semantics, not from our code.

What is shared with the code under test are the draws (losses, jitter, step times) and the
arithmetic of waking times, which tests of their own hold; so results must agree to the bit.

Devices may be absent, join, leave by plan, and die of an empty battery:
    absent   asleep (`duty_cycle`), and nobody whose step ends meanwhile sends to it
    joins    absent until then; without mass it lets the time of its steps pass, and sends nothing
    leaves   its last step is the first to end then or later; it takes in what is on its way, and
             sends all that it has to a neighbour that stays: rather to one without a battery,
             then rather to one that is there, then to the first
    dies     between two rounds, if what it has spent and its costliest round exceed its battery;
             whoever ends a step (d + time-out, dead) <= (t, own) sends to it no more from then on
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, inf

from edgesim.hardware.links import pass_over
from edgesim.hardware.timeline import Hardware
from edgesim.streams import StreamPurpose, stream

RADIO, STEP_END, AT_RECEIVER = range(3)
ANYBODY = -1  # sorts before every device: what a radio does by itself comes first


@dataclass(frozen=True)
class FreeFleet:
    """What both simulations are given; work in MACs and sizes in bytes by (device, round).

    A device ends with its last round, or with the first step that ends at or after the horizon, or
    after it is to leave. Absences and times of joining and leaving are by device.
    """

    hardware: tuple[Hardware, ...]
    receivers: dict[tuple[int, int], tuple[int, ...]]
    rounds: tuple[int, ...]
    macs: dict[tuple[int, int], int]
    message_bytes: dict[tuple[int, int], int]
    absorb_macs: int
    seed: int
    horizon_s: float = inf
    absences: dict[int, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    join_s: dict[int, float] = field(default_factory=dict)
    leave_s: dict[int, float] = field(default_factory=dict)
    timeout_s: float = 0.0
    handover_bytes: int = 1000

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Edges on which there can be a message."""
        return sorted({(i, k) for (i, _), peers in self.receivers.items() for k in peers})

    def is_last(self, device: int, round_index: int, step_end_s: float) -> bool:
        end_s = min(self.horizon_s, self.leave_s.get(device, inf))
        return round_index + 1 == self.rounds[device] or step_end_s >= end_s

    def leaves_at(self, device: int, step_end_s: float) -> bool:
        """Whether a device leaves after a step, before the run is over."""
        leave_s = self.leave_s.get(device, inf)
        return leave_s < self.horizon_s and step_end_s >= leave_s

    def is_there(self, device: int, time_s: float) -> bool:
        """Whether others may send to a device."""
        away = any(a <= time_s < b for a, b in self.absences.get(device, ()))
        joined = time_s >= self.join_s.get(device, 0.0)
        return joined and not away and time_s < self.leave_s.get(device, inf)

    def step_s(self, device: int, round_index: int) -> float:
        """Awake seconds of a step."""
        hardware, factor = self.hardware[device], 1.0
        if hardware.compute_jitter:
            rng = stream(self.seed, StreamPurpose.COMPUTE_TIME, device, round_index)
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
    has_died: bool = False


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
    has_mass: bool = True
    spent_j: float = 0.0
    costliest_j: float = 0.0
    died_s: float = inf
    presumed_dead: set[int] = field(default_factory=set)
    on_the_way: int = 0
    is_leaving: bool = False
    is_closed: bool = False
    sent_bytes: int = 0  # of the round, with those sent again
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
        self.sizes: dict[tuple[int, int, int], int] = {}
        self.arrival_on: dict[tuple[int, int], float] = {}
        self.sequences: dict[tuple[int, int], int] = {}
        for i, device in enumerate(self.devices):
            if i in fleet.join_s:
                device.x, device.has_mass = 0.0, False
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
                device.on_the_way -= 1
                device.last_arrival_s = at
                self.leave_if_all_is_here(what[1])
            else:  # a half-duplex radio can hear it
                heappush(self.devices[what[1]].queue, (at, what, air_s, arrival_s))
                self.wake_radio(what[1], at)
        for i, device in enumerate(self.devices):
            if not device.is_closed:
                self.end_last_round(i)
        return [device.rounds for device in self.devices]

    def begin_step(self, i: int, at: float) -> None:
        seconds = self.fleet.step_s(i, len(self.devices[i].rounds))
        ends = self.fleet.hardware[i].duty_cycle.after(at, seconds)
        self.push(ends, i, STEP_END, (i,))

    def end_step(self, i: int, at: float) -> None:
        device, r = self.devices[i], len(self.devices[i].rounds)
        step_s = self.fleet.step_s(i, r)
        device.rounds.append(Round(at))
        device.sent_bytes = 0
        if device.has_mass:
            device.rounds[-1].compute_s = step_s
            device.x = trained(device.x, i, r)
            for k in self.fleet.receivers[i, r]:
                if k not in device.presumed_dead and self.fleet.is_there(k, at):
                    self.send(i, k, self.fleet.message_bytes[i, r], at)
        else:
            device.rounds[-1].wait_s = step_s
        self.wake_radio(i, at)
        timeout_s, others = self.fleet.timeout_s, enumerate(self.devices)
        device.presumed_dead = {k for k, d in others if (d.died_s + timeout_s, k) <= (at, i)}
        if not self.fleet.is_last(i, r, at):
            self.go_on_or_die(i, self.absorb(i, at))
        elif self.fleet.leaves_at(i, at):
            device.is_leaving = True
            self.leave_if_all_is_here(i)

    def go_on_or_die(self, i: int, at: float) -> None:
        """After a round that is not the last."""
        device, profile = self.devices[i], self.fleet.hardware[i].profile
        done = device.rounds[-1]
        energy_j = (
            profile.active_power_w * done.compute_s
            + profile.idle_power_w * done.wait_s
            + profile.radio.send_j_per_byte * device.sent_bytes
            + profile.radio.receive_j_per_byte * sum(self.sizes[key] for key in done.absorbed)
        )
        device.spent_j += energy_j
        device.costliest_j = max(device.costliest_j, energy_j)
        battery_j = inf if profile.battery_j is None else profile.battery_j
        if device.spent_j + device.costliest_j > battery_j:
            done.has_died, device.is_closed, device.died_s = True, True, at
        else:
            self.begin_step(i, at)

    def send(self, i: int, k: int, num_bytes: int, at: float) -> None:
        device, cycle = self.devices[i], self.fleet.hardware[i].duty_cycle
        sequence = self.sequences.get((i, k), 0)
        self.sequences[i, k] = sequence + 1
        passage = pass_over(
            self.fleet.hardware[i].links[k],
            num_bytes,
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
        self.sizes[i, k, sequence] = num_bytes
        device.sent_bytes += num_bytes + passage.lost_bytes
        self.devices[k].on_the_way += 1
        if self.fleet.hardware[k].is_half_duplex:
            self.push(first_bit, i, AT_RECEIVER, (i, k, sequence), passage.air_s, arrival)
        else:
            self.push(arrival, i, AT_RECEIVER, (i, k, sequence), -1.0)
        device.rounds[-1].sent.append((start, first_bit, arrival, passage.lost_packets))

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
        device.has_mass = device.has_mass or bool(keys)
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
        device.rounds[-1].wait_s += cycle.awake_between(step_end, at)
        device.is_closed = True
        self.absorb(i, at)

    def leave_if_all_is_here(self, i: int) -> None:
        """Who leaves hands over when the last message to it is here: nobody sends another one."""
        device, r = self.devices[i], len(self.devices[i].rounds) - 1
        if not device.is_leaving or device.on_the_way:
            return
        device.is_leaving = False
        self.end_last_round(i)
        ever = [k for j, k in self.fleet.edges if j == i]
        successors = [
            k
            for k in (*self.fleet.receivers[i, r], *ever)
            if k not in self.fleet.leave_s and k not in device.presumed_dead
        ]
        if successors and device.has_mass:
            end_s = device.rounds[-1].end_s
            plugged_in = [k for k in successors if self.fleet.hardware[k].profile.battery_j is None]
            choice = plugged_in or successors
            there = [k for k in choice if self.fleet.is_there(k, end_s)]
            self.send(i, (there or choice)[0], self.fleet.handover_bytes, end_s)

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
