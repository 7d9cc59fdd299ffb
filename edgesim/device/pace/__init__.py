"""Paces: when a device sends, what it waits for, which messages it absorbs and how it leaves."""

from edgesim.device.pace.free import Free
from edgesim.device.pace.lockstep import Lockstep
from edgesim.device.pace.pace import Pace

__all__ = ["Free", "Lockstep", "Pace"]
