"""Small real fleets for tests: digits, the small CNN, a few rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from edgesim.assembly.preparation import prepare
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.fleet import run as run_module
from edgesim.fleet.recording.evaluation import Evaluator
from edgesim.fleet.run import RunResult, run_scenario
from edgesim.results.columns import WALL_COLUMNS
from edgesim.scenario import load_scenario

SCENARIO: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "fleet": {"devices": 4},
    "topology": {"kind": "directed_ring"},
    "data": {
        "source": "digits",
        "train_samples": 200,
        "partition": {"kind": "label_skew", "skew": 0.8},
        "batch_size": 16,
    },
    "model": {"name": "small_cnn"},
    "training": {"rounds": 6, "optimizer": {"lr": 0.05}},
    "gossip": {
        "algorithm": "choco",
        "averaging_rate": 0.2,
        "compressor": {"kind": "top_k", "keep": 0.2},
    },
    "evaluation": {"every_rounds": 3, "samples": 50},
}


def small_scenario(**changes: Any) -> dict[str, Any]:
    """The scenario above with other keys; those of a section are merged, and None removes one."""
    scenario = deepcopy(SCENARIO)
    for key, value in changes.items():
        if isinstance(value, dict):
            merged = scenario.get(key, {}) | value
            scenario[key] = {name: each for name, each in merged.items() if each is not None}
        else:
            scenario[key] = value
    return scenario


def write_scenario(folder: Path, scenario: dict[str, Any] = SCENARIO) -> Path:
    """A scenario as a file."""
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario))
    return path


def prepared(folder: Path, *overrides: str) -> PreparedRun:
    """The scenario above, with `--set` overrides."""
    return prepare(load_scenario(write_scenario(folder), overrides))


@contextmanager
def killed_at_its_end(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run within it is killed after its last round, before its summary is written."""

    def die(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(run_module, "check_rounds", die)
        with pytest.raises(KeyboardInterrupt):
            yield


def train(folder: Path, name: str, *overrides: str, **options: Any) -> RunResult:
    """Run it into folder/name."""
    console = Console(file=(folder / f"{name}.log").open("w"), force_terminal=False)
    try:
        return run_scenario(prepared(folder, *overrides), folder / name, console=console, **options)
    finally:
        console.file.close()


def snapshots_of_evaluations(patch: pytest.MonkeyPatch) -> dict[int, Any]:
    """What is evaluated from now on in this process, by round: snapshots of all devices."""
    taken: dict[int, Any] = {}
    evaluate = Evaluator.evaluate

    def watch(self: Evaluator, snapshots: Any, **options: Any) -> Any:
        taken[snapshots[0].round_index] = snapshots
        return evaluate(self, snapshots, **options)

    patch.setattr(Evaluator, "evaluate", watch)
    return taken


def outcome(result: RunResult) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, np.ndarray]]:
    """Everything that must be the same bits: rounds without wall times, evaluations, weights."""
    rounds = pd.read_parquet(result.path / "rounds.parquet").drop(columns=list(WALL_COLUMNS))
    evaluations = pd.read_parquet(result.path / "evaluations.parquet")
    weights = {
        f"{path.stem}/{key}": array
        for path in sorted((result.path / "models").glob("*.npz"))
        for key, array in np.load(path, allow_pickle=False).items()
    }
    return rounds, evaluations, weights


def assert_same_bits(first: RunResult, second: RunResult) -> None:
    (rounds_a, evals_a, weights_a), (rounds_b, evals_b, weights_b) = outcome(first), outcome(second)
    pd.testing.assert_frame_equal(rounds_a, rounds_b, check_exact=True)
    pd.testing.assert_frame_equal(evals_a, evals_b, check_exact=True)
    assert weights_a.keys() == weights_b.keys()
    for key, array in weights_a.items():
        assert array.tobytes() == weights_b[key].tobytes(), key
