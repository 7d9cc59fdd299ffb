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
    link uses at most its share of each of its two radios. So messages never wait long at such a
    radio, and a receiver does not have to report its progress to a sender.

    Args:
        clock: of the sender.
        schedule: of the graphs.
        sender: the device.
        place: round of the schedule in which it has sent.
        stamps: receiver and stamp of each message.
    """
    hardware, until_s = clock.hardware, clock.timeline.radio_free_s
    own = _shares(schedule, sender, place) / hardware.duty_cycle.awake_part
    for receiver, stamp in stamps:
        listens = hardware.links[receiver].listens
        times = max(
            own if hardware.is_half_duplex else 1.0,
            1.0 if listens is None else _shares(schedule, receiver, place) / listens,
        )
        until_s = max(until_s, stamp.start_s + times * stamp.air_s)
    return until_s


def _shares(schedule: Schedule, device: int, place: int) -> int:
    """Into how many parts a half-duplex radio divides its time."""
    receivers = len(schedule.out_edges(device, place))
    return receivers + len(schedule.in_neighbors(device, place)) + 1
