"""Fleets at free pace, by our clocks and inboxes, on a network that delays, reorders and repeats.

Devices are generators; a scheduler that draws lots lets them go on or the network deliver. Devices
crash and go on from a checkpoint, with what their senders send them again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np
import torch
from free_loop import FreeFleet, Round, mixed, trained

from edgesim.compression.compressors import Identity
from edgesim.compression.wire import Message
from edgesim.device.mail import Announcement, Arrival, LifeSign, TimeBound
from edgesim.fleet.transport.liveness import LifeSigns
from edgesim.fleet.transport.time_bounds import Inbox
from edgesim.hardware.free_clock import FreeClock
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Timeline
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout

PAYLOAD = Identity(values="fp32").compress(
    torch.ones(2), ParameterLayout.from_shapes([(2,)]), np.random.default_rng(0)
)
Going = Iterator[Callable[[], bool]]
"""A device: yields what it waits for."""


@dataclass
class Disorder:
    """What the network and the machines do to a run; nothing of it may show.

    Attributes:
        seed: of the lots.
        window: messages of an edge that may wait at a receiver.
        slots: envelopes of an edge whose acceptance is not known.
        crashes: how many in the run.
    """

    seed: int
    window: int = 8
    slots: int = 8
    crashes: int = 0


@dataclass
class Checkpoint:
    """A device between two rounds."""

    rounds_done: int
    meter: str
    next_sequences: dict[tuple[int, int], int]
    x: float
    has_mass: bool
    presumed_dead: tuple[int, ...]
    sent: dict[tuple[int, int], int]


@dataclass
class Node:
    """One device with its clock, its inbox and its post."""

    fleet: FreeFleet
    index: int
    meter: Meter = field(init=False)
    inbox: Inbox = field(init=False)
    life_signs: LifeSigns = field(init=False)
    going: Going = field(init=False)
    waits_for: Callable[[], bool] | None = field(init=False)
    rounds: list[Round] = field(default_factory=list)
    x: float = 1.0
    has_mass: bool = True
    presumed_dead: tuple[int, ...] = ()
    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    log: dict[tuple[int, int], list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    unposted: dict[tuple[int, int], list[Arrival]] = field(
        default_factory=lambda: defaultdict(list)
    )
    announcements: dict[tuple[type, int, int], Announcement] = field(default_factory=dict)
    new_announcements: list[Announcement] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    has_died: bool = False
    is_done: bool = False

    def __post_init__(self) -> None:
        self.start()

    @property
    def clock(self) -> FreeClock:
        return self.meter.timeline

    def start(self, checkpoint: Checkpoint | None = None) -> None:
        """Begin, or begin again."""
        fleet, i = self.fleet, self.index
        self.meter = Meter(FreeClock(Timeline(fleet.hardware[i], fleet.seed, i)), None)
        self.inbox = Inbox(i, [edge for edge in fleet.edges if edge[1] == i])
        mortal = [k for j, k in fleet.edges if j == i and fleet.hardware[i].links[k].is_mortal]
        self.life_signs = LifeSigns(i, mortal, fleet.timeout_s)
        self.has_mass, self.has_died = i not in fleet.join_s, False
        self.x = float(self.has_mass)
        if checkpoint:
            self.meter.restore(json.loads(checkpoint.meter))
            self.inbox.take_over(checkpoint.next_sequences)
            self.x, self.sent = checkpoint.x, dict(checkpoint.sent)
            self.has_mass, self.presumed_dead = checkpoint.has_mass, checkpoint.presumed_dead
            del self.rounds[checkpoint.rounds_done :]
            self.checkpoints = [
                c for c in self.checkpoints if c.rounds_done <= checkpoint.rounds_done
            ]
        self.log = defaultdict(
            list, {edge: self.log[edge][:number] for edge, number in self.sent.items()}
        )
        self.unposted, self.announcements, self.new_announcements = defaultdict(list), {}, []
        self.going = self.live()
        self.waits_for, self.is_done = (lambda: True), False

    def go_on(self) -> None:
        self.waits_for = next(self.going, None)
        self.is_done = self.waits_for is None

    def live(self) -> Going:
        """A device's rounds: what `Device` and its host do."""
        fleet, i, clock, inbox = self.fleet, self.index, self.clock, self.inbox
        out_edges = [edge for edge in fleet.edges if edge[0] == i]
        r, is_last = len(self.rounds), False
        clock.foresee(self.work(r), r)
        self.announce(out_edges, clock.now_s)
        yield lambda: True
        while not (is_last or self.has_died):
            r = len(self.rounds)
            if self.has_mass:
                self.meter.step(self.work(r), r)
                self.x = trained(self.x, i, r)
            else:
                self.meter.begin_round(Work())
                clock.idle(self.work(r), r)
            end_s = clock.now_s
            inbox.advance(end_s)
            is_last = fleet.is_last(i, r, end_s)
            is_leaving = is_last and fleet.leaves_at(i, end_s)
            alive_until_s = inf if is_last else end_s
            if clock.listens_first:
                self.announce(out_edges, alive_until_s)
                yield self.knows
                clock.listen(inbox.within_reach())
            next_work = None if is_last else self.work(r + 1)
            clock.foresee(next_work, r + 1, hands_over=is_leaving)
            done = Round(end_s)
            there = [
                k
                for k in fleet.receivers[i, r]
                if self.has_mass and k not in self.presumed_dead and fleet.is_there(k, end_s)
            ]
            done.sent += [self.send((i, k), r, fleet.message_bytes[i, r]) for k in there]
            self.announce([edge for edge in out_edges if edge[1] not in there], alive_until_s)
            yield lambda: not any(self.unposted.values())
            if is_last:
                inbox.advance(inf)
            yield self.knows
            self.presumed_dead = tuple(self.life_signs.presumed_dead(end_s))
            known = inbox.within_reach()
            done.absorbed = clock.await_rest(known) if is_last else clock.arrived(known)
            taken = [arrival.message for arrival in inbox.take(done.absorbed)]
            self.x = mixed(self.x, [message.push_weight for message in taken])
            self.has_mass = self.has_mass or bool(taken)
            work = Work(macs_fp32=fleet.absorb_macs * len(taken))
            num_bytes = sum(int(message.weight) for message in taken)
            self.meter.end_round(clock.absorb(work), num_bytes, work)
            if is_leaving:
                done.sent += self.hand_over(r)
            costs = self.meter.settle()
            done.x, done.end_s = self.x, costs.end_s
            done.compute_s, done.wait_s = costs.compute_s, costs.wait_s
            self.rounds.append(done)
            if not (is_last or self.meter.has_charge):
                done.has_died = self.has_died = True
                clock.foresee(None, r + 1)
            if self.has_died or is_last:
                self.announce(out_edges, clock.now_s if self.has_died else inf)
            else:
                self.checkpoints.append(self.checkpoint())
            yield lambda: True

    def work(self, r: int) -> Work:
        return Work(macs_fp32=self.fleet.macs[self.index, r])

    def knows(self) -> bool:
        """Whether all is known of what comes by now, and of who has died."""
        end_s = self.clock.now_s
        return self.inbox.is_ready() and not self.life_signs.unknown(end_s)

    def hand_over(self, r: int) -> list[tuple[float, float, float, int]]:
        """All that a device has that leaves, to one that stays."""
        i, clock = self.index, self.clock
        clock.foresee(None, r + 1)
        ever = [k for j, k in self.fleet.edges if j == i]
        successors = [
            k
            for k in (*self.fleet.receivers[i, r], *ever)
            if clock.may_inherit(k) and k not in self.presumed_dead
        ]
        if not (successors and self.has_mass):
            return []
        links, now_s = clock.hardware.links, clock.now_s
        successor = min(
            successors, key=lambda k: (links[k].is_mortal, not self.fleet.is_there(k, now_s))
        )
        return [self.send((i, successor), r, self.fleet.handover_bytes)]

    def send(
        self, edge: tuple[int, int], r: int, num_bytes: int
    ) -> tuple[float, float, float, int]:
        sequence = self.sent.get(edge, 0)
        self.sent[edge] = sequence + 1
        stamp = self.meter.send(edge, num_bytes, sequence)
        # Its weight is its length here.
        envelope = Arrival(Message("choco", *edge, sequence, r, num_bytes, self.x, PAYLOAD), stamp)
        self.log[edge].append(envelope)
        self.unposted[edge].append(envelope)
        self.announcements[TimeBound, *edge] = TimeBound(edge, sequence + 1, stamp.bound_s)
        return stamp.start_s, stamp.first_bit_s, stamp.arrival_s, stamp.lost_packets

    def announce(self, edges: list[tuple[int, int]], alive_until_s: float) -> None:
        """What is known of the edges on which nothing is sent now, and of the device's life."""
        new: list[Announcement] = [
            TimeBound(edge, self.sent.get(edge, 0), self.clock.bound_s(edge)) for edge in edges
        ]
        if self.clock.hardware.profile.battery_j is not None:
            own = [edge for edge in self.fleet.edges if edge[1] == self.index]
            new += [LifeSign((i, j), alive_until_s, self.has_died) for j, i in own]
        self.announcements |= {
            (type(announcement), *announcement.edge): announcement for announcement in new
        }
        self.new_announcements += new

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            rounds_done=len(self.rounds),
            meter=json.dumps(self.meter.state(), allow_nan=False),
            next_sequences=dict(self.inbox.next_sequences),
            x=self.x,
            has_mass=self.has_mass,
            presumed_dead=self.presumed_dead,
            sent=dict(self.sent),
        )


class StuckError(AssertionError):
    """Nobody can go on."""


class DisorderlyFleet:
    """A fleet and the network between its devices."""

    def __init__(self, fleet: FreeFleet, disorder: Disorder) -> None:
        self.fleet, self.disorder = fleet, disorder
        self.rng = np.random.default_rng(disorder.seed)
        self.nodes = [Node(fleet, i) for i in range(len(fleet.hardware))]
        self.envelopes: list[Arrival] = []
        self.announcements: list[Announcement] = []
        self.crashes = disorder.crashes
        self.turned_away = 0
        self.most_waiting = 0

    def run(self) -> list[list[Round]]:
        failures = 0
        while not all(node.is_done for node in self.nodes):
            failures = 0 if self.do_something() else failures + 1
            if failures > 200 and not self.do_anything():
                waiting = {node.index: node.inbox.waiting_for() for node in self.nodes}
                told = {n.index: n.life_signs.unknown(n.clock.now_s) for n in self.nodes}
                raise StuckError(f"waiting for edges, by device: {waiting}; for life: {told}")
            if self.crashes and self.rng.random() < 0.01:
                self.crash()
        return [node.rounds for node in self.nodes]

    def do_something(self) -> bool:
        lot = self.rng.random()
        if lot < 0.4:
            return self.go_on(int(self.rng.integers(len(self.nodes))))
        if lot < 0.6:
            return bool(self.announcements) and self.deliver_announcement()
        return bool(self.envelopes) and self.deliver(int(self.rng.integers(len(self.envelopes))))

    def do_anything(self) -> bool:
        """Try all that can be done."""
        return (
            any(self.go_on(i) for i in range(len(self.nodes)))
            or any(self.deliver(place) for place in range(len(self.envelopes)))
            or (bool(self.announcements) and self.deliver_announcement())
        )

    def go_on(self, i: int) -> bool:
        node = self.nodes[i]
        if node.is_done or not node.waits_for():
            return False
        node.go_on()
        self.announcements += node.new_announcements
        node.new_announcements.clear()
        self.post(node)
        return True

    def post(self, node: Node) -> None:
        """Put envelopes on the network, so many of each edge at a time."""
        for edge, envelopes in node.unposted.items():
            there = sum(address(envelope) == edge for envelope in self.envelopes)
            free = max(self.disorder.slots - there, 0)
            self.envelopes += envelopes[:free]
            del envelopes[:free]

    def deliver(self, place: int) -> bool:
        envelope = self.envelopes[place]
        edge = address(envelope)
        receiver = self.nodes[edge[1]]
        inbox = receiver.inbox
        sequence, stamp = envelope.message.sequence, envelope.stamp
        if not receiver.has_died:  # what comes for a dead one is lost
            if not inbox.has_room(edge, sequence, stamp, self.disorder.window):
                self.turned_away += 1
                return False
            inbox.put(envelope)
        if self.rng.random() < 0.2:
            return True  # and once more
        del self.envelopes[place]
        self.post(self.nodes[edge[0]])
        self.most_waiting = max(self.most_waiting, len(inbox))
        return True

    def deliver_announcement(self) -> bool:
        place = int(self.rng.integers(len(self.announcements)))
        announcement = self.announcements[place]
        receiver = self.nodes[announcement.edge[1]]
        if isinstance(announcement, LifeSign):
            receiver.life_signs.take(announcement)
        else:
            receiver.inbox.take_bound(announcement)
        if self.rng.random() < 0.8:
            del self.announcements[place]
        return True

    def crash(self) -> None:
        """A device loses what it has not saved; its senders send again what it asks for."""
        node = self.nodes[int(self.rng.integers(len(self.nodes)))]
        if not node.checkpoints:
            return
        self.crashes -= 1
        node.start(node.checkpoints[-1 - int(self.rng.integers(len(node.checkpoints[-3:])))])
        self.envelopes = [
            envelope for envelope in self.envelopes if node.index not in address(envelope)
        ]
        self.announcements = [p for p in self.announcements if node.index not in p.edge]
        for edge in self.fleet.edges:
            sender = self.nodes[edge[0]]
            if edge[1] != node.index or sender is node:
                continue
            first = node.inbox.next_sequences.get(edge, 0)
            posted = len(sender.log[edge]) - len(sender.unposted[edge])
            self.envelopes += sender.log[edge][first:posted]
            if (TimeBound, *edge) in sender.announcements:
                self.announcements.append(sender.announcements[TimeBound, *edge])
        for receiver, told in node.life_signs.edges:
            if (LifeSign, receiver, told) in self.nodes[receiver].announcements:
                self.announcements.append(
                    self.nodes[receiver].announcements[LifeSign, receiver, told]
                )
        for edge, number in node.sent.items():  # what it had sent and may not have got through
            first = self.nodes[edge[1]].inbox.next_sequences.get(edge, 0)
            self.envelopes += node.log[edge][first:number]
        for other in self.nodes:  # envelopes that are lost leave room
            self.post(other)


def address(envelope: Arrival) -> tuple[int, int]:
    return envelope.message.sender, envelope.message.receiver


def is_drained(inbox):
    """Whether no message is left and none will arrive."""
    everything = (lane.earliest_s for lane in inbox._lanes.values() if lane.is_followed)
    return not len(inbox) and all(earliest_s == inf for earliest_s in everything)
