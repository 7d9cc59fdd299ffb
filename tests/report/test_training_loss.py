"""The mean loss of a fleet in training is over devices at the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgesim.report.figures import training_loss
from edgesim.report.figures.training_loss import training_loss_figure
from edgesim.report.runs import load_runs


def test_at_free_pace_a_point_is_of_a_span_of_virtual_time(free):
    """Rounds of the same number end at unlike times."""
    figure = training_loss_figure(free)
    assert [view.label for view in figure.views] == ["virtual time"]
    fleet = figure.tables["fleet"]
    assert (fleet["virtual_time_s"].diff().dropna() > 0).all()
    rounds = free.rounds.dropna(subset=["loss"])
    span_s = rounds["virtual_time_s"].max() / (fleet["point"].max() + 1)
    own = []
    for device in (0, 1, 2, 3, 4):  # the sixth joins later
        mine = rounds[(rounds["device"] == device) & (rounds["virtual_time_s"] < 6 * span_s)]
        point = (mine["virtual_time_s"] // span_s).max()
        own.append(mine.loc[mine["virtual_time_s"] // span_s == point, "loss"].mean())
    sixth = fleet[fleet["point"] == 5].iloc[0]
    assert sixth["loss"] == pytest.approx(np.mean(own), rel=1e-5)
    assert sixth["devices"] == 5
    assert sixth["virtual_time_s"] == pytest.approx(5.5 * span_s, rel=1e-5)


def test_a_caption_says_over_how_many_devices_points_are(free, place):
    caption = training_loss_figure(free).caption
    devices = training_loss_figure(free).tables["fleet"]["devices"]
    assert devices.min() < devices.max() == 5
    assert f"A point of the fleet is over {devices.min()} to 5 of 6 devices, each" in caption
    (run,) = load_runs([place])
    whole = replace(run, run=replace(run.run, rounds=run.rounds[run.rounds["round"] < 3]))
    assert "A point of the fleet" not in training_loss_figure(whole).caption


def test_lowest_and_highest_are_of_all_devices(free, monkeypatch):
    """Also of those that left, or of which no round lies in the last span."""
    monkeypatch.setattr(training_loss, "MOST_LINES", 2)
    rounds = free.rounds.copy()
    for device, loss in ((0, 1e-6), (1, 1e6)):  # they leave before the end
        rounds.loc[rounds["device"] == device, "loss"] = loss
    changed = replace(free, run=replace(free.run, rounds=rounds))
    assert training_loss_figure(changed).caption.endswith(
        "Lowest at its own last point: device 0; highest: device 1."
    )


def test_the_mean_is_over_slow_devices_in_each_span_too(free):
    """Of one with few rounds the last loss counts until its next one."""
    rounds = free.rounds[(free.rounds["device"] != 3) | (free.rounds["round"] % 10 == 0)]
    fleet = training_loss_figure(replace(free, run=replace(free.run, rounds=rounds)))
    devices = fleet.tables["fleet"].set_index("point")["devices"]
    assert (devices.loc[4:20] == 5).all()  # all but the sixth, once each has ended a round
