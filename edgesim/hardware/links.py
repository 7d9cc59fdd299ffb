"""A link between two devices: time on the air, losses and arrival of messages.

    air = (bytes + bytes of lost packets) * 8 / bandwidth
    arrival = end of transmission + latency + jitter, never before an earlier message of the link

The link sends a lost packet again at once, until it arrives. A loss costs bytes and time, never
content.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from edgesim.hardware.duty_cycle import DutyCycle
from edgesim.streams import StreamPurpose, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link from one device to another, in one direction.

    Attributes:
        bandwidth_bps: bandwidth in bits per second.
        latency_s: time from the last bit sent to the last bit received, without jitter.
        jitter_s: largest additional delay of a message; delays are uniform from 0.
        loss: probability that a packet is lost, in [0, 1).
        packet_bytes: size of the packets of a message; the last packet may be smaller.
        listens: times at which the receiver is awake, but for absences, if its radio is
            half-duplex: if it either sends or receives. None if the radio receives any number of
            messages at once.
        leaves_s: virtual time at which the receiver leaves for good, by plan; at free pace.
        is_mortal: whether the receiver may die of an empty battery; at free pace.
    """

    bandwidth_bps: float
    latency_s: float
    jitter_s: float
    loss: float
    packet_bytes: int
    listens: DutyCycle | None = None
    leaves_s: float = inf
    is_mortal: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """Passage of one message over a link.

    Attributes:
        air_s: seconds for which a radio is busy with the message.
        delay_s: latency and jitter of the message.
        lost_packets: number of retransmitted packets, each counted as often as it was lost.
        lost_bytes: bytes of the retransmitted packets.
    """

    air_s: float
    delay_s: float
    lost_packets: int
    lost_bytes: int


def pass_over(
    link: Link, num_bytes: int, *, seed: int, sender: int, receiver: int, sequence: int
) -> Passage:
    """Send a message over a link; losses and jitter have a random stream per message.

    Args:
        link: the link.
        num_bytes: length of the message.
        seed: seed of the scenario.
        sender: sender of the message.
        receiver: receiver of the message.
        sequence: number of the message on its edge.
    """
    lost_packets = lost_bytes = 0
    delay_s = link.latency_s
    if link.loss or link.jitter_s:
        rng = stream(seed, StreamPurpose.LINK, sender, sequence, peer=receiver)
        delay_s += link.jitter_s * rng.random()
        lost_packets, lost_bytes = _losses(link, num_bytes, rng)
    air_s = (num_bytes + lost_bytes) * 8 / link.bandwidth_bps
    return Passage(air_s, delay_s, lost_packets, lost_bytes)


def _losses(link: Link, num_bytes: int, rng: np.random.Generator) -> tuple[int, int]:
    """Lost packets of a message and their bytes; each packet is sent until it arrives."""
    whole, rest = divmod(num_bytes, link.packet_bytes)
    lost_whole = int(rng.negative_binomial(whole, 1 - link.loss)) if whole and link.loss else 0
    lost_rest = int(rng.geometric(1 - link.loss)) - 1 if rest and link.loss else 0
    return lost_whole + lost_rest, lost_whole * link.packet_bytes + lost_rest * rest
