"""The mailbox of one device: takes every message once, whatever the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable

from edgesim.device import Arrival


class Mailbox:
    """Messages that have arrived and are not yet absorbed, by edge and sequence.

    Delivery is idempotent by (sender, sequence): transports may repeat and reorder.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], Arrival] = {}
        self._next_sequence: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, arrival: Arrival) -> bool:
        """Keep a message; False if it was here before."""
        message = arrival.message
        key = (message.sender, message.sequence)
        if key in self._waiting or message.sequence < self._next_sequence.get(message.sender, 0):
            return False
        self._waiting[key] = arrival
        return True

    def has_next_from(self, senders: Iterable[int]) -> bool:
        """Whether the next message, in sequence, of each of the senders is here."""
        return all((s, self._next_sequence.get(s, 0)) in self._waiting for s in senders)

    def take_next_from(self, senders: Iterable[int]) -> list[Arrival]:
        """Remove and return the next message of each of the senders, in their order.

        Raises:
            KeyError: one of them is not here; then all of them stay.
        """
        keys = [(sender, self._next_sequence.get(sender, 0)) for sender in senders]
        arrivals = [self._waiting[key] for key in keys]
        for sender, sequence in keys:
            del self._waiting[sender, sequence]
            self._next_sequence[sender] = sequence + 1
        return arrivals
