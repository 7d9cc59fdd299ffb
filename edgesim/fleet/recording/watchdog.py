"""Ends a fleet that makes no progress, and names the waiting devices and their senders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from edgesim.errors import EdgesimError, device_label
from edgesim.fleet.transport.progress import Progress, Waiting

POLLS_PER_TIMEOUT = 20
NAMED_DEVICES = 8  # in the message


class StalledError(EdgesimError):
    """No device has ended a round for a long time."""


class WatchedFleet(Protocol):
    """A fleet that can be asked."""

    async def progress(self) -> Sequence[Progress]:
        """How far the devices of each host are."""
        ...

    async def waiting(self) -> Sequence[Waiting]:
        """Devices that wait for messages."""
        ...

    def absent(self) -> str:
        """Actors whose devices are not built, in words; empty if there are none."""
        ...


async def watch(fleet: WatchedFleet, timeout_s: float, names: Sequence[str] = ()) -> None:
    """Check the progress of a fleet until cancelled.

    Args:
        fleet: that has to make progress.
        timeout_s: seconds of this machine in which some device must end a round.
        names: of the devices, where they have some.

    Raises:
        StalledError: none did.
    """
    pause_s = timeout_s / POLLS_PER_TIMEOUT
    best: dict[int, int] = {}  # most rounds that each device had done
    idle_s = 0.0
    while True:
        start_s = monotonic()
        await asyncio.sleep(pause_s)
        woken_s = monotonic()
        parts = await fleet.progress()
        done: dict[int, int] = {}
        for part in parts:
            done |= part.rounds_by_device
        # If this process was stopped or its machine slept, that time does not count.
        idle_s += min(woken_s - start_s, 2 * pause_s) + monotonic() - woken_s
        # Rounds that are lost and done again are no progress; others may make some meanwhile.
        has_moved = any(rounds > best.get(device, -1) for device, rounds in done.items())
        best |= {device: max(rounds, best.get(device, -1)) for device, rounds in done.items()}
        if has_moved or any(part.full for part in parts):
            idle_s = 0.0
        elif idle_s > timeout_s:
            said = describe(await fleet.waiting(), timeout_s, names, fleet.absent())
            raise StalledError(said)


def describe(
    waiting: Sequence[Waiting], timeout_s: float, names: Sequence[str] = (), absent: str = ""
) -> str:
    """Waiting devices as text; first the devices that others wait for and that do not wait.

    Args:
        waiting: devices that do.
        timeout_s: for which nothing has happened.
        names: of the devices, where they have some.
        absent: actors whose devices are not built.
    """
    waiting_devices = {who.device for who in waiting}
    lines = [
        f"{device_label(who.device, names)} in round {who.round_index} waits for "
        + ", ".join(
            f"{device_label(sender, names)} (edge {sender} -> {receiver})"
            for sender, receiver in edges
        )
        for who in sorted(waiting, key=lambda who: (who.round_index, who.device))
        if (edges := who.edges)
    ]
    missed = sorted({sender for who in waiting for sender, _ in who.edges} - waiting_devices)
    if missed:
        labels = (device_label(device, names) for device in missed[:NAMED_DEVICES])
        others = ", ".join(label.removeprefix("device ") for label in labels)
        lines = [f"device {others}: computing, or away, and waited for", *lines]
    if absent:
        lines = [f"not built: {absent}", *lines]
    hidden = len(lines) - NAMED_DEVICES
    shown = "; ".join(lines[:NAMED_DEVICES]) or "no device waits for a message: all compute"
    more = f"; and {hidden} more" if hidden > 0 else ""
    return (
        f"no device has ended a round for {timeout_s:g} s (recovery.stall_timeout_s): "
        f"{shown}{more}; what was recorded is kept, `edgesim resume` goes on"
    )
