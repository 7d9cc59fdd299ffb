"""Whom a device at free pace presumes dead: who has been silent for a time-out of its own clock.

A device whose battery is empty dies at d, between two of its rounds. Nobody can know that before.
A neighbour with its clock at t presumes it dead once (d + time-out, dead device) <= (t, neighbour),
pairs compared in order: by then link-level acknowledgements have been missing for so long. It looks
when it absorbs, and sends nothing more to the dead one from its next round on.

On real machines the neighbour must know at t whether the other was alive at t less the time-out.
So each device that may die says to its possible senders up to when it is alive for sure: up to the
clock that it has reached, or for ever as soon as its last round is under way; or when it has died.
These life signs are the emulator's. On a directed graph there is no way for the fleet's own
messages, and a link layer's acknowledgements are not counted as bytes in either case.

Nobody waits for ever. A device that waits with its clock at t has said that it is alive until t:
before it waits, as with time bounds (time_bounds.py). Among devices that all wait, the one with the
least pair (t, id) therefore knows of all others that they were alive at t, and does not wait for a
life sign, whatever the time-out is. Of one that has ended or died it was told so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgesim.device.mail import LifeSign
from edgesim.device.membership import Edge


@dataclass(slots=True)
class _Life:
    """What is known of one receiver."""

    alive_until_s: float = 0.0
    has_died: bool = False


class LifeSigns:
    """What one device was told of its receivers that may die. Repeats and reordering do no harm.

    Args:
        device: that was told.
        receivers: devices that it may send to and that may die.
        timeout_s: how long one is silent before it is presumed dead.
    """

    def __init__(self, device: int, receivers: Iterable[int], timeout_s: float) -> None:
        self._device = device
        self._timeout_s = timeout_s
        self._lives = {receiver: _Life() for receiver in receivers}

    @property
    def edges(self) -> list[Edge]:
        """From each of those receivers to the device."""
        return [(receiver, self._device) for receiver in self._lives]

    def take(self, sign: LifeSign) -> bool:
        """Keep a life sign; False if it says nothing new."""
        life = self._lives[sign.edge[0]]
        if life.has_died or not (sign.has_died or sign.alive_until_s > life.alive_until_s):
            return False
        life.alive_until_s, life.has_died = sign.alive_until_s, sign.has_died
        return True

    def unknown(self, now_s: float) -> list[Edge]:
        """Edges of those of whom it is not known whether they are to be presumed dead now."""
        return [
            (receiver, self._device)
            for receiver, life in self._lives.items()
            if not life.has_died and self._is_silent(receiver, life, now_s)
        ]

    def presumed_dead(self, now_s: float) -> list[int]:
        """Receivers that are presumed dead now; follows an empty `unknown`."""
        return [
            receiver
            for receiver, life in self._lives.items()
            if life.has_died and self._is_silent(receiver, life, now_s)
        ]

    def _is_silent(self, receiver: int, life: _Life, now_s: float) -> bool:
        """Whether nothing is known of a receiver's life for the time-out before now."""
        return (life.alive_until_s + self._timeout_s, receiver) <= (now_s, self._device)
