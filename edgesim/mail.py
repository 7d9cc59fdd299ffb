"""Messages on their way, and the outbox that numbers, encodes and counts them."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgesim.compression.wire import ByteCounts, Message, encode
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Stamp
from edgesim.membership import Edge
from edgesim.records import MessageRecord


@dataclass(frozen=True, slots=True)
class Letter:
    """An encoded message on its way.

    Attributes:
        sender: address that sends it.
        receiver: device that it is brought to: of its address, or who took that one's place.
        sequence: its place on its edge.
        data: all that the message weighs on a real network.
        stamp: when it travels in virtual time; None where devices have no clock.
    """

    sender: int
    receiver: int
    sequence: int
    data: bytes
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has arrived, and when; the stamp as of its letter."""

    message: Message
    stamp: Stamp | None


@dataclass(slots=True)
class Outbox:
    """Turns the messages of one device into letters.

    Attributes:
        device: whose outbox it is.
        meter: of the device; None where it has no clock.
        sent: bytes of the messages since the last `clear`.
        records: one for each of these.
        next_sequences: number of the next message, by edge on which there was one.
    """

    device: int
    meter: Meter | None
    sent: ByteCounts = field(default_factory=lambda: ByteCounts(0, 0, 0, 0))
    records: list[MessageRecord] = field(default_factory=list)
    next_sequences: dict[Edge, int] = field(default_factory=dict)

    def next_sequence(self, edge: Edge) -> int:
        """Number of the next message on an edge."""
        return self.next_sequences.get(edge, 0)

    def post(self, message: Message, round_index: int) -> Letter:
        """Put a message on the air.

        Args:
            message: with the next sequence of its edge.
            round_index: round of the device in which it is sent, for the records.
        """
        edge, sequence = (message.sender, message.receiver), message.sequence
        assert sequence == self.next_sequence(edge), "messages of an edge are numbered"
        self.next_sequences[edge] = sequence + 1
        data, stamp = encode(message), None
        if self.meter is not None:
            stamp = self.meter.send(edge, len(data), sequence)
        self.sent += message.byte_counts
        self.records.append(
            MessageRecord(
                round=round_index,
                device=self.device,
                sender=message.sender,
                receiver=message.receiver,
                kind=message.kind,
                bytes=len(data),
                retransmissions=stamp.lost_packets if stamp else None,
                retransmitted_bytes=stamp.lost_bytes if stamp else None,
                departure_time_s=stamp.start_s if stamp else None,
                arrival_time_s=stamp.arrival_s if stamp else None,
            )
        )
        return Letter(*edge, sequence, data, stamp)

    def clear(self) -> None:
        """Begin to count anew."""
        self.sent, self.records = ByteCounts(0, 0, 0, 0), []
