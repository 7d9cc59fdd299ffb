"""Spans of rounds: when an edge is active, when a device is there.

A state that is initially off is stored as the increasing rounds in which it changes. After an odd
number of changes the state is on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias

FOREVER = 2**63 - 1
"""End of a span without an end."""

Span: TypeAlias = tuple[int, int]
"""First round, and first round after it (`FOREVER`: no end)."""


def is_on(changes: Sequence[int], round_index: int) -> bool:
    """Whether a state is on in a round."""
    return bisect_right(changes, round_index) % 2 == 1


def is_ever_on(changes: Sequence[int], first_round: int, end_round: int) -> bool:
    """Whether a state is on in one of the rounds from the first to the one before the end."""
    if first_round >= end_round:
        return False
    return is_on(changes, first_round) or (
        bisect_right(changes, first_round) < bisect_left(changes, end_round)
    )


def off_spans(changes: Sequence[int]) -> tuple[Span, ...]:
    """Spans in which a state is off, those of no rounds left out."""
    starts, ends = (0, *changes[1::2]), (*changes[0::2], FOREVER)
    # Without a last change back there is one start less than there are ends.
    spans = zip(starts, ends, strict=False)
    return tuple(span for span in spans if span[0] < span[1])


def common_spans(one: Sequence[Span], other: Sequence[Span]) -> Iterator[Span]:
    """Intersection of two lists of increasing, disjoint spans."""
    here = there = 0
    while here < len(one) and there < len(other):
        start = max(one[here][0], other[there][0])
        end = min(one[here][1], other[there][1])
        if start < end:
            yield start, end
        if one[here][1] == end:
            here += 1
        else:
            there += 1
