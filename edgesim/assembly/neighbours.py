"""Numbers of messages that a device sends and receives, over the rounds of a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from edgesim.assembly.studied_scenario import StudiedScenario
from topologies import ContactTrace, Schedule, SeveralExchanges, possible_receivers

_APERIODIC_GRAPHS = 32  # graphs that count as the period of a schedule without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Messages of one device.

    Attributes:
        degrees: numbers of messages sent and received in each round of `rounds_of_period`.
        out_copies: number of receivers that the device holds memory for: the maximum of a round, or
            all receivers ever if the algorithm keeps memory for each edge.
        in_copies: number of senders that the device holds memory for, counted in the same way.
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


def neighbours_of_devices(studied: StudiedScenario) -> tuple[Neighbours, ...]:
    """Neighbours of every device of a scenario."""
    schedule = studied.schedule
    devices, rounds = range(schedule.num_devices), rounds_of_period(schedule)
    degrees = [degrees_in(schedule, device, rounds) for device in devices]
    if not studied.algorithm.keeps_edges:
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


def degrees_in(
    schedule: Schedule, device: int, rounds: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Numbers of messages that a device sends and receives in each of these rounds."""
    return tuple(
        (len(schedule.out_edges(device, r)), len(schedule.in_neighbors(device, r))) for r in rounds
    )


def copies_of_devices(studied: StudiedScenario) -> tuple[tuple[int, int], ...]:
    """`out_copies` and `in_copies` of every device.

    Only rounds with an exchange are examined. Of a trace that repeats, only rounds are examined in
    which a contact of the device begins, since numbers of messages grow in no other round.
    """
    schedule = studied.schedule
    devices = range(schedule.num_devices)
    if studied.algorithm.keeps_edges:
        receivers = [possible_receivers(schedule, device) for device in devices]
        senders = Counter(receiver for peers in receivers for receiver in peers)
        return tuple((len(receivers[i]), senders[i]) for i in devices)
    exchanges = _exchanges_of_period(schedule)
    copies = []
    for device in devices:
        rounds = exchanges if exchanges is not None else _meetings(schedule, device)
        sent = max((len(schedule.out_edges(device, r)) for r in rounds), default=0)
        taken = max((len(schedule.in_neighbors(device, r)) for r in rounds), default=0)
        copies.append((sent, taken))
    return tuple(copies)


def _exchanges_of_period(schedule: Schedule) -> list[int] | None:
    """One round for each graph of a period in which devices exchange; None for a trace."""
    if isinstance(schedule, ContactTrace) and schedule.period is not None:
        return None
    if isinstance(schedule, SeveralExchanges):
        return rounds_of_period(schedule)
    period = schedule.period or _APERIODIC_GRAPHS * schedule.hold
    last = schedule.exchange_every - 1
    return [start + last for start in range(0, period, schedule.hold)]


def _meetings(schedule: Schedule, device: int) -> list[int]:
    """Rounds in which a contact of a device in a trace begins."""
    assert isinstance(schedule, ContactTrace)
    edges = [(device, peer) for peer in schedule.possible_receivers(device)]
    edges += [(peer, device) for peer in schedule.possible_senders(device)]
    return sorted({start for edge in edges for start in schedule.contacts[edge][::2]})


def rounds_of_period(schedule: Schedule) -> list[int]:
    """For each graph of a period, the rounds up to and including one exchange."""
    period = schedule.period or _APERIODIC_GRAPHS * schedule.hold
    starts = range(0, period, schedule.hold)
    return [r for start in starts for r in range(start, start + schedule.exchange_every)]
