"""When a device at free pace may send again, so that no radio gets more than it can receive."""

from __future__ import annotations

from collections.abc import Sequence

from edgesim.hardware.free_clock import FreeClock
from edgesim.hardware.timeline import Stamp
from topologies import Schedule


def quiet_until_s(
    clock: FreeClock,
    schedule: Schedule,
    sender: int,
    place: int,
    stamps: Sequence[tuple[int, Stamp]],
) -> float:
    """When a device may send again after the messages of a round.

    It may not send before these messages have left. A half-duplex radio also divides its awake time
    into equal shares, one for each link on which it sends or receives, and one that stays free. A
    link uses at most its share of each of its two radios: between two messages each is awake for as
    many air times as it has shares. So messages never wait long at such a radio, and a receiver
    does not have to report its progress to a sender.

    Args:
        clock: of the sender.
        schedule: of the graphs.
        sender: the device.
        place: round of the schedule in which it has sent.
        stamps: receiver and stamp of each message.
    """
    hardware, until_s = clock.hardware, clock.timeline.radio_free_s
    for receiver, stamp in stamps:
        ends = []  # half-duplex ones of the link: when they are awake, and which device it is
        if hardware.is_half_duplex:
            ends.append((hardware.duty_cycle, sender))
        if (listens := hardware.links[receiver].listens) is not None:
            ends.append((listens, receiver))
        for awake, device in ends:
            share_s = _shares(schedule, device, place) * stamp.air_s
            until_s = max(until_s, awake.after(stamp.start_s, share_s))
    return until_s


def _shares(schedule: Schedule, device: int, place: int) -> int:
    """Into how many parts a half-duplex radio divides its time."""
    receivers = len(schedule.out_edges(device, place))
    return receivers + len(schedule.in_neighbors(device, place)) + 1
