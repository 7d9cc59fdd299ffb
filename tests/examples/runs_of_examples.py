"""Runs of the scenarios in examples/, made short: inline, packed, interrupted and resumed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from small_fleets import killed_at_its_end

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import RunResult, resume_run, run_scenario
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
    with killed_at_its_end(patch):
        train(name, out, *overrides, "recovery.checkpoint_every_rounds=2", inline=True)
    return out


def resume(out: Path) -> RunResult:
    """Go on with a run."""
    return resume_run(out, console=console())


def console() -> Console:
    return Console(file=StringIO())
