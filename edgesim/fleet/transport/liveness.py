"""Life signs: at free pace a device presumes a receiver dead after a time-out without a life sign.

A device with an empty battery dies at time d, between two of its rounds. No other device can know
this before. A neighbour whose clock shows t presumes it dead once (d + time-out, id of the dead
device) <= (t, id of the neighbour); pairs are compared lexicographically. This models a link whose
acknowledgements have been missing for the time-out. The neighbour checks this when it absorbs, and
from its next round on sends nothing to the dead device.

In the emulation the neighbour must know at t whether the device was alive at t minus the time-out.
So each device that may die sends life signs to its possible senders: the virtual time until which
it is certainly alive (the time of its clock; infinity once its last round has begun), or the time
of its death. Life signs belong to the emulator, not to the fleet: a directed graph may have no edge
for such messages, and acknowledgements of a link are not counted as bytes.

There is no deadlock. Before a device waits at time t, it has sent a life sign for t, as with time
bounds (time_bounds.py). If several devices wait, the one with the least pair (t, id) knows that all
others are alive at t, so it does not wait for a life sign, whatever the time-out is. Devices that
have ended or died have sent that as well.
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
    """Life signs that one device has received; they may be repeated and reordered.

    Args:
        device: that was told.
        receivers: devices that it may send to and that may die.
        timeout_s: virtual seconds without a life sign after which a receiver is presumed dead.
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
        """Keep a life sign; return False if it is not new."""
        life = self._lives[sign.edge[0]]
        if life.has_died or not (sign.has_died or sign.alive_until_s > life.alive_until_s):
            return False
        life.alive_until_s, life.has_died = sign.alive_until_s, sign.has_died
        return True

    def unknown(self, now_s: float) -> list[Edge]:
        """Edges of receivers whose life signs do not yet say whether to presume them dead."""
        return [
            (receiver, self._device)
            for receiver, life in self._lives.items()
            if not life.has_died and self._is_silent(receiver, life, now_s)
        ]

    def presumed_dead(self, now_s: float) -> list[int]:
        """Receivers that are presumed dead now; to be called when `unknown` is empty."""
        return [
            receiver
            for receiver, life in self._lives.items()
            if life.has_died and self._is_silent(receiver, life, now_s)
        ]

    def _is_silent(self, receiver: int, life: _Life, now_s: float) -> bool:
        """Whether nothing is known of a receiver's life for the time-out before now."""
        return (life.alive_until_s + self._timeout_s, receiver) <= (now_s, self._device)
