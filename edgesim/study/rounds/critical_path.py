"""What a fleet's rounds take their time for: the critical path, followed back through its clocks.

A device's round begins when the slowest of its causes is over: its own step, a message, or a radio
that was busy before. Each event of the clocks keeps this one cause. From the end of the last round
the causes lead back without a gap, so the lengths of the events on that path add up to the time
that passed. Only what lies on the path can make the rounds shorter. A round that ends when its
seconds of a contact trace are over has no other cause: all time until then is the trace's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_ROUNDING = 1e-9  # relative rounding error of sums of times

LimitKind = Literal["computing", "sending", "latency", "sleep", "trace"]


@dataclass(frozen=True, slots=True)
class Event:
    """A step of a device, or a message on a link.

    Attributes:
        device: the device that computes, or the sender.
        receiver: of the message; None of a step.
        begin_s: virtual time at which it begins; it ends when the next event of a path begins.
        busy_s: awake seconds that the step takes, or seconds on the air.
        delay_s: latency and jitter of the message.
        cause: event that had to end before this one could begin; None of a first one.
        is_by_trace: whether it is the wait of a device until a moment of a contact trace.
    """

    device: int
    receiver: int | None
    begin_s: float
    busy_s: float
    delay_s: float
    cause: Event | None
    is_by_trace: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A part of the time of a round.

    Attributes:
        kind: what takes the time; `latency` with jitter; `sleep` of the device, or of one end of
            the link; `trace` where a contact trace says how long rounds last.
        device: the device that computes, sends or waits.
        receiver: other end of the link; None without a link.
        seconds: mean of a round.
    """

    kind: LimitKind
    device: int
    receiver: int | None
    seconds: float


def limits_of(last: Event | None, since_s: float, end_s: float, rounds: int) -> tuple[Limit, ...]:
    """Parts of the time from one moment to a later one, the longest first.

    Args:
        last: event that ended last.
        since_s: virtual time of the earlier moment.
        end_s: virtual time at which the last event ended.
        rounds: number of rounds between them.
    """
    sums: dict[tuple[LimitKind, int, int | None], float] = {}
    event = last
    while event is not None and end_s > since_s:
        span_s = end_s - max(event.begin_s, since_s)
        for kind, seconds in _parts(event, span_s):
            key = kind, event.device, event.receiver
            sums[key] = sums.get(key, 0.0) + seconds
        end_s = min(end_s, event.begin_s)
        event = event.cause
    found = [Limit(*key, seconds / rounds) for key, seconds in sums.items() if seconds > 0]
    return tuple(sorted(found, key=lambda limit: (-limit.seconds, limit.device)))


def seconds_by_kind(limits: Iterable[Limit]) -> dict[LimitKind, float]:
    """Seconds of a round by what takes them, the longest first."""
    sums: dict[LimitKind, float] = {}
    for limit in limits:
        sums[limit.kind] = sums.get(limit.kind, 0.0) + limit.seconds
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def _parts(event: Event, span_s: float) -> list[tuple[LimitKind, float]]:
    """The time of an event by kind: work first, then latency; what is left is sleep."""
    if event.is_by_trace:
        return [("trace", span_s)]
    busy_s = min(span_s, event.busy_s)
    delay_s = min(span_s - busy_s, event.delay_s)
    rest_s = span_s - busy_s - delay_s
    work: LimitKind = "computing" if event.receiver is None else "sending"
    slept_s = rest_s if rest_s > _ROUNDING * event.begin_s else 0.0
    return [(work, busy_s), ("latency", delay_s), ("sleep", slept_s)]
