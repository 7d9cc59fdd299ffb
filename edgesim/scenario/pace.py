"""What a pace means to the rest of a fleet; edgesim/device/pace has how a device acts at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PaceName = Literal["lockstep", "free"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceRules:
    """Properties of a pace.

    Attributes:
        waits_for_all: a device enters a round when it has absorbed all messages of the last one, so
            that all devices do the same rounds. One with an empty battery hands over before it
            leaves; otherwise its neighbours presume it dead when it is silent.
        goes_by_clock: devices act by their own clocks. They need profiles; churn and the end of
            training are in seconds of virtual time.
        steps_on: what a step moves unless the optimizer says otherwise: the numerator x, or the
            model z = x/u.
    """

    waits_for_all: bool
    goes_by_clock: bool
    steps_on: Literal["numerator", "model"]


PACES: dict[PaceName, PaceRules] = {
    "lockstep": PaceRules(waits_for_all=True, goes_by_clock=False, steps_on="numerator"),
    "free": PaceRules(waits_for_all=False, goes_by_clock=True, steps_on="model"),
}
