"""A run says at its end if rounds took longer than the seconds of a trace that they stand for."""

from __future__ import annotations

import pyarrow as pa

from edgesim.fleet.recording.closing_warnings import late_rounds_warning

ON_TIME = pa.table(
    {
        "device": [0, 1, 0, 1],
        "round": [0, 0, 1, 1],
        "virtual_time_s": [10.0, 10.0, 20.0, 20.05],
    }
)


def test_rounds_on_time_and_fleets_without_clocks_or_traces_have_no_warning():
    assert late_rounds_warning(ON_TIME, 10.0, {}) is None
    assert late_rounds_warning(ON_TIME, None, {}) is None
    assert late_rounds_warning(ON_TIME.drop_columns("virtual_time_s"), 10.0, {}) is None


def test_the_latest_round_is_told():
    ends_s = pa.array([17.9, 10.0, 26.5, 20.0])
    rounds = ON_TIME.set_column(2, "virtual_time_s", ends_s)
    said = late_rounds_warning(rounds, 10.0, {})
    assert said.startswith(
        "rounds ended up to 7.9 s (round 0) after the 10 s of the contact trace that each stands"
    )
    assert "\n" not in said


def test_what_a_device_hands_over_when_it_leaves_is_no_late_round():
    """It is over after 26.5 s; its other rounds count."""
    handed = ON_TIME.set_column(2, "virtual_time_s", pa.array([10.0, 10.0, 26.5, 20.0]))
    assert late_rounds_warning(handed, 10.0, {"0": 1}) is None
    late = handed.set_column(2, "virtual_time_s", pa.array([17.9, 10.0, 26.5, 20.0]))
    assert "up to 7.9 s (round 0)" in late_rounds_warning(late, 10.0, {"0": 1})
