"""Seeds of one row that are trained for unlike numbers of rounds are told."""

from __future__ import annotations

import pytest

import edgesim
from edgesim.cli.sweep import sweep_table
from edgesim.sweeps.run import check_cells, read_sweep
from edgesim.sweeps.unlike_rounds import notice_of_rounds

SEEDS = {"grid": {"seed": [1, 2]}}
SMALL = {  # at skew 0.8, seed 1 leaves 7 of 200 samples to nobody, seed 2 leaves 9
    "fleet__devices": 4,
    "topology": {"kind": "ring"},
    "data__train_samples": 200,
    "evaluation": {"every_epochs": 1, "samples": 40},
    "gossip": {"algorithm": "gradient_push"},
    "training__schedule": {"milestones": []},
}
REMEDY = "an epoch goes by the samples that devices have; training.rounds gives all the same"


def test_before_a_sweep_and_with_its_results(tmp_path):
    with pytest.warns(edgesim.ScenarioWarning, match="seeds of one row do 6 and 8 rounds, since"):
        results = edgesim.sweep(
            "quickstart", SEEDS, out=tmp_path / "s", workers=1, training__epochs=2, **SMALL
        )
    assert results.table()["round"].tolist() == [7]
    said = f"seeds of one row do 6 and 8 rounds, since {REMEDY}"
    assert results.notices == (said,)
    assert f"warning: {said}" in repr(results)
    assert said in results._repr_html_()
    assert f"warning: {said}" in sweep_table(results).notes


def test_not_where_training_rounds_says_them():
    settings = {"training.rounds": 4, "evaluation.every_rounds": 2}
    overrides = [f"{key}={value}" for key, value in settings.items()]
    base = SMALL | {"training__epochs": 2, "evaluation": {"samples": 40}}
    scenario = edgesim.load_scenario("quickstart", **base)
    planned = read_sweep(scenario, SEEDS, overrides)
    assert not [line for line in check_cells(planned, "s") if "rounds" in line]


def test_of_several_rows_the_first_stands_for_all():
    rounds = [("a", 6), ("a", 8), ("a", 7), ("b", 5), ("b", 5), ("c", 1), ("c", 2)]
    (said,) = notice_of_rounds(rounds)
    assert said.startswith("seeds of one row do 6, 7 and 8 rounds, and so in 2 of 3 rows, since")
    assert notice_of_rounds([("a", 6), ("b", 8)]) == []
