"""What a host knows of the world outside: a network that brings envelopes to devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edgesim.device.mail import Announcement, Envelope
from edgesim.device.membership import Edge
from edgesim.errors import EdgesimError


class PeerUnavailableError(EdgesimError):
    """Nobody answers for a device at the moment; it may come back, so try again."""


class EnvelopesLostError(EdgesimError):
    """A device asks for envelopes that their sender no longer has."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A receiver's answer to an envelope.

    Attributes:
        accepted: it was readable and due, and is there; False asks for it again.
        covered: the receiver will never ask for envelopes of this edge below that sequence.
    """

    accepted: bool
    covered: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A device that was restarted, or has taken the place of another, asks for envelopes again.

    Attributes:
        edge: on which they were sent.
        next_sequence: first envelope that it lacks.
        holder: device that is asked.
        asker: device that asks, where they are brought to.
    """

    edge: Edge
    next_sequence: int
    holder: int
    asker: int


class Network(Protocol):
    """Carries envelopes and requests between the hosts of a fleet.

    A `Host` is one, of its own devices. It may delay, repeat, reorder and damage envelopes; it says
    so where it can't reach somebody.
    """

    async def deliver(self, envelope: Envelope) -> Acknowledgement:
        """Bring an envelope to the device `envelope.receiver`.

        Raises:
            PeerUnavailableError: it may or may not have arrived.
        """
        ...

    async def take_announcement(self, announcement: Announcement) -> None:
        """Bring a time bound or a life sign to the device at the end of its edge.

        Raises:
            PeerUnavailableError: it may or may not have arrived.
        """
        ...

    async def answer(self, request: Request) -> None:
        """Bring a request to the device `request.holder`.

        Raises:
            PeerUnavailableError: it may or may not have arrived.
            EnvelopesLostError: what is asked for is not there any more.
        """
        ...
