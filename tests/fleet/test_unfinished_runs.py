"""What a run has recorded is read before it ends, unless a part of it is lost."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from interrupted_runs import KINDS, train_and_interrupt

from edgesim import UnfinishedRunWarning, load_run
from edgesim.results.run_directory import RunDirectory, RunDirectoryError


def test_what_was_recorded_can_be_read_before_it_goes_on(tmp_path):
    train_and_interrupt(tmp_path, at_step=15)
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    assert 0 < len(rounds) < 24
    assert not rounds.duplicated(["device", "round"]).any()
    log = (tmp_path / "run.log").read_text()
    assert f"; go on with: edgesim resume {tmp_path / 'run'}\n" in log


def test_it_says_how_many_rounds_of_how_many_there_are(tmp_path):
    """Also if the scenario says epochs."""
    train_and_interrupt(tmp_path, "training.epochs=2", at_step=15)
    num_rounds = RunDirectory(tmp_path / "run").read_json("environment.json")["rounds"]
    assert num_rounds > 2
    with pytest.warns(UnfinishedRunWarning):
        missing = load_run(tmp_path / "run").missing
    assert re.fullmatch(rf"rounds: device \d has \d+ of {num_rounds} rounds written", missing[0])


ROUND_LOSSES = {
    "in between": ("device-000001/*-000000002.parquet", "lacks round 2 of device 1"),
    "the first": ("device-000002/*-000000000.parquet", "lacks round 0 of device 2"),
    "the last of those before a checkpoint": (
        "device-000000/*-00000000[2-9].parquet",
        "lacks round 2 of device 0",
    ),
    "all": ("device-000003/*", "lacks round 0 of device 3"),
}


@pytest.mark.parametrize("kind", ["ring", "free"])
@pytest.mark.parametrize("loss", ROUND_LOSSES)
def test_an_unfinished_run_that_lost_rounds_is_not_loaded(tmp_path, runs, kind, loss):
    runs.interrupted(tmp_path / "run", *KINDS[kind], at_step=22)
    with pytest.warns(UnfinishedRunWarning):
        assert len(load_run(tmp_path / "run").rounds) >= 16
    pattern, said = ROUND_LOSSES[loss]
    for path in list((tmp_path / "run" / "parts").glob(pattern)):
        path.unlink()
    with pytest.raises(RunDirectoryError, match=rf"run/parts: {said}; bring it back") as caught:
        load_run(tmp_path / "run")
    assert "\n" not in str(caught.value)


AWAY = {
    "at times, in lockstep": (
        "topology.kind=complete",
        "training.rounds=12",
        (
            "fleet.churn={absent: [{device: 1, from_round: 2, until_round: 4}], "
            "joins: [{device: 2, round: 3}], leaves: [{device: 3, round: 4}]}"
        ),
    ),
    "by chance": (
        "topology.kind=complete",
        "training.rounds=12",
        "fleet.churn={random: {absence_probability: 0.4, mean_absence_rounds: 2}}",
    ),
    "free": (
        *KINDS["free churn and batteries"][1:],
        (
            "fleet={pace: free, devices: [{profile: raspberry-pi-5, count: 3}, {profile: "
            "raspberry-pi-5, battery_wh: 4.0e-6}], churn: {absent: [{device: 1, from_s: 0.0005, "
            "until_s: 0.001}], leaves: [{device: 2, at_s: 0.0008}]}, presumed_dead_after_s: 0.0005}"
        ),
    ),
}


@pytest.mark.parametrize("at_step", [12, 20, 33])
@pytest.mark.parametrize("kind", AWAY)
def test_an_unfinished_run_whose_devices_were_away_is_loaded(tmp_path, runs, kind, at_step):
    """At times of their own, or as one who joins or leaves: no round of theirs is lost."""
    runs.interrupted(tmp_path / "run", *AWAY[kind], at_step=at_step)
    with pytest.warns(UnfinishedRunWarning):
        load_run(tmp_path / "run")
