"""Every smoke scenario runs, learns and keeps its books; the quickstart reaches its mark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from edgesim.fleet.run import run_scenario
from edgesim.preparation import prepare
from edgesim.scenario import load_scenario

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
SMOKE = sorted((SCENARIOS / "smoke").glob("*.yaml"))


def run_inline(path, folder, *overrides):
    prepared = prepare(load_scenario(path, overrides))
    with (folder / "log").open("w") as log:
        return run_scenario(prepared, folder / "run", inline=True, console=Console(file=log))


# Norms that no shipped scenario names, so that norms follow the precision in all of them.
NORMS = [
    pytest.param(SCENARIOS / "smoke" / f"{name}.yaml", f"model.norm={norm}", id=f"{name}, {norm}")
    for name, norm in (("choco_torus", "group"), ("gradient_push_exponential", "batch"))
]


@pytest.mark.parametrize(
    ("path", "overrides"),
    [*(pytest.param(path, "", id=path.stem) for path in SMOKE), *NORMS],
)
def test_a_smoke_scenario_learns_and_keeps_its_books(path, overrides, tmp_path):
    result = run_inline(path, tmp_path, *filter(None, [overrides]))
    rounds = pd.read_parquet(result.path / "rounds.parquet")
    by_round = rounds.groupby("round")
    n = rounds["device"].nunique()
    assert (by_round["device"].count() == n).all()
    # All messages of a round are absorbed in it, so push weights sum to n after every round.
    np.testing.assert_allclose(by_round["push_weight"].sum(), n, rtol=0, atol=1e-12 * n)
    assert (by_round["sent_bytes"].sum() == by_round["received_bytes"].sum()).all()
    losses = by_round["loss"].mean()
    assert losses.iloc[-3:].mean() < 0.95 * losses.iloc[:3].mean()


def test_the_quickstart_reaches_0_96(tmp_path):
    summary = run_inline(SCENARIOS / "quickstart.yaml", tmp_path).summary
    assert summary["consensus_accuracy"] >= 0.96
    assert summary["device_accuracy_min"] >= 0.94
