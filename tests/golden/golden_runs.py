"""Runs whose bits are on record: what each trains, and the digests of what it leaves.

A golden digest says that a change of the code changed no bit of a result. Bits of floats depend on
the processor and on the versions of the libraries; `machine` names both, and digests of one machine
say nothing about another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import run_scenario
from edgesim.results.columns import WALL_COLUMNS
from edgesim.scenario import load_scenario

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
RECORD = Path(__file__).with_name("digests.json")
MODEL = ("x", "u", "buffers", "rounds_done")
TABLES = ("rounds", "messages", "evaluations")
PROCESSOR = ("vendor_id", "cpu family", "model", "model name")
SUMMARY = ("consensus_accuracy", "device_accuracy_mean", "virtual_time_s")


@dataclass(frozen=True)
class GoldenRun:
    """A shipped scenario, with overrides as on the command line."""

    scenario: str
    overrides: tuple[str, ...] = ()

    def train(self, folder: Path) -> Path:
        """Trains it in this process; the folder of the run."""
        scenario = load_scenario(SCENARIOS / self.scenario, self.overrides)
        console = Console(file=StringIO())
        return run_scenario(prepare(scenario), folder / "run", inline=True, console=console).path


SMOKE = {
    path.stem: GoldenRun(f"smoke/{path.name}")
    for path in sorted((SCENARIOS / "smoke").glob("*.yaml"))
}

CHURN = (
    "fleet.churn={joins: [{device: 3, round: 4}], leaves: [{device: 2, round: 12}], "
    "random: {absence_probability: 0.1, mean_absence_rounds: 2}}"
)

RUNS = SMOKE | {
    "quickstart": GoldenRun("quickstart.yaml"),
    "int8_deepsqueeze": GoldenRun(
        "smoke/deepsqueeze_cycle.yaml", ("model.precision=int8", "training.rounds=6")
    ),
    "free_pace": GoldenRun(
        "smoke/choco_numerator_irregular.yaml",
        ("gossip.algorithm=choco", "fleet={pace: free, devices: 6, profile: raspberry-pi-4b}"),
    ),
    "free_churn_and_batteries": GoldenRun(
        "coming_and_going.yaml", ("training.virtual_time_s=6", "evaluation.every_virtual_s=3")
    ),
    "churn": GoldenRun("smoke/choco_random_matching.yaml", (CHURN,)),
    "trace": GoldenRun("traces/buses.yaml", ("training.rounds=100",)),
}


def machine() -> dict[str, str]:
    """What bits of floats depend on, beside the code."""
    cpu = {
        key.strip(): value.strip()
        for key, _, value in (
            line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()
        )
    }
    return {
        "processor": " ".join(cpu.get(key, "?") for key in PROCESSOR),
        **{name: version(name) for name in ("torch", "numpy", "numba")},
    }


def digests(run: Path) -> dict[str, dict[str, str]]:
    """Of each column of each table that is not a wall time, and of each device's final model."""
    found = {
        table: {
            str(name): _digest(column.to_numpy())
            for name, column in pd.read_parquet(run / f"{table}.parquet").items()
            if name not in WALL_COLUMNS
        }
        for table in TABLES
    }
    models = sorted((run / "models").glob("*.npz"))
    return found | {"models": {path.stem: _model_digest(path) for path in models}}


def figures(run: Path) -> dict[str, float]:
    """A few results as numbers, to be held against those of another machine."""
    summary = json.loads((run / "summary.json").read_text())
    rounds = pd.read_parquet(run / "rounds.parquet")
    return {key: summary[key] for key in SUMMARY if summary.get(key) is not None} | {
        "sent_bytes": int(rounds["sent_bytes"].sum())
    }


def _model_digest(path: Path) -> str:
    with np.load(path) as arrays:
        return _digest(*(arrays[name] for name in MODEL))


def _digest(*arrays: np.ndarray) -> str:
    """Twelve hexadecimal digits of SHA-256 over shapes, types and bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        if array.dtype == object:  # texts
            array = array.astype(np.str_)
        digest.update(f"{array.shape} {array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]
