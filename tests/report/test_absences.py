"""Time in which devices are away is called what it is: sleep, or absence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reported_runs import train

from edgesim.report.activity import away_name, segments, spans_of_rounds
from edgesim.report.ends import device_table
from edgesim.report.figures.time_figures import time_figures
from edgesim.report.runs import load_runs
from edgesim.report.summary import device_rows
from edgesim.report.troubles import troubles

CYCLE = {"period_s": 1.0, "awake_s": 0.5}


def test_time_of_absent_devices_is_no_sleep(free):
    devices = device_table(free)
    figures = {figure.key: figure for figure in time_figures(free, devices)}
    for key in ("time-of-devices", "time-of-fleet"):
        activities = set(next(iter(figures[key].tables.values()))["activity"])
        assert "absent" in activities
        assert "asleep" not in activities
    heads = device_rows(free, devices).columns
    assert "absent" in heads
    assert "asleep" not in heads


@pytest.mark.parametrize(
    ("fleet", "name"),
    [
        ({"duty_cycle": CYCLE, "churn": None}, "asleep"),
        ({"churn": {"leaves": [{"device": 0, "at_s": 1.0}]}}, "asleep"),
        ({"churn": {"random": {"absence_probability": 0.1}}}, "absent"),
        ({"duty_cycle": CYCLE}, "asleep or absent"),
        ({"devices": [{"count": 6, "duty_cycle": CYCLE}]}, "asleep or absent"),
    ],
)
def test_where_devices_may_sleep_and_be_absent_both_are_named(free, fleet, name):
    settings = free.settings | {"fleet": free.settings["fleet"] | fleet}
    assert away_name(replace(free, settings=settings)) == name


def test_a_join_at_free_pace_is_no_absence(free):
    said = troubles(free, device_table(free))
    assert "Joined later: device 5 at 24 ms." in said
    assert "Device 4 was absent once, for 12 ms in all." in said
    assert not any(line.startswith("Device 5 was absent") for line in said)


def test_in_lockstep_the_timeline_has_an_absence_between_a_step_and_its_wait(tmp_path):
    """Rounds say when a device is back, its clock only how long it was away."""
    churn = "absent: [{device: 1, from_round: 2, until_round: 8}], joins: [{device: 3, round: 6}]"
    fleet = f"fleet={{devices: 4, profile: raspberry-pi-4b, churn: {{{churn}}}}}"
    place = train(tmp_path, fleet, "topology={kind: complete}")
    run = load_runs([place])[0]
    spans = spans_of_rounds(run)
    parts = segments(run, spans, (0.0, float(spans["end_s"].max())), [0, 1, 2, 3])
    absent = parts[parts["activity"] == "absent"]
    assert list(zip(absent["device"], absent["round"], strict=True)) == [(1, 8), (3, 6)]
    lasted = (parts["end_s"] - parts["start_s"]).groupby([parts["device"], parts["activity"]]).sum()
    totals = spans.groupby("device")[["compute_s", "wait_s", "away_s"]].sum()
    for device, own in totals.iterrows():
        for activity, column in (("computing", "compute_s"), ("waiting", "wait_s")):
            assert lasted[device, activity] == pytest.approx(own[column]), (device, activity)
        assert lasted.get((device, "absent"), 0.0) == pytest.approx(own["away_s"])
