"""Callbacks are told the bytes and the energy that load_run finds in the tables."""

from __future__ import annotations

import pytest

import edgesim

BOARDS = {
    "fleet": {"devices": 4, "profile": "arduino-portenta-h7"},
    "data__train_samples": 80,
    "evaluation__samples": 40,
    "evaluation__device_models": "every",
}
CASES = {
    "lockstep": {"training__rounds": 6, "evaluation__every_rounds": 2},
    "free, by rounds": {
        "fleet": {**BOARDS["fleet"], "pace": "free"},
        "training__rounds": 6,
        "evaluation__every_rounds": 2,
    },
    "free, by time": {
        "fleet": {**BOARDS["fleet"], "pace": "free"},
        "training": {"rounds": 60, "virtual_time_s": 0.2, "optimizer": {"lr": 0.02}},
        "evaluation": {"every_virtual_s": 0.05, "samples": 40, "device_models": "every"},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_totals_are_those_of_the_tables(tmp_path, case):
    told = []
    settings = BOARDS | CASES[case]
    if "evaluation" in settings:
        settings = {k: v for k, v in settings.items() if not k.startswith("evaluation__")}
    run = edgesim.run(
        "quickstart", out=tmp_path / "run", inline=True, on_evaluation=told.append, **settings
    )
    assert len(told) == len(run.consensus) > 1
    rows = [row for evaluation in told for row in (vars_of(evaluation), *evaluation.devices)]
    for name in ("total_sent_bytes", "total_energy_j"):
        wanted = run.evaluations[name].tolist()
        assert [row[name] for row in rows] == pytest.approx(wanted, rel=1e-9), name


def vars_of(evaluation):
    return {name: getattr(evaluation, name) for name in ("total_sent_bytes", "total_energy_j")}
