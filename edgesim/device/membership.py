"""Edges that a device serves: its own and those of the leavers that it succeeds.

A leaver hands all its state to one of its out-neighbours, its successor. The successor takes the
leaver's place on every edge: messages to the leaver are forwarded to the successor, and the
successor sends on the leaver's edges in the leaver's name. The two are one node from then on. No
other device has to know; on a directed graph most devices could not be told. No mass is lost, and a
strongly connected graph stays so.

A device may therefore have several addresses: its own number and those that it inherited. An edge
is a pair of addresses.

Symbols:
    t: round of the successor in which the handover is absorbed; the leaver's last step was in t - 1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from edgesim.compression.wire import Message
from topologies import Schedule, exchange_of

Edge: TypeAlias = tuple[int, int]
"""An edge: address of the sender, address of the receiver."""

_NOTES_OF_AN_EDGE = 3
_NOTES_OF_A_COPY = 2


@dataclass(frozen=True, slots=True)
class WeightedEdge:
    """An edge on which a device sends in some round.

    Attributes:
        sender: one of the device's addresses.
        receiver: an address of another device.
        weight: share of the device's mass that travels on it.
    """

    sender: int
    receiver: int
    weight: float


@dataclass(slots=True)
class Membership:
    """The edges of one device.

    Attributes:
        index: of the device.
        schedule: which graph holds in which round, as if nobody had left.
    """

    index: int
    schedule: Schedule
    _inherited: set[int] = field(default_factory=set)

    @property
    def addresses(self) -> tuple[int, ...]:
        """The device's own address and those it inherited, increasing."""
        return tuple(sorted({self.index, *self._inherited}))

    def inherit(self, addresses: Iterable[int]) -> None:
        """Take over these addresses."""
        self._inherited.update(set(addresses) - {self.index})

    def in_edges(self, round_index: int) -> list[Edge]:
        """Edges on which a message of a round has to be absorbed, in increasing order."""
        return self._edges_to(self.addresses, round_index)

    def possible_in_edges(self) -> list[Edge]:
        """Edges on which a message may have to be absorbed in any round.

        They include edges from this device to addresses that it inherited: it sent such messages
        before it knew of the leave.
        """
        own = self.addresses
        return [
            (sender, address)
            for address in own
            for sender in self.schedule.possible_senders(address)
            if sender not in own or sender == self.index != address
        ]

    def out_edges(self, round_index: int) -> list[WeightedEdge]:
        """Edges on which messages of a round are sent; nothing is sent to oneself.

        If the device has k addresses, they share its mass, so each sends with 1/k of its weight.
        """
        own = self.addresses
        return [
            WeightedEdge(address, receiver, weight / len(own))
            for address in own
            for receiver, weight in self.schedule.out_edges(address, round_index)
            if receiver not in own
        ]

    def expects(self, message: Message) -> bool:
        """Whether such a message can exist: by the schedule, or as a last message of a leaver.

        Messages come from a network, so addresses and notes are checked.
        """
        named = {message.sender, message.receiver}
        if message.kind == "handover":
            if not is_handover_notes(message.notes):
                return False
            named.update(HandoverNotes.from_numbers(message.notes).addresses)
        elif message.kind == "copy":
            if len(message.notes) != _NOTES_OF_A_COPY:
                return False
            named.update(message.notes)
        if max(named) >= self.schedule.num_devices:
            return False
        senders = self.schedule.in_neighbors(message.receiver, message.round_index)
        return message.kind != "share" or message.sender in senders

    def take_note(self, message: Message, round_index: int) -> list[Edge]:
        """Update the membership by a message that was absorbed.

        Returns:
            Edges on which a further message of the same round must still arrive.
        """
        if message.kind != "handover":
            return []
        notes = HandoverNotes.from_numbers(message.notes)
        self.inherit(notes.addresses)
        # Also from this device itself: its messages to the leaver were sent before it knew.
        mail = self._edges_to(notes.addresses, round_index, except_from=notes.addresses)
        return [(message.sender, message.receiver)] * notes.num_copies + mail

    def _edges_to(
        self,
        addresses: Sequence[int],
        round_index: int,
        *,
        except_from: Sequence[int] | None = None,
    ) -> list[Edge]:
        excluded = self.addresses if except_from is None else except_from
        return [
            (sender, address)
            for address in addresses
            for sender in self.schedule.in_neighbors(address, round_index)
            if sender not in excluded
        ]


def has_turn_to_leave(schedule: Schedule, device: int, round_index: int) -> bool:
    """Whether a device may leave in a round; at most one device may leave in each round.

    Of two leavers in one round each could be the successor of the other. With n devices, each has
    its turn in one of n exchanges. No device leaves in the first exchange: its cost is not known
    yet.
    """
    exchange, is_now = exchange_of(schedule.exchange_every, round_index)
    return is_now and exchange > 0 and exchange % schedule.num_devices == device


def turns_to_leave(schedule: Schedule, device: int, num_rounds: int) -> range:
    """The rounds of a run in which a device may leave (see `has_turn_to_leave`)."""
    every, n = schedule.exchange_every, schedule.num_devices
    first_exchange = device or n  # no device leaves in the first exchange
    return range(first_exchange * every + every - 1, num_rounds, n * every)


@dataclass(frozen=True, slots=True)
class HandoverNotes:
    """Content of a handover beside x and u, as notes of its message.

    Attributes:
        num_copies: messages with public copies that follow on the same edge.
        addresses: the leaver's, which the successor answers to from now on.
        sequences: next sequence by edge, of messages to and from these addresses. Edges that are
            not listed begin at 0.
    """

    num_copies: int
    addresses: tuple[int, ...]
    sequences: Mapping[Edge, int]

    def to_numbers(self) -> tuple[int, ...]:
        """Encode as whole numbers: number of copies, number of addresses, addresses, then edges."""
        numbers = [self.num_copies, len(self.addresses), *self.addresses]
        for (sender, receiver), sequence in sorted(self.sequences.items()):
            numbers += [sender, receiver, sequence]
        return tuple(numbers)

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> HandoverNotes:
        """Read notes back; they were checked with `is_handover_notes`."""
        num_copies, num_addresses, *rest = numbers
        edges = rest[num_addresses:]
        return cls(
            num_copies,
            tuple(rest[:num_addresses]),
            {
                (edges[at], edges[at + 1]): edges[at + 2]
                for at in range(0, len(edges), _NOTES_OF_AN_EDGE)
            },
        )


def is_handover_notes(notes: Sequence[int]) -> bool:
    """Whether numbers from the network are valid notes of a handover."""
    if len(notes) < 2 or len(notes) - 2 < notes[1]:
        return False
    return (len(notes) - 2 - notes[1]) % _NOTES_OF_AN_EDGE == 0
