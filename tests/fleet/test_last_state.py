"""The last state that sinks are told of has the figures of the run's tables."""

from __future__ import annotations

import pandas as pd
import pytest
from small_fleets import train

import edgesim
from edgesim.fleet.recording import monitor

BOARD = "profile: arduino-portenta-h7"
BOARDS = ("fleet.profile=arduino-portenta-h7", "evaluation.device_models=final")
CASES = {
    "without profiles": (),
    "boards": BOARDS,
    "free pace": (*BOARDS, "fleet.pace=free", "fleet.presumed_dead_after_s=5"),
    "an empty battery": (
        f"fleet.devices=[{{{BOARD}, count: 3}}, {{{BOARD}, battery_wh: 2.0e-6}}]",
        "topology.kind=ring",
    ),
    "a leave": ("fleet.churn.leaves=[{device: 2, round: 2}]", "topology.kind=complete"),
}


class Told(edgesim.Sink):
    """Remembers the order of calls and the last state."""

    def __init__(self):
        self.calls = []

    def update(self, fleet):
        self.calls.append("update")
        self.fleet = fleet

    def evaluated(self, rows):
        self.calls.append("evaluated")

    def finished(self, summary):
        self.calls.append("finished")
        self.summary = summary

    def close(self):
        self.calls.append("close")


def assert_equals_tables(told, result):
    rounds = pd.read_parquet(result.path / "rounds.parquet")
    for device, rows in rounds.groupby("device"):
        progress = told.fleet.devices[device]
        assert progress.rounds_done == len(rows)
        assert progress.sent_bytes == rows["sent_bytes"].sum()
        assert progress.received_bytes == rows["received_bytes"].sum()
        for name in ("push_weight", "virtual_time_s", "charge_left_j"):
            if name in rows:
                assert getattr(progress, name) == pytest.approx(
                    rows[name].iloc[-1], rel=0, abs=0, nan_ok=True
                ), name
        if "energy_j" in rows:
            assert progress.energy_j == pytest.approx(rows["energy_j"].sum(), rel=1e-12)
    assert told.fleet.sent_bytes == told.summary["sent_bytes"] == result.summary["sent_bytes"]
    assert told.fleet.slowest_round in (result.summary["rounds"], told.fleet.facts.num_rounds)
    evaluations = pd.read_parquet(result.path / "evaluations.parquet")
    last = evaluations[evaluations["device"] == -1].iloc[-1]
    assert told.fleet.evaluation["accuracy"] == last["accuracy"]
    assert told.calls[-3:] == ["update", "finished", "close"]


@pytest.mark.parametrize("case", CASES)
def test_the_last_state_equals_the_tables(tmp_path, monkeypatch, case):
    monkeypatch.setattr(monitor, "pause_s", lambda *_: 3600.0)  # nobody asks while it trains
    told = Told()
    result = train(tmp_path, "run", *CASES[case], inline=True, sinks=[told])
    assert_equals_tables(told, result)


@pytest.mark.ray
@pytest.mark.usefixtures("started_ray")
def test_the_last_state_of_actors_equals_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(monitor, "pause_s", lambda *_: 3600.0)
    told = Told()
    assert_equals_tables(told, train(tmp_path, "run", *BOARDS, sinks=[told]))
