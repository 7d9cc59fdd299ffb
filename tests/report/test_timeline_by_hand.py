"""The timeline's spans and windows can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd
import pytest
from hand_made_runs import waiting_fleet
from small_fleets import small_scenario, write_scenario

from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.report.activity import (
    _awake_parts,
    _parts_of_round,
    away_between,
    longest_window_s,
    windows,
)
from edgesim.scenario import load_scenario

AWAY = [("asleep", 1.0, 3.0), ("absent", 5.0, 6.0)]


def test_what_a_device_does_while_it_is_away_waits():
    assert list(_awake_parts(AWAY, 0.0, 10.0)) == [(0.0, 1.0), (3.0, 5.0), (6.0, 10.0)]
    assert list(_awake_parts(AWAY, 2.0, 5.5)) == [(3.0, 5.0)]
    assert list(_awake_parts(AWAY, 1.0, 3.0)) == []
    assert list(_awake_parts(AWAY, 3.0, 5.0)) == [(3.0, 5.0)]
    assert list(_awake_parts(AWAY, 5.0, 4.0)) == []


def test_a_round_is_a_step_then_an_absence_then_a_wait():
    """Of 10 s it computes 2, waits 3 and is away 5, of which its clock has 2 s of sleep."""
    row = pd.Series({"start_s": 0.0, "end_s": 10.0, "compute_s": 2.0, "wait_s": 3.0, "away_s": 5.0})
    sleep = DutyCycle(period_s=20.0, awake_s=18.0, offset_s=3.0)  # it sleeps from 1 to 3
    assert _parts_of_round(row, sleep, "absent") == [
        ("computing", 0.0, 4.0),
        ("absent", 4.0, 7.0),
        ("waiting", 7.0, 10.0),
    ]
    assert _parts_of_round(row, ALWAYS_AWAKE, "absent") == [
        ("computing", 0.0, 2.0),
        ("absent", 2.0, 7.0),
        ("waiting", 7.0, 10.0),
    ]
    assert _parts_of_round(row, sleep, None) == [("computing", 0.0, 4.0), ("waiting", 4.0, 10.0)]
    assert _parts_of_round(row.replace(3.0, 0.0), sleep, None) == [("computing", 0.0, 10.0)]


@pytest.mark.parametrize(
    ("offset_s", "window_s", "sleeps"),
    [
        (0.0, (5.0, 15.0), [(5.0, 10.0), (14.0, 15.0)]),
        (1.0, (0.0, 6.0), [(0.0, 1.0), (5.0, 6.0)]),
        (0.0, (0.0, 4.0), []),
        (0.0, (10.0, 14.0), []),
        (0.0, (0.0, 3000.0), [(10.0 * p + 4.0, 10.0 * p + 10.0) for p in range(300)]),
    ],
)
def test_sleeps_of_a_window(offset_s, window_s, sleeps):
    """Of 10 s the first 4 are awake."""
    cycle = DutyCycle(period_s=10.0, awake_s=4.0, offset_s=offset_s)
    assert away_between(cycle, *window_s) == [("asleep", *span) for span in sleeps]


WHOLE = {"all of it": (0.0, 24.0)}


@pytest.mark.parametrize(
    ("rounds", "longest_s", "found"),
    [
        (24, inf, WHOLE),
        (24, 24.0, WHOLE),
        (24, 23.0, {"begin": (0.0, 8.0), "middle": (8.0, 16.0), "end": (16.0, 24.0)}),
        (24, 0.5, {"begin": (0.0, 0.5), "middle": (11.75, 12.25), "end": (23.5, 24.0)}),
        (6, 4.0, {"begin": (0.0, 2.0), "middle": (2.0, 4.0), "end": (4.0, 6.0)}),
        (25, inf, {"begin": (0.0, 8.0), "middle": (8.5, 16.5), "end": (17.0, 25.0)}),
        (100, 9.0, {"begin": (0.0, 8.0), "middle": (46.0, 54.0), "end": (92.0, 100.0)}),
    ],
)
def test_three_windows_of_eight_rounds_or_as_long_as_sleeps_can_be_seen(rounds, longest_s, found):
    """Of a device that is not drawn no round counts."""
    spans = pd.DataFrame(
        {"device": 0, "start_s": np.arange(rounds), "end_s": np.arange(rounds) + 1}
    )
    other = pd.DataFrame([{"device": 1, "start_s": 0, "end_s": 1000}])
    assert windows(pd.concat([spans, other]), [0], longest_s) == found


CYCLES = ("{period_s: 0.02, awake_s: 0.01}", "{period_s: 0.01, awake_s: 0.005}")
RANDOM = "fleet.churn={random: {absence_probability: 0.25, mean_absence_s: 0.001}}"


@pytest.mark.parametrize(
    ("devices", "changes", "longest_s"),
    [
        ([0, 1, 2], (), 2.0),
        ([0, 2], (), 4.0),
        ([2], (), inf),
        ([2], ("fleet.pace=free", RANDOM), 0.8),
    ],
)
def test_a_window_is_as_long_as_two_hundred_sleeps_of_who_is_drawn(
    tmp_path, devices, changes, longest_s
):
    boards = [f"{{profile: raspberry-pi-5, duty_cycle: {cycle}}}" for cycle in CYCLES]
    fleet = f"fleet.devices=[{', '.join(boards)}, {{profile: raspberry-pi-5}}]"
    path = write_scenario(tmp_path, small_scenario(fleet={"devices": 3}))
    run = replace(waiting_fleet(), scenario=load_scenario(path, [fleet, *changes]))
    assert longest_window_s(run, devices) == pytest.approx(longest_s)
