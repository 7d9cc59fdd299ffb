"""Messages on their way, and the outbox that numbers, encodes and counts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from edgesim.compression.payload import Payload
from edgesim.compression.wire import ByteCounts, Kind, Message, encode
from edgesim.device.membership import Edge
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Stamp
from edgesim.results.columns import MessageRecord


@dataclass(frozen=True, slots=True)
class Origin:
    """A message and its encoding, in the process that encoded it."""

    message: Message
    data: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """An encoded message on its way.

    Attributes:
        edge: addresses that send and receive it.
        sequence: number of the message on its edge.
        data: the encoded message, whose bytes are counted.
        stamp: when it travels in virtual time; None where devices have no clock.
        to: device that gets the envelope: the addressed device, or its successor.
        origin: of the data; stays in the process that made the envelope.
    """

    edge: Edge
    sequence: int
    data: bytes
    stamp: Stamp | None
    to: int
    origin: Origin | None = field(default=None, repr=False, compare=False)

    @property
    def message(self) -> Message | None:
        """The message that the data was encoded from, where that is known without decoding.

        The data is then the very object that the encoder gave, so it can't have been damaged.
        """
        origin = self.origin
        return origin.message if origin is not None and origin.data is self.data else None

    def __reduce__(self) -> tuple[type[Envelope], tuple[Any, ...]]:
        """To another process goes only what is on the wire."""
        return Envelope, (self.edge, self.sequence, self.data, self.stamp, self.to)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has arrived, with the stamp of its envelope."""

    message: Message
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A lower bound on the arrival times of all further messages of an edge; at free pace.

    Attributes:
        edge: addresses that send and receive.
        next_sequence: number of the first message that the bound is for.
        earliest_s: no bit of this message or a later one reaches the receiver before; infinity if
            there will be no message.
    """

    edge: Edge
    next_sequence: int
    earliest_s: float


@dataclass(frozen=True, slots=True)
class LifeSign:
    """Statement of a device that may die to a possible sender; at free pace.

    A life sign stands for the acknowledgements of a link. It is not a message of the fleet and has
    no bytes.

    Attributes:
        edge: the device that speaks, and the one that is told.
        alive_until_s: the device does not die before; infinity if it never dies.
        has_died: it has died, at `alive_until_s`.
    """

    edge: Edge
    alive_until_s: float
    has_died: bool


Announcement: TypeAlias = TimeBound | LifeSign
"""What devices at free pace tell each other beside their messages; no bytes are counted."""


@dataclass(slots=True)
class Outbox:
    """Turns the messages of one device into envelopes.

    Attributes:
        device: whose outbox it is.
        algorithm: of the messages.
        meter: of the device; None where it has no clock.
        sent: bytes of the messages since the last `clear`.
        records: one for each message since the last `clear`.
        next_sequences: number of the next message, by edge on which there was one.
    """

    device: int
    algorithm: str
    meter: Meter[Any] | None
    sent: ByteCounts = field(default_factory=lambda: ByteCounts(0, 0, 0, 0))
    records: list[MessageRecord] = field(default_factory=list)
    next_sequences: dict[Edge, int] = field(default_factory=dict)

    def write(
        self,
        edge: Edge,
        round_index: int,
        kind: Kind,
        payload: Payload,
        *,
        weight: float = 0.0,
        push_weight: float = 0.0,
        notes: tuple[int, ...] = (),
        sent_in: int,
    ) -> Envelope:
        """Number, encode and count a message, and send it by the virtual radio.

        Args:
            edge: sender and receiver.
            round_index: round that the message belongs to.
            kind: of message.
            payload: what it carries.
            weight: share of the sender's mass that travels on the edge.
            push_weight: u of the sender.
            notes: of leave-taking.
            sent_in: round of the device in which it is sent, for the records.
        """
        sequence = self.next_sequences.get(edge, 0)
        message = Message(
            algorithm=self.algorithm,
            sender=edge[0],
            receiver=edge[1],
            sequence=sequence,
            round_index=round_index,
            weight=weight,
            push_weight=push_weight,
            payload=payload,
            kind=kind,
            notes=notes,
        )
        self.next_sequences[edge] = sequence + 1
        data, stamp = encode(message), None
        if self.meter is not None:
            stamp = self.meter.send(edge, len(data), sequence)
        self.sent += message.byte_counts
        self.records.append(
            MessageRecord(
                round=sent_in,
                device=self.device,
                sender=message.sender,
                receiver=message.receiver,
                kind=message.kind,
                bytes=len(data),
                retransmissions=stamp.lost_packets if stamp else None,
                retransmitted_bytes=stamp.lost_bytes if stamp else None,
                departure_time_s=stamp.start_s if stamp else None,
                sent_time_s=stamp.sent_s if stamp else None,
                arrival_time_s=stamp.arrival_s if stamp else None,
            )
        )
        return Envelope(edge, sequence, data, stamp, edge[1], Origin(message, data))

    def clear(self) -> None:
        """Begin to count anew."""
        self.sent, self.records = ByteCounts(0, 0, 0, 0), []
