"""Numbers of messages that a device sends and receives, over the rounds of a schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgesim.assembly.studied_scenario import StudiedScenario
from topologies import (
    ContactTrace,
    Intermittent,
    Schedule,
    SeveralExchanges,
    with_everyone,
)

_APERIODIC_GRAPHS = 32  # graphs that count as the period of a schedule without one


class Edges(NamedTuple):
    """Numbers of edges on which the memory of a device depends.

    Attributes:
        sent: most messages that it sends in a round.
        taken: most messages that it absorbs in a round.
        receivers: out-edges that its algorithm keeps memory for: all receivers of the run if it
            keeps memory for each edge, otherwise `sent`.
        senders: in-edges, counted in the same way.
    """

    sent: int
    taken: int
    receivers: int
    senders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Messages of one device.

    Attributes:
        degrees: numbers of messages sent and received in each of some rounds in which it is there.
        num_rounds: these, and those between in which it is absent.
        edges: on which its memory depends.
    """

    degrees: tuple[tuple[int, int], ...]
    num_rounds: int
    edges: Edges

    @property
    def messages_sent(self) -> float:
        """Mean of a round."""
        return sum(out for out, _ in self.degrees) / self.num_rounds

    @property
    def messages_received(self) -> float:
        """Mean of a round."""
        return sum(taken for _, taken in self.degrees) / self.num_rounds


def neighbours_of_devices(
    studied: StudiedScenario, rounds: Sequence[int]
) -> tuple[Neighbours, ...]:
    """Neighbours of every device of a scenario, in these rounds."""
    schedule = studied.schedule
    return tuple(
        Neighbours(
            degrees=tuple(
                (len(schedule.out_edges(device, r)), len(schedule.in_neighbors(device, r)))
                for r in rounds
                if schedule.presence.is_present(device, r)
            ),
            num_rounds=len(rounds),
            edges=edges,
        )
        for device, edges in enumerate(edges_of_devices(studied))
    )


def edges_of_devices(studied: StudiedScenario) -> tuple[Edges, ...]:
    """Edges of every device, with all devices present.

    Of a schedule without a period as many graphs are examined as `rounds_of_period` has. Only
    rounds with an exchange are examined; of a trace all rounds in which a contact of the device
    begins, since numbers of messages grow in no other round.
    """
    schedule = with_everyone(studied.schedule)  # devices that join late have messages, too
    if isinstance(schedule, Intermittent) and isinstance(schedule.schedule, ContactTrace):
        schedule = schedule.schedule
    devices = range(schedule.num_devices)
    exchanges = _exchanges_of_period(schedule)
    messages = []
    for device in devices:
        rounds = exchanges if exchanges is not None else _meetings(schedule, device)
        sent = max((len(schedule.out_edges(device, r)) for r in rounds), default=0)
        taken = max((len(schedule.in_neighbors(device, r)) for r in rounds), default=0)
        messages.append((sent, taken))
    if not studied.algorithm.keeps_edges:
        return tuple(Edges(*both, *both) for both in messages)
    receivers = [schedule.possible_receivers(device) for device in devices]
    senders = Counter(receiver for peers in receivers for receiver in peers)
    return tuple(Edges(*messages[i], len(receivers[i]), senders[i]) for i in devices)


def _exchanges_of_period(schedule: Schedule) -> list[int] | None:
    """One round for each graph of a period in which devices exchange; None for a trace."""
    if isinstance(schedule, ContactTrace):
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


def rounds_over(schedule: Schedule, num_rounds: int, most: int) -> list[int]:
    """Rounds up to and including an exchange, from about `most` rounds spread over a training."""
    every = schedule.exchange_every
    stride = max(1, num_rounds // most) * every
    starts = range(0, max(num_rounds - every, 0) + 1, stride)
    return [r for start in starts for r in range(start, start + every)]


def rounds_of_period(schedule: Schedule) -> list[int]:
    """For each graph of a period, the rounds up to and including one exchange."""
    period = schedule.period or _APERIODIC_GRAPHS * schedule.hold
    starts = range(0, period, schedule.hold)
    return [r for start in starts for r in range(start, start + schedule.exchange_every)]
