"""The seam between a device and its pace; lockstep.py and free.py are the two there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from edgesim.compression.wire import Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.mail import Announcement, Arrival, Envelope
from edgesim.device.membership import Edge
from edgesim.hardware.work import Work

PaceName: TypeAlias = Literal["lockstep", "free"]


class Pace(Protocol):
    """What one device does differently at its pace; it belongs to the device's `Participant`.

    A `Device` calls it in this order in each round: `degrees`, `spend`, `send`, `absorb`; if it
    `must_leave`, `leave`; then `end_round`.
    """

    @property
    def name(self) -> PaceName:
        """Name of the pace in a scenario."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether there is no round left to do."""
        ...

    @property
    def waits_for_mail(self) -> bool:
        """Whether the round under way can't end before something has arrived."""
        ...

    @property
    def listens_first(self) -> bool:
        """Whether it must be known what reaches the device before it can send."""
        ...

    @property
    def must_leave(self) -> bool:
        """Whether the device has to leave after the round that was absorbed."""
        ...

    @property
    def is_succeeded(self) -> bool:
        """Whether another device answers for this one from now on."""
        ...

    @property
    def gone(self) -> Literal["died", "left"] | None:
        """Why the device is not of the fleet any more, though it kept its model."""
        ...

    def expects(self, message: Message) -> bool:
        """Whether such a message can be due."""
        ...

    def announce(self, sent: Sequence[Envelope]) -> Sequence[Announcement]:
        """What other devices must know beside the messages just sent, without any bytes."""
        ...

    def degrees(self, work: Work) -> tuple[int, int]:
        """Messages that a round is to send and to absorb, as far as its work goes.

        Args:
            work: of its step.
        """
        ...

    def spend(self, model: MeteredModel) -> None:
        """Let the clock go on by the work of the step."""
        ...

    def send(self) -> list[Envelope]:
        """The messages of the round."""
        ...

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Mix in messages and let the clock go on to the end of the round."""
        ...

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Envelope]:
        """Leave for good, if that is possible now; returns the device's last messages.

        Args:
            next_sequences: of the messages that would be absorbed next, by edge.
        """
        ...

    def end_round(self) -> None:
        """The round is over and counted."""
        ...

    def state(self) -> dict[str, Any]:
        """What the pace knows between two rounds, as values that JSON can hold."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        ...
