"""Fleets at free pace, by our clocks and inboxes, on a network that delays, reorders and repeats.

Devices are generators; a scheduler that draws lots lets them go on or the network deliver. Devices
crash and go on from a checkpoint, with what their senders send them again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from math import inf

import numpy as np
import torch
from free_loop import FreeFleet, Round, mixed, trained

from edgesim.compression import Identity, Message
from edgesim.fleet.promises import Inbox
from edgesim.hardware.free_clock import FreeClock
from edgesim.hardware.timeline import Timeline
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout
from edgesim.mail import Arrival, Promise

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
        slots: letters of an edge whose acceptance is not known.
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
    clock: str
    next_sequences: dict[tuple[int, int], int]
    x: float
    sent: dict[tuple[int, int], int]


@dataclass
class Node:
    """One device with its clock, its inbox and its post."""

    fleet: FreeFleet
    index: int
    clock: FreeClock = field(init=False)
    inbox: Inbox = field(init=False)
    going: Going = field(init=False)
    waits_for: Callable[[], bool] | None = field(init=False)
    rounds: list[Round] = field(default_factory=list)
    x: float = 1.0
    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    log: dict[tuple[int, int], list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    unposted: dict[tuple[int, int], list[Arrival]] = field(
        default_factory=lambda: defaultdict(list)
    )
    promises: dict[tuple[int, int], Promise] = field(default_factory=dict)
    new_promises: list[Promise] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    is_done: bool = False

    def __post_init__(self) -> None:
        self.start()

    def start(self, checkpoint: Checkpoint | None = None) -> None:
        """Begin, or begin again."""
        fleet, i = self.fleet, self.index
        self.clock = FreeClock(Timeline(fleet.hardware[i], fleet.seed, i))
        self.inbox = Inbox(i, [edge for edge in fleet.edges if edge[1] == i])
        if checkpoint:
            self.clock.restore(json.loads(checkpoint.clock))
            self.inbox.take_over(checkpoint.next_sequences)
            self.x, self.sent = checkpoint.x, dict(checkpoint.sent)
            del self.rounds[checkpoint.rounds_done :]
            self.checkpoints = [
                c for c in self.checkpoints if c.rounds_done <= checkpoint.rounds_done
            ]
        self.log = defaultdict(
            list, {edge: self.log[edge][:number] for edge, number in self.sent.items()}
        )
        self.unposted, self.promises, self.new_promises = defaultdict(list), {}, []
        self.going = self.live()
        self.waits_for, self.is_done = (lambda: True), False

    def go_on(self) -> None:
        self.waits_for = next(self.going, None)
        self.is_done = self.waits_for is None

    def live(self) -> Going:
        """A device's rounds: what `Device` and its host do."""
        fleet, i, clock, inbox = self.fleet, self.index, self.clock, self.inbox
        out_edges = [edge for edge in fleet.edges if edge[0] == i]
        r = len(self.rounds)
        is_last = r > 0 and fleet.is_last(i, r - 1, self.rounds[-1].step_end_s)
        if not is_last:
            clock.foresee(Work(macs_fp32=fleet.macs[i, r]), r)
        self.promise(out_edges)
        yield lambda: True
        while not is_last:
            r = len(self.rounds)
            compute_s = clock.step(Work(macs_fp32=fleet.macs[i, r]), r)
            self.x = trained(self.x, i, r)
            inbox.advance(clock.now_s)
            is_last = fleet.is_last(i, r, clock.now_s)
            if clock.listens_first:
                self.promise(out_edges)
                yield inbox.is_ready
                clock.listen(inbox.within_reach())
            clock.foresee(None if is_last else Work(macs_fp32=fleet.macs[i, r + 1]), r + 1)
            done = Round(clock.now_s, compute_s=compute_s)
            for k in fleet.receivers[i, r]:
                done.sent.append(self.send((i, k), r))
            self.promise([edge for edge in out_edges if edge[1] not in fleet.receivers[i, r]])
            yield lambda: not any(self.unposted.values())
            if is_last:
                inbox.advance(inf)
            yield inbox.is_ready
            known = inbox.within_reach()
            keys = clock.await_rest(known) if is_last else clock.arrived(known)
            self.x = mixed(self.x, [a.message.push_weight for a in inbox.take(keys)])
            time = clock.absorb(Work(macs_fp32=fleet.absorb_macs * len(keys)))
            self.rounds.append(replace(done, absorbed=keys, x=self.x, **asdict(time)))
            self.checkpoints.append(self.checkpoint())
            yield lambda: True

    def send(self, edge: tuple[int, int], r: int) -> tuple[float, float, float, int]:
        sequence = self.sent.get(edge, 0)
        self.sent[edge] = sequence + 1
        stamp = self.clock.send(edge, self.fleet.message_bytes[self.index, r], sequence)
        letter = Arrival(Message("choco", *edge, sequence, r, 0.5, self.x, PAYLOAD), stamp)
        self.log[edge].append(letter)
        self.unposted[edge].append(letter)
        self.promises[edge] = Promise(edge, sequence + 1, stamp.promise_s)
        return stamp.start_s, stamp.first_bit_s, stamp.arrival_s, stamp.lost_packets

    def promise(self, edges: list[tuple[int, int]]) -> None:
        for edge in edges:
            promise = Promise(edge, self.sent.get(edge, 0), self.clock.promise_s(edge))
            self.promises[edge] = promise
            self.new_promises.append(promise)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            rounds_done=len(self.rounds),
            clock=json.dumps(self.clock.state(), allow_nan=False),
            next_sequences=dict(self.inbox.next_sequences),
            x=self.x,
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
        self.letters: list[Arrival] = []
        self.promises: list[Promise] = []
        self.crashes = disorder.crashes
        self.turned_away = 0
        self.most_waiting = 0

    def run(self) -> list[list[Round]]:
        failures = 0
        while not all(node.is_done for node in self.nodes):
            failures = 0 if self.do_something() else failures + 1
            if failures > 200 and not self.do_anything():
                waiting = {node.index: node.inbox.waiting_for() for node in self.nodes}
                raise StuckError(f"waiting for edges, by device: {waiting}")
            if self.crashes and self.rng.random() < 0.01:
                self.crash()
        return [node.rounds for node in self.nodes]

    def do_something(self) -> bool:
        lot = self.rng.random()
        if lot < 0.4:
            return self.go_on(int(self.rng.integers(len(self.nodes))))
        if lot < 0.6:
            return bool(self.promises) and self.deliver_promise()
        return bool(self.letters) and self.deliver(int(self.rng.integers(len(self.letters))))

    def do_anything(self) -> bool:
        """Try all that can be done."""
        return (
            any(self.go_on(i) for i in range(len(self.nodes)))
            or any(self.deliver(place) for place in range(len(self.letters)))
            or (bool(self.promises) and self.deliver_promise())
        )

    def go_on(self, i: int) -> bool:
        node = self.nodes[i]
        if node.is_done or not node.waits_for():
            return False
        node.go_on()
        self.promises += node.new_promises
        node.new_promises.clear()
        self.post(node)
        return True

    def post(self, node: Node) -> None:
        """Put letters on the network, so many of each edge at a time."""
        for edge, letters in node.unposted.items():
            there = sum(address(letter) == edge for letter in self.letters)
            free = max(self.disorder.slots - there, 0)
            self.letters += letters[:free]
            del letters[:free]

    def deliver(self, place: int) -> bool:
        letter = self.letters[place]
        edge = address(letter)
        inbox = self.nodes[edge[1]].inbox
        sequence, stamp = letter.message.sequence, letter.stamp
        if not inbox.has_room(edge, sequence, stamp, self.disorder.window):
            self.turned_away += 1
            return False
        inbox.put(letter)
        if self.rng.random() < 0.2:
            return True  # and once more
        del self.letters[place]
        self.post(self.nodes[edge[0]])
        self.most_waiting = max(self.most_waiting, len(inbox))
        return True

    def deliver_promise(self) -> bool:
        place = int(self.rng.integers(len(self.promises)))
        promise = self.promises[place]
        self.nodes[promise.edge[1]].inbox.take_promise(promise)
        if self.rng.random() < 0.8:
            del self.promises[place]
        return True

    def crash(self) -> None:
        """A device loses what it has not saved; its senders send again what it asks for."""
        node = self.nodes[int(self.rng.integers(len(self.nodes)))]
        if not node.checkpoints:
            return
        self.crashes -= 1
        node.start(node.checkpoints[-1 - int(self.rng.integers(len(node.checkpoints[-3:])))])
        self.letters = [letter for letter in self.letters if node.index not in address(letter)]
        self.promises = [p for p in self.promises if node.index not in p.edge]
        for edge in self.fleet.edges:
            sender = self.nodes[edge[0]]
            if edge[1] != node.index or sender is node:
                continue
            first = node.inbox.next_sequences.get(edge, 0)
            posted = len(sender.log[edge]) - len(sender.unposted[edge])
            self.letters += sender.log[edge][first:posted]
            if edge in sender.promises:
                self.promises.append(sender.promises[edge])
        for edge, number in node.sent.items():  # what it had sent and may not have got through
            first = self.nodes[edge[1]].inbox.next_sequences.get(edge, 0)
            self.letters += node.log[edge][first:number]
        for other in self.nodes:  # letters that are lost leave room
            self.post(other)


def address(letter: Arrival) -> tuple[int, int]:
    return letter.message.sender, letter.message.receiver
