"""When a device at free pace may send again, so that no radio is sent more than it can take in."""

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

    Not before they have left. A half-duplex radio moreover divides the time in which it is
    awake evenly among its links, those on which it sends and those on which it hears, with one
    share to spare; a link uses no more than its share at either end. So what reaches such a
    radio never queues up for long, and nobody has to tell a sender how far its receivers are.

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
