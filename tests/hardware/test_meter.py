"""What a device's rounds take, and whether its battery lasts, against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from virtual_fleets import link, profile

from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Hardware, Timeline
from edgesim.hardware.work import Work

SECOND = Work(macs_fp32=10**9)  # of `profile()`: 3 J of active power
ROUND_J = 3.0 + 10**6 * 1e-7  # of computing, and of sending 1 MB; nothing is waited for


def meter(battery_j: float | None, worst_loss: float = 0.0) -> Meter:
    device = Hardware(
        profile=replace(profile(), battery_j=battery_j),
        links={1: link()},
        is_half_duplex=False,
        worst_loss=worst_loss,
    )
    return Meter(Timeline(device, 1, 0), None)


def after_a_round(battery_j: float | None, worst_loss: float = 0.0) -> Meter:
    one = meter(battery_j, worst_loss)
    one.step(SECOND, 0)
    one.send((0, 1), 10**6, 0)
    one.end_round([], 0)
    return one


@pytest.mark.parametrize("worst_loss", [0.0, 0.5, 0.75])
def test_a_battery_is_kept_for_last_messages_and_the_packets_of_them_that_get_lost(worst_loss):
    """With loss p, each packet is sent 1 / (1 - p) times in the mean; 1e-7 J a byte."""
    last_j = 2 * 10**7 * 1e-7 / (1 - worst_loss)
    need_j = ROUND_J + 2 * ROUND_J + last_j  # this round, two more like it, the messages
    for battery_j, is_enough in ((need_j + 1e-6, True), (need_j - 1e-6, False)):
        one = after_a_round(battery_j, worst_loss)
        assert one.lasts(2, 0, last_bytes=2 * 10**7) is is_enough


def test_a_device_that_is_plugged_in_lasts_for_ever():
    assert after_a_round(None).lasts(10**9, 10**9, last_bytes=10**18)
