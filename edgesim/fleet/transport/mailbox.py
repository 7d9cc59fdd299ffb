"""The mailbox of one device: keeps each message once, in any order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgesim.device.mail import Arrival
from edgesim.device.membership import Edge

WINDOW = 8  # messages of one edge that may wait; a sender that is further ahead has to wait


class Mailbox:
    """Messages that have arrived and are not yet absorbed, by edge and sequence.

    Delivery is idempotent by (edge, sequence): transports may repeat and reorder.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[Edge, int], Arrival] = {}
        self._next_sequence: dict[Edge, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, edge: Edge, sequence: int) -> bool:
        """Whether there is room for a message: it is in the window of its edge, or a repetition.

        There is always room for the message that the device waits for, so there is no deadlock.
        """
        return sequence < self._next_sequence.get(edge, 0) + WINDOW

    def put(self, arrival: Arrival) -> bool:
        """Keep a message; return False if it is a repetition."""
        message = arrival.message
        edge = message.sender, message.receiver
        key = edge, message.sequence
        if key in self._waiting or message.sequence < self._next_sequence.get(edge, 0):
            return False
        self._waiting[key] = arrival
        return True

    def has_next_of(self, edges: Iterable[Edge]) -> bool:
        """Whether the next message of each edge has arrived; the edges are distinct."""
        return all((edge, self._next_sequence.get(edge, 0)) in self._waiting for edge in edges)

    def take_next_of(self, edges: Iterable[Edge]) -> list[Arrival]:
        """Remove and return the next message of each edge, in their order.

        Raises:
            KeyError: one of them is not here; then all of them stay.
        """
        keys = [(edge, self._next_sequence.get(edge, 0)) for edge in edges]
        arrivals = [self._waiting[key] for key in keys]
        for edge, sequence in keys:
            del self._waiting[edge, sequence]
            self._next_sequence[edge] = sequence + 1
        return arrivals

    @property
    def next_sequences(self) -> Mapping[Edge, int]:
        """Next sequence by edge, for the edges on which messages were taken."""
        return self._next_sequence

    def take_over(self, next_sequences: Mapping[Edge, int]) -> None:
        """Continue another mailbox: skip the messages that were taken from it."""
        for edge, sequence in next_sequences.items():
            self._next_sequence[edge] = sequence
            for early in [key for key in self._waiting if key[0] == edge and key[1] < sequence]:
                del self._waiting[early]

    def empty(self) -> list[Arrival]:
        """Remove and return everything, in the order of edges and sequences."""
        arrivals = [self._waiting[key] for key in sorted(self._waiting)]
        self._waiting.clear()
        return arrivals
