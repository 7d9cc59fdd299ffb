"""The virtual clock of one device at free pace: it never waits, and takes in what has arrived.

    step      as in lockstep (timeline.py); ends at t
    send      the round's messages leave from t on, one after the other, when the radio is free
    absorb    what has arrived by t takes time to absorb; the next step begins after that
    at last   after its last step a device takes in all that is still on its way to it; one that
              leaves by plan then hands over what it has to a neighbour that stays

Arrived by t is what has (arrival, sender) <= (t, device): pairs, so that equal times are ordered.

Half-duplex radios do one thing at a time. They take messages in by (first bit, sender, sequence),
each when the radio is free; a reception begun by t is over before the messages of t leave, and a
message has arrived when its reception is over. Such a device `listen`s before it sends.

A promise says that no later message of an edge reaches the receiver (its first bit) before some
time: the earliest end of the sender's next step, or when its radio is free if that is later, plus
the link's latency. It is kept because more work never takes less time, losses and jitter only
delay, and messages of an edge do not overtake each other. promises.py says what it is good for.
Nothing is sent by a clock that has reached the time at which the receiver leaves by plan, but for
what another one that leaves hands over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from edgesim.hardware.timeline import Hardware, RoundTime, Stamp, Timeline
from edgesim.hardware.work import Work

MessageKey: TypeAlias = tuple[int, int, int]
"""Sender and receiver as the message has them, and its place on that edge."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that is known of: on its way to the device, or there.

    Attributes:
        key: which message.
        stamp: when it travels.
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
    _hands_over: bool = False  # after its last step, and has not yet
    _step_end_s: float = 0.0
    _compute_s: float = 0.0
    _wait_s: float = 0.0
    _done_s: dict[MessageKey, float] = field(default_factory=dict)  # receptions begun, by message

    @property
    def hardware(self) -> Hardware:
        """Of the device."""
        return self.timeline.hardware

    @property
    def now_s(self) -> float:
        """The device's clock."""
        return self.timeline.now_s

    @property
    def listens_first(self) -> bool:
        """Whether what reaches the device by the end of a step decides when it can send."""
        return self.hardware.is_half_duplex

    def end_of_step_s(self, work: Work, round_index: int) -> float:
        """When a step of this work would end that began now."""
        step_s = self.timeline.step_s(work, round_index)
        return self.hardware.duty_cycle.after(self.now_s, step_s)

    def step(self, work: Work, round_index: int) -> float:
        """Compute for as long as the work takes; returns the awake seconds that it took."""
        self._compute_s, self._wait_s = self.timeline.step(work, round_index), 0.0
        # Until `foresee` says that they have left, this step's messages are the next.
        self._next_end_s = self._step_end_s = self.now_s
        return self._compute_s

    def idle(self, work: Work, round_index: int) -> None:
        """Let the time of a step of this work pass without computing: there is no model yet."""
        self._wait_s = self.step(work, round_index)
        self._compute_s = 0.0

    def may_inherit(self, receiver: int) -> bool:
        """Whether this device could hand over to a neighbour as it leaves: to one that stays."""
        return self.hardware.leaves_s < inf == self.hardware.links[receiver].leaves_s

    def foresee(self, work: Work | None, round_index: int, *, hands_over: bool = False) -> None:
        """Say what is known of the next step, so that promises reach beyond it.

        Called before the messages of a step are sent, if each edge gets at most one of them, or
        else before the last of each edge.

        Args:
            work: least that the step takes; None if there is none, and never again a message.
            round_index: of that step.
            hands_over: of no step: there will be one message, with all that the device has.
        """
        self._hands_over = hands_over
        if work is None:
            self._next_end_s = inf
            return
        cycle = self.hardware.duty_cycle
        end_s = cycle.after(self.now_s, self.timeline.step_s(work, round_index))
        self._next_end_s = max(end_s - cycle.rounding_s(end_s), self.now_s)

    def promise_s(self, edge: tuple[int, int]) -> float:
        """Earliest time at which the first bit of a message not yet sent reaches its receiver.

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
        """Put a message on the air; see `Timeline.send`. Its stamp carries a promise."""
        earlier_s = self.timeline.last_arrival_s.get(edge, 0.0)
        stamp = self.timeline.send(edge, num_bytes, sequence)
        return replace(
            stamp,
            first_bit_s=max(stamp.first_bit_s, earlier_s),  # nor does its first bit overtake
            handed_s=self.now_s,
            promise_s=self.promise_s(edge),
        )

    def listen(self, known: Sequence[Incoming]) -> None:
        """Let a half-duplex radio take in what it has begun to by now, before anything is sent.

        Args:
            known: all whose (first bit, sender) is at most (now, device), except what was handed
                out by `arrived`.
        """
        self._listen_until(self.now_s, known)

    def arrived(self, known: Sequence[Incoming]) -> list[MessageKey]:
        """Messages that have arrived by now, in the order in which they are to be absorbed.

        Args:
            known: as in `listen`.
        """
        now = self.now_s, self.timeline.device
        return self._hand_out([place for place in self._places(known) if place[:2] <= now])

    def await_rest(self, known: Sequence[Incoming]) -> list[MessageKey]:
        """Wait for the last message that will ever come; all messages, in the order to absorb.

        Args:
            known: all that were not handed out; no other will come.
        """
        cycle = self.hardware.duty_cycle
        self._listen_until(inf, known)
        places = self._places(known)
        self.timeline.now_s = cycle.awakening(max([self.now_s, *(place[0] for place in places)]))
        self._wait_s += cycle.awake_between(self._step_end_s, self.now_s)
        return self._hand_out(places)

    def absorb(self, work: Work) -> RoundTime:
        """End the round: absorb what was handed out, which is this much work."""
        self._compute_s += self.timeline.work_more(work)
        return RoundTime(self.now_s, self._compute_s, self._wait_s)

    def work_more(self, work: Work) -> float:
        """Compute beyond the end of a round; returns the seconds that it takes."""
        return self.timeline.work_more(work)

    def state(self) -> dict[str, Any]:
        """What the clock knows between two rounds, as values that JSON can hold."""
        receptions = [[*key, done_s] for key, done_s in sorted(self._done_s.items())]
        return {
            "timeline": self.timeline.state(),
            "receptions": receptions,
            "is_over": self._next_end_s == inf,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; what was not handed out then has to be known again."""
        self.timeline.restore(state["timeline"])
        self._done_s = {(s, r, sequence): done_s for s, r, sequence, done_s in state["receptions"]}
        self._next_end_s = inf if state["is_over"] else self.now_s

    def _listen_until(self, time_s: float, known: Sequence[Incoming]) -> None:
        """Begin receptions until a time, each when the one before is over."""
        if not self.hardware.is_half_duplex:
            return
        new = [message for message in known if message.key not in self._done_s]
        for message in sorted(new, key=_first_bit):
            if self.timeline.listens_from_s(message.stamp) > time_s:
                break
            self._done_s[message.key] = self.timeline.listen(message.stamp)

    def _places(self, known: Sequence[Incoming]) -> list[tuple[float, int, int, int]]:
        """When each message is here, then its key; increasing. Without those not begun."""
        if self.hardware.is_half_duplex:
            return sorted((self._done_s[m.key], *m.key) for m in known if m.key in self._done_s)
        return sorted((m.stamp.arrival_s, *m.key) for m in known)

    def _hand_out(self, places: Sequence[tuple[float, int, int, int]]) -> list[MessageKey]:
        keys = [(sender, receiver, sequence) for _, sender, receiver, sequence in places]
        for key in keys:
            self._done_s.pop(key, None)
        return keys


def _first_bit(message: Incoming) -> tuple[float, MessageKey]:
    """Order in which a half-duplex radio takes messages in."""
    return message.stamp.first_bit_s, message.key
