"""What a host says of itself to those who look on."""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.device.membership import Edge


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the devices of one host are.

    Attributes:
        num_devices: devices of the host.
        rounds_done: rounds completed, summed over its devices.
        slowest_round: fewest rounds that one of them has completed.
        loss: mean over its devices of the loss of their newest round, or NaN before the first.
        sent_bytes: bytes of all messages that they have encoded.
    """

    num_devices: int
    rounds_done: int
    slowest_round: int
    loss: float
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A device that waits for messages.

    Attributes:
        device: which one.
        round_index: its round.
        edges: sender and receiver of the messages that are not here.
    """

    device: int
    round_index: int
    edges: tuple[Edge, ...]
