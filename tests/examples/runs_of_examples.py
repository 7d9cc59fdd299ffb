"""Runs of the scenarios in examples/, made short: inline, packed, interrupted and resumed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from edgesim.assembly.preparation import prepare
from edgesim.fleet import run as run_module
from edgesim.fleet.run import RunResult, resume_run, run_scenario
from edgesim.results.columns import WALL_COLUMNS
from edgesim.scenario import load_scenario

EXAMPLES = Path(__file__).parents[2] / "examples"

SHORT = ("training.rounds=4", "evaluation={every_rounds: 2, samples: 40}")
INT8 = ("model.precision=int8", "model.quantization={backend: reference}")
FREE = ("fleet.pace=free", "fleet.profile=raspberry-pi-4b")


def train(name: str, out: Path, *overrides: str, **options: object) -> RunResult:
    """Run an example for a few rounds."""
    scenario = load_scenario(EXAMPLES / name, [*SHORT, *overrides])
    return run_scenario(prepare(scenario), out, console=console(), **options)


def train_and_kill(name: str, out: Path, patch: pytest.MonkeyPatch, *overrides: str) -> Path:
    """A run that was killed at its end, before its summary was written."""

    def die(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(run_module, "check_rounds", die)
        with pytest.raises(KeyboardInterrupt):
            train(name, out, *overrides, "recovery.checkpoint_every_rounds=2", inline=True)
    return out


def resume(out: Path) -> RunResult:
    """Go on with a run."""
    return resume_run(out, console=console())


def console() -> Console:
    return Console(file=StringIO())


def assert_same_bits(first: RunResult, second: RunResult) -> None:
    """Rounds, evaluations and models are equal to the bit."""
    for name in ("rounds", "evaluations"):
        tables = [pd.read_parquet(run.path / f"{name}.parquet") for run in (first, second)]
        one, other = (t.drop(columns=[*WALL_COLUMNS], errors="ignore") for t in tables)
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    paths = [sorted((run.path / "models").glob("*.npz")) for run in (first, second)]
    assert [path.name for path in paths[0]] == [path.name for path in paths[1]]
    for one_path, other_path in zip(*paths, strict=True):
        with np.load(one_path) as model, np.load(other_path) as other_model:
            assert {k: model[k].tobytes() for k in model} == {
                k: other_model[k].tobytes() for k in other_model
            }
