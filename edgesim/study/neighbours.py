"""How many messages a device sends and takes, over the rounds of a schedule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edgesim.gossip.choco import Choco
from edgesim.study.subject import Subject
from topologies import Schedule, possible_receivers

_APERIODIC_GRAPHS = 32  # of a schedule that never repeats, taken for a period


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Messages of one device.

    Attributes:
        degrees: messages sent and taken in rounds of a period, as `rounds_of_period` has them.
        out_copies: neighbours that it holds memory for as a sender: the most of a round, or for
            CHOCO on changing graphs all that it ever sends to (`edgesim.costs.memory`).
        in_copies: likewise as a receiver.
    """

    degrees: tuple[tuple[int, int], ...]
    out_copies: int
    in_copies: int

    @property
    def messages_sent(self) -> float:
        """Mean of a round."""
        return sum(out for out, _ in self.degrees) / len(self.degrees)

    @property
    def messages_received(self) -> float:
        """Mean of a round."""
        return sum(taken for _, taken in self.degrees) / len(self.degrees)


def neighbours_of_devices(subject: Subject) -> tuple[Neighbours, ...]:
    """Neighbours of every device of a scenario."""
    schedule = subject.schedule
    devices, rounds = range(schedule.num_devices), rounds_of_period(schedule)
    degrees = [
        tuple(
            (len(schedule.out_edges(device, r)), len(schedule.in_neighbors(device, r)))
            for r in rounds
        )
        for device in devices
    ]
    if not isinstance(subject.algorithm, Choco):
        most = [tuple(map(max, zip(*pairs, strict=True))) for pairs in degrees]
        return tuple(
            Neighbours(degrees=pairs, out_copies=out, in_copies=taken)
            for pairs, (out, taken) in zip(degrees, most, strict=True)
        )
    receivers = [possible_receivers(schedule, device) for device in devices]
    senders = Counter(receiver for peers in receivers for receiver in peers)
    return tuple(
        Neighbours(degrees=degrees[i], out_copies=len(receivers[i]), in_copies=senders[i])
        for i in devices
    )


def rounds_of_period(schedule: Schedule) -> list[int]:
    """For each graph of a period the rounds up to one exchange, that one included."""
    period = schedule.period or _APERIODIC_GRAPHS * schedule.hold
    starts = range(0, period, schedule.hold)
    return [r for start in starts for r in range(start, start + schedule.exchange_every)]
