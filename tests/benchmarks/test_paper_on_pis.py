"""A run in lockstep, clocked again, has the times and energies of a run on that hardware."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from clocked_again import spent_by_rounds
from paper_on_pis import PIS, curve, main, name_of
from small_fleets import small_scenario

import edgesim
from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import device_hardware
from edgesim.scenario.files import scenario_of

UNLIKE = (
    "fleet.devices=[{count: 3, profile: raspberry-pi-4b}, {count: 1, profile: jetson-nano}]",
    "network={bandwidth_mbps: 2, latency_ms: 5, jitter_ms: 3, loss: 0.1}",
)


GRAPHS = ("directed_ring", "ring", "complete")


def scenario(overrides):
    return scenario_of(small_scenario(training={"rounds": 12}), overrides)


def hardware_of(overrides):
    with_hardware = scenario(overrides)
    return device_hardware(with_hardware, make_schedule(with_hardware))


def run_of(overrides, folder):
    edgesim.run(scenario(overrides), out=folder, inline=True)
    return edgesim.load_run(folder)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A training without hardware."""
    return run_of((), tmp_path_factory.mktemp("bare") / "run")


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_run_without_hardware_is_clocked_as_one_that_had_it(graph, tmp_path):
    """The latter on devices and links that are unlike and lose packets."""
    kind = f"topology={{kind: {graph}}}"
    bare, unlike = run_of((kind,), tmp_path / "bare"), run_of((kind, *UNLIKE), tmp_path / "unlike")
    found = [*spent_by_rounds(bare, hardware_of((kind, *UNLIKE)), bare.summary["seed"])]
    by_round = unlike.rounds.groupby("round")
    assert [s.virtual_time_s for s in found] == by_round["virtual_time_s"].max().to_list()
    recorded_j = by_round["energy_j"].sum().cumsum()
    assert [s.energy_j for s in found] == pytest.approx(recorded_j.to_list(), rel=1e-12)
    assert [s.sent_bytes for s in found] == by_round["sent_bytes"].sum().cumsum().to_list()
    assert unlike.rounds["retransmissions"].sum() > 0


def test_evaluations_stand_beside_what_was_spent_until_then(bare):
    points = curve(bare, hardware_of(PIS), bare.summary["seed"])
    assert points.index.to_list() == [3, 6, 9, 12]
    consensus = bare.evaluations[bare.evaluations["model"] == "consensus"]
    assert points["accuracy"].to_list() == consensus["accuracy"].to_list()
    assert (points["energy_j"].diff().dropna() > 0).all()


def test_of_an_unfinished_run_the_evaluations_so_far_are_shown(bare):
    """Rounds behind the last evaluation may lack devices."""
    early = bare.evaluations[bare.evaluations["round"] <= 6]
    rounds = bare.rounds[(bare.rounds["round"] < 6) | (bare.rounds["device"] == 0)]
    points = curve(replace(bare, evaluations=early, rounds=rounds), hardware_of(PIS), 1)
    pd.testing.assert_frame_equal(points, curve(bare, hardware_of(PIS), 1).loc[:6])


def test_curves_can_be_taken_from_an_earlier_file(bare, tmp_path, monkeypatch):
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    for given, file in ((bare.place, first), (f"--also={first}", again)):
        monkeypatch.setattr("sys.argv", ["paper_on_pis.py", given, "--json", str(file)])
        main()
    assert again.read_text() == first.read_text()
    monkeypatch.setattr("sys.argv", ["paper_on_pis.py", bare.place, f"--also={first}"])
    with pytest.raises(SystemExit):  # the same curve twice
        main()


def test_a_run_is_named_by_what_the_paper_varies():
    of_8_bits = ("model.norm=range_evonorm", "model.gate=hard_sigmoid")
    for overrides, name in (
        (("model.norm=evonorm_s0",), "fp32, evonorm_s0, 80 %, skew 0.8, 12 rounds"),
        (of_8_bits, "fp32, range_evonorm as in int8, 80 %, skew 0.8, 12 rounds"),
        (("model.precision=int8",), "int8, range_evonorm, 80 %, skew 0.8, 12 rounds"),
        (
            ("training.epochs=2", "training.rounds=null"),
            "fp32, evonorm_s0, 80 %, skew 0.8, 2 epochs",
        ),
    ):
        assert name_of(scenario(overrides)) == name
