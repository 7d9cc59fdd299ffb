"""The inbox of a device at free pace, in virtual time: a conservative discrete-event simulation.

A device whose step ends at t absorbs the messages that have arrived by (t, its id); pairs are
compared lexicographically. In the emulation it has to wait until it knows all these messages, that
is, until it has a sufficient time bound from each possible sender: a lower bound on the arrival
times of all messages not sent yet. Time bounds travel with messages (`Stamp.bound_s`) or, on edges
without a message, alone (the null messages of Chandy, Misra and Bryant). As transports reorder, a
time bound counts once all messages before it have arrived.

There is no deadlock. Before a device waits for time bounds at time t, it has given a time bound of
t or more on every edge, with its messages or, if a half-duplex radio cannot send yet, in null
messages. So, if several devices wait, the one with the least pair (t, id) has time bounds beyond
its pair from all others, and does not wait.

Bounded windows do not change that. There is room for a message if fewer messages than the window
wait on its edge, if the sender's pair is not ahead of the receiver's, or if the receiver waits for
that edge. The device with the least pair is not ahead of any other, so it can always send. A full
edge must not delay envelopes or time bounds of other edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from edgesim.device.mail import Arrival, TimeBound
from edgesim.device.membership import Edge
from edgesim.errors import EdgesimError
from edgesim.hardware.free_clock import Incoming, MessageKey
from edgesim.hardware.timeline import Stamp


class BrokenBoundError(EdgesimError):
    """A message came before a time bound of its sender: the order of events is lost."""


@dataclass(slots=True)
class _Lane:
    """What is known of one edge.

    Attributes:
        next_sequence: number of the next message to be taken.
        end: number of the first message that has not arrived.
        earliest_s: earliest time of message `end`.
        early: messages after `end` that have arrived.
        bounds: time bounds on messages after `end`, by the first number that they are for.
        is_followed: whether the device serves this edge, as far as it knows.
    """

    next_sequence: int = 0
    end: int = 0
    earliest_s: float = 0.0
    early: dict[int, Arrival] = field(default_factory=dict)
    bounds: dict[int, float] = field(default_factory=dict)
    is_followed: bool = False


class Inbox:
    """Messages and time bounds that have come for one device and are not yet taken.

    Both may be repeated and reordered. The order of their arrival has no influence.

    Args:
        device: whose inbox it is.
        edges: on which a message may come in some round.

    Attributes:
        now_s: end of the device's newest step.
    """

    def __init__(self, device: int, edges: Iterable[Edge]) -> None:
        self.now_s = 0.0
        self._device = device
        self._lanes: dict[Edge, _Lane] = {}
        self._holding: list[tuple[float, Edge]] = []  # heap of earliest_s; some are outdated
        self._coming: list[tuple[float, MessageKey]] = []  # heap of the first bits of `_known`
        self._known: dict[MessageKey, Arrival] = {}
        self._within_reach: dict[MessageKey, Incoming] = {}
        self.take_over(dict.fromkeys(edges, 0))

    def __len__(self) -> int:
        return len(self._known) + sum(len(lane.early) for lane in self._lanes.values())

    @property
    def next_sequences(self) -> Mapping[Edge, int]:
        """Next sequence by edge, for the edges on which messages were taken."""
        return {e: lane.next_sequence for e, lane in self._lanes.items() if lane.next_sequence}

    def put(self, arrival: Arrival) -> bool:
        """Keep a message and its time bound; return False if both are known.

        Raises:
            BrokenBoundError: the message arrives before its time bound.
        """
        message = arrival.message
        edge = message.sender, message.receiver
        lane = self._lanes.setdefault(edge, _Lane())
        if message.sequence in lane.early:
            return False
        if message.sequence < lane.end:
            # After a restart of both ends, the device may have the message but not its time bound.
            earliest_s = _stamp(arrival).bound_s
            return self.take_bound(TimeBound(edge, message.sequence + 1, earliest_s))
        lane.early[message.sequence] = arrival
        self._extend(edge, lane)
        return True

    def take_bound(self, bound: TimeBound) -> bool:
        """Keep a time bound; return False if it is not new."""
        lane = self._lanes.setdefault(bound.edge, _Lane())
        first, earliest_s = bound.next_sequence, bound.earliest_s
        known_s = lane.earliest_s if first <= lane.end else lane.bounds.get(first, 0.0)
        if earliest_s <= known_s:
            return False
        lane.bounds[first] = earliest_s
        self._extend(bound.edge, lane)
        return True

    def advance(self, now_s: float) -> None:
        """Advance to the end of the device's step; infinity to take all further messages."""
        self.now_s = now_s

    def is_ready(self) -> bool:
        """Whether all messages that reach the device by the end of its step are known."""
        while self._holding:
            earliest_s, edge = self._holding[0]
            if self._lanes[edge].earliest_s == earliest_s:
                return not self._holds_up(edge)
            heappop(self._holding)
        return True

    def waiting_for(self) -> list[Edge]:
        """Edges whose time bounds the device waits for, increasing."""
        return sorted(
            e for e, lane in self._lanes.items() if lane.is_followed and self._holds_up(e)
        )

    def within_reach(self) -> list[Incoming]:
        """Messages, not taken yet, whose (first bit, sender) is at most (now, device).

        To be called when `is_ready`; the order is always the same.
        """
        assert self.is_ready(), "what reaches the device is known"
        while self._coming and self._is_by_now(*self._coming[0]):
            _, key = heappop(self._coming)
            if key in self._known:
                self._within_reach[key] = Incoming(key, _stamp(self._known[key]))
        return list(self._within_reach.values())

    def take(self, keys: Sequence[MessageKey]) -> list[Arrival]:
        """Remove and return messages that are within reach, in the order given."""
        taken = []
        for key in keys:
            sender, receiver, sequence = key
            lane = self._lanes[sender, receiver]
            assert sequence == lane.next_sequence, "messages of an edge are taken in order"
            lane.next_sequence += 1
            del self._within_reach[key]
            taken.append(self._known.pop(key))
        return taken

    def has_room(self, edge: Edge, sequence: int, stamp: Stamp, window: int) -> bool:
        """Whether there is room for a message (see the module).

        Args:
            edge: of the message.
            sequence: its place on it.
            stamp: when it travels.
            window: messages of one edge that may wait.
        """
        lane = self._lanes.get(edge)
        if lane is None or not lane.is_followed:  # for a successor that is not told yet
            return True
        return (
            sequence < lane.next_sequence + window
            or self._is_by_now(stamp.handed_s, edge)
            or self._holds_up(edge)
        )

    def take_over(self, next_sequences: Mapping[Edge, int]) -> None:
        """Serve edges from given messages on, after a restart or as a successor.

        Args:
            next_sequences: by edge, also by those where it is 0.
        """
        for edge, sequence in next_sequences.items():
            lane = self._lanes.setdefault(edge, _Lane())
            for past in range(lane.next_sequence, min(lane.end, sequence)):
                del self._known[*edge, past]
                self._within_reach.pop((*edge, past), None)
            for past in [early for early in lane.early if early < sequence]:
                del lane.early[past]
            lane.next_sequence = max(lane.next_sequence, sequence)
            lane.end = max(lane.end, sequence)
            if not lane.is_followed:
                lane.is_followed = True
                heappush(self._holding, (lane.earliest_s, edge))
            self._extend(edge, lane)

    def empty(self) -> list[Arrival]:
        """Remove and return everything, in the order of edges and sequences."""
        everything = list(self._known.values())
        for lane in self._lanes.values():
            everything += lane.early.values()
            lane.early.clear()
        self._known.clear()
        self._within_reach.clear()
        return sorted(everything, key=_key)

    def _extend(self, edge: Edge, lane: _Lane) -> None:
        """Move messages that have arrived without a gap out of `early`."""
        if not lane.is_followed:
            return
        known_s = lane.earliest_s
        self._apply_bounds(lane)
        while lane.end in lane.early:
            arrival = lane.early.pop(lane.end)
            stamp = _stamp(arrival)
            if stamp.first_bit_s < lane.earliest_s:
                raise BrokenBoundError(
                    f"message {lane.end} of edge {edge[0]} -> {edge[1]} reaches its receiver at "
                    f"{stamp.first_bit_s!r} s, but its time bound was "
                    f"{lane.earliest_s!r} s; resume the run, and report it if it comes again"
                )
            key = *edge, lane.end
            self._known[key] = arrival
            heappush(self._coming, (stamp.first_bit_s, key))
            lane.end += 1
            lane.earliest_s = max(lane.earliest_s, stamp.bound_s)
            self._apply_bounds(lane)
        if lane.earliest_s > known_s:
            heappush(self._holding, (lane.earliest_s, edge))

    def _apply_bounds(self, lane: _Lane) -> None:
        """Apply time bounds whose earlier messages have all arrived."""
        for first in [first for first in lane.bounds if first <= lane.end]:
            lane.earliest_s = max(lane.earliest_s, lane.bounds.pop(first))

    def _holds_up(self, edge: Edge) -> bool:
        """Whether a message may come on this edge that reaches the device by now."""
        earliest_s = self._lanes[edge].earliest_s
        return earliest_s != inf and self._is_by_now(earliest_s, edge)

    def _is_by_now(self, time_s: float, edge_or_key: tuple[int, ...]) -> bool:
        """Whether (time, sender) is at most (now, device)."""
        return (time_s, edge_or_key[0]) <= (self.now_s, self._device)


def _stamp(arrival: Arrival) -> Stamp:
    assert arrival.stamp is not None, "at free pace every device has a clock"
    return arrival.stamp


def _key(arrival: Arrival) -> MessageKey:
    message = arrival.message
    return message.sender, message.receiver, message.sequence
