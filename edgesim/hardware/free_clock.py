"""The virtual clock of one device at free pace: it never waits, and absorbs what has arrived.

    step      a step takes as long as in lockstep (timeline.py) and ends at t
    send      the round's messages leave from t on, one after the other, when the radio is free
    absorb    the messages that have arrived by t take time to absorb; then the next step begins
    at last   after its last step a device absorbs all messages that are still on their way to it;
              a device that leaves by plan then hands over its mass to a neighbour that stays

A message has arrived by t if (arrival, sender) <= (t, device). Pairs are compared in order, so that
equal times are ordered as well.

A half-duplex radio either sends or receives. It receives messages in the order of (first bit,
sender, sequence), each when the radio is free. A reception that has begun by t is over before the
messages of t leave. A message has arrived when its reception is over. Such a device calls `listen`
before it sends.

A time bound is a lower bound: the first bit of any later message of an edge reaches the receiver no
earlier. The bound is the earliest end of the sender's next step, or the time at which its radio is
free if that is later, plus the link's latency. It holds because more work never takes less time,
losses and jitter only delay, and messages of an edge do not overtake each other.
fleet/transport/time_bounds.py uses the bounds. Once the sender's clock has reached the time of
the receiver's planned leave, nothing is sent on the edge but the handover of another leaver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from edgesim.hardware.timeline import NOBODY, Hardware, RoundTime, Stamp, Timeline
from edgesim.hardware.work import Work

MessageKey: TypeAlias = tuple[int, int, int]
"""Sender, receiver and number of a message."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that the device knows of: on its way, or arrived.

    Attributes:
        key: identity of the message.
        stamp: times of the message on its way.
    """

    key: MessageKey
    stamp: Stamp


@dataclass(slots=True)
class FreeClock:
    """The clock of one device at free pace.

    Each round: `step`; at half duplex `listen`; `foresee`, then `send` for each message;
    `arrived`, or `await_rest` in the last round; then `absorb`.

    Attributes:
        timeline: the device's clock and radio.
    """

    timeline: Timeline
    _next_end_s: float = 0.0  # earliest end of the step whose messages come next
    _hands_over: bool = False  # a handover will follow the last step
    _step_end_s: float = 0.0
    _compute_s: float = 0.0
    _wait_s: float = 0.0
    _waited_for: int = NOBODY
    _done_s: dict[MessageKey, float] = field(default_factory=dict)  # receptions begun, by message

    @property
    def hardware(self) -> Hardware:
        """Hardware of the device."""
        return self.timeline.hardware

    @property
    def now_s(self) -> float:
        """Current time of the device's clock."""
        return self.timeline.now_s

    @property
    def listens_first(self) -> bool:
        """Whether the device receives before it sends, so that receptions delay its messages."""
        return self.hardware.is_half_duplex

    def end_of_step_s(self, work: Work, round_index: int) -> float:
        """Time at which a step of this work would end if it began now."""
        step_s = self.timeline.step_s(work, round_index)
        return self.hardware.duty_cycle.after(self.now_s, step_s)

    def step(self, work: Work, round_index: int) -> float:
        """Compute a step; returns its awake seconds."""
        self._compute_s, self._wait_s = self.timeline.step(work, round_index), 0.0
        self._waited_for = NOBODY
        # Until `foresee` is called, the next messages are those of this step.
        self._next_end_s = self._step_end_s = self.now_s
        return self._compute_s

    def idle(self, work: Work, round_index: int) -> None:
        """Let the time of a step pass without computing, since the device has no model yet."""
        self._wait_s = self.step(work, round_index)
        self._compute_s = 0.0

    def may_inherit(self, receiver: int) -> bool:
        """Whether this device leaves by plan and the neighbour, which stays, may succeed it."""
        return self.hardware.leaves_s < inf == self.hardware.links[receiver].leaves_s

    def foresee(self, work: Work | None, round_index: int, *, hands_over: bool = False) -> None:
        """Set the least work of the next step, from which lower bounds are computed.

        Called before the messages of a step are sent if each edge gets at most one of them, else
        before the last message of each edge.

        Args:
            work: least work of the next step; None if there is no next step.
            round_index: round of the next step.
            hands_over: without a next step: one message will follow, with all mass of the device.
        """
        self._hands_over = hands_over
        if work is None:
            self._next_end_s = inf
            return
        cycle = self.hardware.duty_cycle
        end_s = cycle.after(self.now_s, self.timeline.step_s(work, round_index))
        self._next_end_s = max(end_s - cycle.rounding_s(end_s), self.now_s)

    def bound_s(self, edge: tuple[int, int]) -> float:
        """Lower bound on the time at which the first bit of the edge's next message arrives.

        Args:
            edge: sender and receiver, as in `Timeline.send`.
        """
        link, next_s = self.hardware.links[edge[1]], self._next_end_s
        if self._hands_over:
            next_s = self.now_s if self.may_inherit(edge[1]) else inf
        elif next_s >= link.leaves_s:
            next_s = inf
        if next_s == inf:
            return inf
        start_s = self.hardware.duty_cycle.awakening(max(next_s, self.timeline.radio_free_s))
        reaches_s = start_s + link.latency_s
        return max(reaches_s, self.timeline.last_arrival_s.get(edge, 0.0))

    def send(self, edge: tuple[int, int], num_bytes: int, sequence: int) -> Stamp:
        """Send a message as `Timeline.send` does; its stamp carries a lower bound as well."""
        earlier_s = self.timeline.last_arrival_s.get(edge, 0.0)
        stamp = self.timeline.send(edge, num_bytes, sequence)
        return replace(
            stamp,
            first_bit_s=max(stamp.first_bit_s, earlier_s),  # its first bit does not overtake either
            handed_s=self.now_s,
            bound_s=self.bound_s(edge),
        )

    def listen(self, known: Sequence[Incoming]) -> None:
        """Let a half-duplex radio begin all receptions that are due by now, before it sends.

        Args:
            known: all messages whose (first bit, sender) is at most (now, device), except those
                that `arrived` has returned.
        """
        self._listen_until(self.now_s, known)

    def arrived(self, known: Sequence[Incoming]) -> list[MessageKey]:
        """Messages that have arrived by now, in the order in which the device absorbs them.

        Args:
            known: as in `listen`.
        """
        now = self.now_s, self.timeline.device
        return self._hand_out([place for place in self._places(known) if place[:2] <= now])

    def await_rest(self, known: Sequence[Incoming]) -> list[MessageKey]:
        """Wait for all messages that are still on their way.

        Args:
            known: all messages that `arrived` has not returned; no further message will come.

        Returns:
            These messages, in the order in which the device absorbs them.
        """
        cycle = self.hardware.duty_cycle
        self._listen_until(inf, known)
        places = self._places(known)
        self.timeline.now_s = cycle.awakening(max([self.now_s, *(place[0] for place in places)]))
        self._wait_s += cycle.awake_between(self._step_end_s, self.now_s)
        if places and places[-1][0] > self._step_end_s:
            self._waited_for = places[-1][1]
        return self._hand_out(places)

    def absorb(self, work: Work) -> RoundTime:
        """End the round; `work` is that of absorbing the messages that `arrived` returned."""
        self._compute_s += self.timeline.work_more(work)
        return RoundTime(self.now_s, self._compute_s, self._wait_s, self._waited_for)

    def work_more(self, work: Work) -> float:
        """Compute further work at the end of a round; returns its seconds."""
        return self.timeline.work_more(work)

    def state(self) -> dict[str, Any]:
        """State of the clock between two rounds, as values that JSON can hold."""
        receptions = [[*key, done_s] for key, done_s in sorted(self._done_s.items())]
        return {
            "timeline": self.timeline.state(),
            "receptions": receptions,
            "is_over": self._next_end_s == inf,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned.

        The caller must pass the messages again that `arrived` had not returned by then.
        """
        self.timeline.restore(state["timeline"])
        self._done_s = {(s, r, sequence): done_s for s, r, sequence, done_s in state["receptions"]}
        self._next_end_s = inf if state["is_over"] else self.now_s

    def _listen_until(self, time_s: float, known: Sequence[Incoming]) -> None:
        """Begin receptions up to a time, each when the one before is over."""
        if not self.hardware.is_half_duplex:
            return
        new = [message for message in known if message.key not in self._done_s]
        for message in sorted(new, key=_first_bit):
            if self.timeline.listens_from_s(message.stamp) > time_s:
                break
            self._done_s[message.key] = self.timeline.listen(message.stamp)

    def _places(self, known: Sequence[Incoming]) -> list[tuple[float, int, int, int]]:
        """Arrival and key of each message, increasing; without receptions that have not begun."""
        if self.hardware.is_half_duplex:
            return sorted((self._done_s[m.key], *m.key) for m in known if m.key in self._done_s)
        return sorted((m.stamp.arrival_s, *m.key) for m in known)

    def _hand_out(self, places: Sequence[tuple[float, int, int, int]]) -> list[MessageKey]:
        keys = [(sender, receiver, sequence) for _, sender, receiver, sequence in places]
        for key in keys:
            self._done_s.pop(key, None)
        return keys


def _first_bit(message: Incoming) -> tuple[float, MessageKey]:
    """Order in which a half-duplex radio receives messages."""
    return message.stamp.first_bit_s, message.key
