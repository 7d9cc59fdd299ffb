"""The network, by which a host sends envelopes and requests to devices of other hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edgesim.device.mail import Announcement, Envelope
from edgesim.device.membership import Edge
from edgesim.errors import EdgesimError


class PeerUnavailableError(EdgesimError):
    """The host of a device does not answer at the moment; try again later."""


class EnvelopesLostError(EdgesimError):
    """A device asks for envelopes that their sender no longer has."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A receiver's answer to an envelope.

    Attributes:
        accepted: whether the envelope was valid and is kept; if not, it must be sent again.
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
        asker: device that asks and gets the envelopes.
    """

    edge: Edge
    next_sequence: int
    holder: int
    asker: int


class Network(Protocol):
    """Carries envelopes and requests between the hosts of a fleet.

    A `Host` is itself a network, for its own devices. A network may delay, repeat, reorder and
    damage envelopes. If a device cannot be reached, it raises an error.
    """

    async def deliver(self, envelope: Envelope) -> Acknowledgement:
        """Bring an envelope to the device `envelope.to`.

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
            EnvelopesLostError: the requested envelopes are no longer kept.
        """
        ...
