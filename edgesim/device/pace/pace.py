"""What differs between the paces of a device; lockstep.py and free.py implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from edgesim.compression.wire import Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.mail import Announcement, Arrival, Envelope
from edgesim.device.membership import Edge
from edgesim.hardware.work import Work
from edgesim.scenario.pace import PaceName


class Pace(Protocol):
    """The part of a device that differs between the paces.

    It belongs to the `Participant` of the device.

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
        """Whether the current round has to wait for messages."""
        ...

    @property
    def listens_first(self) -> bool:
        """Whether the device must know all arrived messages before it can send."""
        ...

    @property
    def must_leave(self) -> bool:
        """Whether the device has to leave after the round that was absorbed."""
        ...

    @property
    def is_succeeded(self) -> bool:
        """Whether a successor has taken the place of this device."""
        ...

    @property
    def gone(self) -> Literal["died", "left"] | None:
        """Why the device no longer takes part, if it kept its model; else None."""
        ...

    def expects(self, message: Message) -> bool:
        """Whether such a message can arrive at this device."""
        ...

    def announce(self, sent: Sequence[Envelope]) -> Sequence[Announcement]:
        """Announcements to other devices that go with the sent messages; they have no bytes."""
        ...

    def degrees(self, work: Work) -> tuple[int, int]:
        """Numbers of sent and absorbed messages whose work is part of the step.

        Args:
            work: of its step.
        """
        ...

    def spend(self, model: MeteredModel) -> None:
        """Advance the clock by the time of the step."""
        ...

    def stay_away(self) -> None:
        """Do nothing in a round in which the device is absent."""
        ...

    def send(self) -> list[Envelope]:
        """The messages of the round."""
        ...

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Absorb messages and advance the clock to the end of the round."""
        ...

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Envelope]:
        """Leave for good, if there is a successor; returns the device's last messages.

        Args:
            next_sequences: of the messages that would be absorbed next, by edge.
        """
        ...

    def end_round(self) -> None:
        """End the round, after its costs were counted."""
        ...

    def state(self) -> dict[str, Any]:
        """State of the pace between two rounds, as values that JSON can hold."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state` returned."""
        ...
