"""Progress of a host, for the monitor and the watchdog."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:  # a display is there before torch is loaded
    from edgesim.device.membership import Edge

End: TypeAlias = Literal["finished", "left", "died"]
"""How a device ended: its rounds are done, its stay or its energy is over, its battery is empty."""


class DeviceProgress(NamedTuple):
    """How far one device is. Fields have the names of columns (results/columns.py).

    It is a tuple because thousands of them are pickled every few seconds.

    None stands for what the device does not have: a clock, a battery, ages of messages.

    Attributes:
        device: which one.
        rounds_done: rounds that it has completed.
        end: how it ended; None while it trains.
        waits_for: devices from which it waits for something, increasing.
        mailbox_messages: messages that have come and are not absorbed.
        loss: of the newest round with a step; NaN before the first.
        push_weight: after the newest round; NaN before the first.
        virtual_time_s: its clock after the newest round.
        charge_left_j: of its battery after the newest round.
        staleness_s: mean age of the messages absorbed in the newest round; NaN without any.
        sent_bytes: of all rounds.
        received_bytes: of all rounds.
        energy_j: of all rounds.
    """

    device: int
    rounds_done: int
    end: End | None = None
    waits_for: tuple[int, ...] = ()
    mailbox_messages: int = 0
    loss: float = nan
    push_weight: float = nan
    virtual_time_s: float | None = None
    charge_left_j: float | None = None
    staleness_s: float | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    energy_j: float | None = None

    @property
    def awaited_messages(self) -> int:
        """Devices from which it waits for something."""
        return len(self.waits_for)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the devices of one host are.

    Attributes:
        num_rounds: of each device.
        devices: of the host, without those that are being restored.
        absent: all devices of the host while it does not answer; what it said last stands beside.
        full: what has no space left, while the host waits for space to write; None if it does not.
    """

    num_rounds: int
    devices: tuple[DeviceProgress, ...]
    absent: tuple[int, ...] = ()
    full: str | None = None

    @property
    def rounds_by_device(self) -> dict[int, int]:
        """Rounds of each device that need not be waited for: one that has ended owes none."""
        return {
            one.device: one.rounds_done if one.end is None else self.num_rounds
            for one in self.devices
        }

    @property
    def rounds_done(self) -> int:
        """Their sum."""
        return sum(self.rounds_by_device.values())


@dataclass(frozen=True, slots=True)
class Waiting:
    """A device that waits for messages.

    Attributes:
        device: which one.
        round_index: its round.
        edges: sender and receiver of the missing messages.
    """

    device: int
    round_index: int
    edges: tuple[Edge, ...]
