"""A link between two devices: how long a message is on the air, and when it arrives.

    air = (bytes + bytes of lost packets) * 8 / bandwidth
    arrival = end of transmission + latency + jitter, never before an earlier one of the same link

A lost packet is sent again by the link at once, until it gets through: it costs bytes and time,
never content.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from edgesim.streams import Purpose, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction between two devices.

    Attributes:
        bandwidth_bps: bits per second.
        latency_s: from the last bit sent to the last bit received.
        jitter_s: most that a message takes beyond that, evenly distributed from 0.
        loss: probability that a packet is lost, in [0, 1).
        packet_bytes: a message is cut into packets of this size; the last may be smaller.
        listens: part of the time in which the receiver's radio can do the one thing that it does at
            a time, that is, in which the receiver is awake; None if its radio takes in all at once.
        leaves_s: virtual time at which the receiver leaves for good, by plan; at free pace.
        is_mortal: the receiver may die of an empty battery; at free pace.
    """

    bandwidth_bps: float
    latency_s: float
    jitter_s: float
    loss: float
    packet_bytes: int
    listens: float | None = None
    leaves_s: float = inf
    is_mortal: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """What a link does to one message.

    Attributes:
        air_s: seconds that a radio is busy with it.
        delay_s: latency and jitter.
        lost_packets: packets sent again, each as often as it was lost.
        lost_bytes: bytes of these.
    """

    air_s: float
    delay_s: float
    lost_packets: int
    lost_bytes: int


def pass_over(
    link: Link, num_bytes: int, *, seed: int, sender: int, receiver: int, sequence: int
) -> Passage:
    """Send a message over a link, its losses and jitter drawn from a stream of its own.

    Args:
        link: whose numbers hold.
        num_bytes: of the message.
        seed: of the scenario.
        sender: with receiver and sequence names the message.
        receiver: see there.
        sequence: number of the message on its edge.
    """
    lost_packets = lost_bytes = 0
    delay_s = link.latency_s
    if link.loss or link.jitter_s:
        rng = stream(seed, Purpose.LINK, sender, sequence, peer=receiver)
        delay_s += link.jitter_s * rng.random()
        lost_packets, lost_bytes = _losses(link, num_bytes, rng)
    air_s = (num_bytes + lost_bytes) * 8 / link.bandwidth_bps
    return Passage(air_s, delay_s, lost_packets, lost_bytes)


def _losses(link: Link, num_bytes: int, rng: np.random.Generator) -> tuple[int, int]:
    """Lost packets of a message and their bytes: each packet is tried until it gets through."""
    whole, rest = divmod(num_bytes, link.packet_bytes)
    lost_whole = int(rng.negative_binomial(whole, 1 - link.loss)) if whole and link.loss else 0
    lost_rest = int(rng.geometric(1 - link.loss)) - 1 if rest and link.loss else 0
    return lost_whole + lost_rest, lost_whole * link.packet_bytes + lost_rest * rest
