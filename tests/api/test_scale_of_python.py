"""`scale` of `edgesim.run` and `edgesim.sweep`: shorter trainings, milestones in proportion."""

from __future__ import annotations

import edgesim

SMALL = {
    "fleet__devices": 4,
    "training__rounds": 6,
    "data__train_samples": 160,
    "evaluation": {"every_rounds": 4, "samples": 40},
}


def test_a_run_is_shortened(tmp_path):
    run = edgesim.run("quickstart", scale=0.5, out=tmp_path / "run", inline=True, **SMALL)
    assert run.summary["rounds"] == 3
    assert run.consensus["round"].tolist() == [2, 3]
    assert edgesim.load_scenario(tmp_path / "run" / "scenario.yaml").training.rounds == 3


def test_all_cells_of_a_sweep_are_shortened(tmp_path):
    grid = {"grid": {"seed": [1, 2]}}
    settings = {"scale": 0.5, "out": tmp_path / "s", "workers": 1, **SMALL}
    results = edgesim.sweep("quickstart", grid, **settings)
    rounds = {cell: results.run(cell).summary["rounds"] for cell in results.evaluations["cell"]}
    assert rounds == {"seed=1": 3, "seed=2": 3}
