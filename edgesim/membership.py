"""Who a device still exchanges messages with, as devices leave for good.

A device that leaves hands all that it holds to one of its out-neighbours, its heir, and says
farewell to the others that it may ever send to. It can't tell those who send to it: on a directed
graph there is no way back. Whatever they go on sending is forwarded to the heir, as mail is. To an
in-neighbour nothing changes, no mass is lost, and a ring of devices stays a ring.

Messages that are forwarded keep the address of the device that left. An edge is therefore a sender
and an address; a device answers to its own address and to those it inherited.

Symbols:
    t: round of the heir in which the handover is absorbed; the leaver's last round was t - 1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from edgesim.compression.wire import Message
from topologies import OutEdges, Schedule

Edge: TypeAlias = tuple[int, int]
"""Sender, and the address that it sends to."""

_ENDED = 2**32 - 1  # in the place of a sequence: nothing more comes on this edge


@dataclass(slots=True)
class Membership:
    """A device's view of the fleet.

    Attributes:
        index: of the device.
        schedule: which graph holds in which round, as if nobody had left.
    """

    index: int
    schedule: Schedule
    _inherited: dict[int, int] = field(default_factory=dict)
    _ended: set[Edge] = field(default_factory=set)

    @property
    def addresses(self) -> tuple[int, ...]:
        """The device's own address and those it inherited, increasing."""
        return tuple(sorted({self.index, *self._inherited}))

    def in_edges(self, round_index: int) -> list[Edge]:
        """Edges on which a message of a round has to be absorbed, in increasing order."""
        return [edge for address in self.addresses for edge in self._edges_to(address, round_index)]

    def out_edges(self, round_index: int) -> OutEdges:
        """Receivers of a round with their weights; nothing is sent to oneself."""
        own = self.addresses
        edges = self.schedule.out_edges(self.index, round_index)
        return tuple((receiver, weight) for receiver, weight in edges if receiver not in own)

    def expects(self, message: Message) -> bool:
        """Whether the schedule has such a message, or somebody who takes leave sends it."""
        senders = self.schedule.in_neighbors(message.receiver, message.round_index)
        return message.kind != "share" or message.sender in senders

    def take_note(self, message: Message, round_index: int) -> list[Edge]:
        """Learn from a message that was taken in.

        Returns:
            Edges on which a further message of the same round has to be waited for.
        """
        edge = message.sender, message.receiver
        if message.kind == "farewell":
            self._ended.add(edge)
        if message.kind != "handover":
            return []
        self._ended.add(edge)
        will = Will.from_notes(message.notes)
        for address in will.addresses:
            self._inherited[address] = round_index
        self._ended |= {passed for passed, sequence in will.sequences.items() if sequence is None}
        further = [
            passed for address in will.addresses for passed in self._edges_to(address, round_index)
        ]
        return [edge] * will.num_copies + further

    def heir(self, round_index: int) -> int | None:
        """The first receiver of a round, who could take over; None if there is none in it."""
        return next((receiver for receiver, _ in self.out_edges(round_index)), None)

    def will(self, num_copies: int, sequences: Mapping[Edge, int], round_index: int) -> Will:
        """What the heir must know.

        Args:
            num_copies: public copies that follow the handover.
            sequences: next sequence of each edge on which messages came.
            round_index: first round that the heir has to answer for.
        """
        passed: dict[Edge, int | None] = {**sequences, **dict.fromkeys(self._ended)}
        # What this device sent to an address that it inherited has all been absorbed by itself.
        passed |= {(self.index, a): None for a, t in self._inherited.items() if t < round_index}
        return Will(num_copies, self.addresses, passed)

    def _edges_to(self, address: int, round_index: int) -> Iterator[Edge]:
        for sender in self.schedule.in_neighbors(address, round_index):
            # A device's own message to an address is out when it inherits it, and is the last.
            is_own = sender == self.index
            if is_own and self._inherited.get(address) != round_index:
                continue
            if (sender, address) not in self._ended:
                yield sender, address


@dataclass(frozen=True, slots=True)
class Will:
    """What a handover says beside x and u, as notes of its message.

    Attributes:
        num_copies: messages with public copies that follow on the same edge.
        addresses: the leaver's, which the heir answers to from now on.
        sequences: next sequence by edge; None where nothing more comes. Edges that are absent
            begin at 0.
    """

    num_copies: int
    addresses: tuple[int, ...]
    sequences: Mapping[Edge, int | None]

    def to_notes(self) -> tuple[int, ...]:
        """The same as whole numbers: copies, addresses with their number, then edges."""
        notes = [self.num_copies, len(self.addresses), *self.addresses]
        for (sender, address), sequence in sorted(self.sequences.items()):
            notes += [sender, address, _ENDED if sequence is None else sequence]
        return tuple(notes)

    @classmethod
    def from_notes(cls, notes: Sequence[int]) -> Will:
        """Read a will back; it was checked with `is_will`."""
        num_copies, num_addresses, *rest = notes
        edges = rest[num_addresses:]
        return cls(
            num_copies,
            tuple(rest[:num_addresses]),
            {
                (edges[at], edges[at + 1]): None if edges[at + 2] == _ENDED else edges[at + 2]
                for at in range(0, len(edges), 3)
            },
        )


def is_will(notes: Sequence[int]) -> bool:
    """Whether notes can be a will: nothing that comes from a network is trusted."""
    return len(notes) >= 2 and len(notes) - 2 >= notes[1] and (len(notes) - 2 - notes[1]) % 3 == 0
