"""examples/signals.py: convolutions along time, in 8 bits and in fp32."""

import pandas as pd
import pytest
from runs_of_examples import EXAMPLES, console, resume, train, train_and_kill
from small_fleets import assert_same_bits

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario
from edgesim.study.iteration import iteration_costs
from edgesim.study.notices.notices import notices

NAME = "signals.yaml"
FIRST = 16 * 3 * 5 * 32  # products of a sample, 32 places after the stride
SECOND = 16 * 16 * 3 * 32
HEAD = 16 * 4


def test_it_learns_in_8_bits(tmp_path):
    prepared = prepare(load_scenario(EXAMPLES / NAME))
    run = run_scenario(prepared, tmp_path / "run", console=console(), inline=True)
    assert pd.read_parquet(run.path / "evaluations.parquet")["accuracy"].iloc[-1] > 0.8


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_killed_run_goes_on_to_the_same_bits(precision, tmp_path, monkeypatch):
    chosen = f"model.precision={precision}"
    whole = train(NAME, tmp_path / "whole", chosen, inline=True)
    assert_same_bits(whole, resume(train_and_kill(NAME, tmp_path / "cut", monkeypatch, chosen)))


def test_products_are_those_by_hand_and_all_convolutions_are_in_8_bits(tmp_path):
    rounds = pd.read_parquet(train(NAME, tmp_path / "run", inline=True).path / "rounds.parquet")
    assert (rounds["macs_int8"] == 16 * (FIRST + 2 * SECOND + 2 * HEAD)).all()
    assert (rounds["macs_fp32"] == 16 * (FIRST + SECOND + HEAD)).all()
    costs = iteration_costs(load_scenario(EXAMPLES / NAME))
    said = "\n".join(notices(costs.studied, 4))
    assert "in fp32 stay operators in the forward pass of the model (SignalNet)" in said


def test_in_fp32_closed_forms_are_those_by_hand_too():
    chosen = ("model.precision=fp32", "fleet.profile=raspberry-pi-4b")
    costs = iteration_costs(load_scenario(EXAMPLES / NAME, chosen))
    assert costs.devices[0].work.total.macs_fp32 == 16 * (2 * FIRST + 3 * SECOND + 3 * HEAD)
