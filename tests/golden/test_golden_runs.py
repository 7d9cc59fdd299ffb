"""Shipped scenarios run, learn and keep their books, and no change of the code moves their bits.

A change that is meant to move bits says so in CHANGELOG.md and records them anew: `make golden`.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from golden_runs import RECORD, RUNS, SMOKE, GoldenRun, digests, figures, machine
from record import recorded_anew, text_of
from thorough import thorough_only

RECORDED = json.loads(RECORD.read_text())

# Norms that no shipped scenario names, so that norms follow the precision in all of them.
NORMS = {
    "group": GoldenRun("smoke/choco_torus.yaml", ("model.norm=group",)),
    "batch": GoldenRun("smoke/gradient_push_exponential.yaml", ("model.norm=batch",)),
}


# Left to `make thorough`: of quickstart, trace and churn at free pace there are smaller runs here
# (choco_directed_ring, choco_trace, churn, free_pace), and test_free_churn_runs.py has the parts.
MARKS = {
    "quickstart": (thorough_only, pytest.mark.long),
    "free_churn_and_batteries": (thorough_only, pytest.mark.long),
    "trace": thorough_only,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in RUNS])
def test_a_run_leaves_the_recorded_bits(name, tmp_path):
    run = RUNS[name].train(tmp_path)
    if name in SMOKE:
        check_learning_and_books(run)
    if name == "quickstart":
        check_quickstart(run)
    recorded = RECORDED["runs"][name]
    for key, value in figures(run).items():  # also where floats have other bits
        near = {"abs": 0.1} if "accuracy" in key else {"rel": 0.02}
        assert value == pytest.approx(recorded["figures"][key], **near)
    if machine() == recorded.get("machine", RECORDED["machine"]):  # some were recorded elsewhere
        assert digests(run) == recorded["digests"]


@pytest.mark.parametrize("norm", NORMS)
def test_other_norms_learn_too(norm, tmp_path):
    check_learning_and_books(NORMS[norm].train(tmp_path))


def check_learning_and_books(run):
    rounds = pd.read_parquet(run / "rounds.parquet")
    by_round = rounds.groupby("round")
    n = rounds["device"].nunique()
    assert (by_round["device"].count() == n).all()
    # All messages of a round are absorbed in it, so push weights sum to n after every round.
    np.testing.assert_allclose(by_round["push_weight"].sum(), n, rtol=0, atol=1e-12 * n)
    assert (by_round["sent_bytes"].sum() == by_round["received_bytes"].sum()).all()
    losses = by_round["loss"].mean()
    assert losses.iloc[-3:].mean() < 0.95 * losses.iloc[:3].mean()


def check_quickstart(run):
    summary = json.loads((run / "summary.json").read_text())
    assert summary["consensus_accuracy"] >= 0.96
    assert summary["device_accuracy_min"] >= 0.94


def test_every_run_is_on_record():
    assert RECORDED["runs"].keys() == RUNS.keys()


def test_one_run_is_recorded_alone(monkeypatch):
    """The others keep their digests, and the machine that they were recorded on."""
    assert text_of(RECORDED) == RECORD.read_text()  # by which the file's form is pinned
    machine_here, elsewhere = machine(), {"processor": "another", "torch": "2.13.0"}
    monkeypatch.setattr("record.machine", lambda: elsewhere)
    name = "bagua_pairs"
    anew = recorded_anew(RECORDED, [name])
    assert anew["machine"] == RECORDED["machine"]
    one = anew["runs"][name]
    assert one["machine"] == elsewhere
    assert one["figures"].keys() == RECORDED["runs"][name]["figures"].keys()
    assert one["digests"].keys() == RECORDED["runs"][name]["digests"].keys()
    if machine_here == RECORDED["runs"][name].get("machine", RECORDED["machine"]):
        assert one["digests"] == RECORDED["runs"][name]["digests"]
    others = RECORDED["runs"].keys() - {name}
    assert all(anew["runs"][other] == RECORDED["runs"][other] for other in others)
    assert list(anew["runs"]) == list(RUNS)
    monkeypatch.setattr("record.RUNS", {name: RUNS[name]})
    whole = recorded_anew(RECORDED, [name])  # all that there are: the record is of this machine
    assert whole["machine"] == elsewhere
    assert "machine" not in whole["runs"][name]
