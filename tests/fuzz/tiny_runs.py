"""Run directories of tiny fleets, finished and interrupted, made once by each process."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from io import StringIO
from multiprocessing.util import Finalize
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from rich.console import Console
from small_fleets import small_scenario

from edgesim.assembly.preparation import prepare
from edgesim.device.device import Device
from edgesim.errors import EdgesimError
from edgesim.fleet import run as run_module
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.run import resume_run, run_scenario
from edgesim.results.columns import (
    EVALUATIONS,
    VIRTUAL_EVALUATIONS,
    WALL_COLUMNS,
    columns_that_hold,
)
from edgesim.results.run_directory import RunDirectory
from edgesim.scenario.schema import Scenario

BASE = small_scenario(
    name="tiny",
    seed=5,
    fleet={"devices": 3},
    data={"train_samples": 30, "partition": {"kind": "iid"}, "batch_size": 2},
    training={"rounds": 7},
    gossip={"compressor": {"kind": "top_k", "keep": 0.01}},
    evaluation={"every_rounds": 2, "samples": 4},
    recovery={"checkpoint_every_rounds": 1, "stall_timeout_s": 60},
)
KINDS = {
    "lockstep": {},
    "leaving": {
        "fleet": {"devices": 3, "churn": {"leaves": [{"device": 1, "round": 2}]}},
        "topology": {"kind": "complete"},
    },
    "free": {
        "fleet": {
            "devices": [
                {"profile": "raspberry-pi-5", "count": 2},
                {"profile": "raspberry-pi-4b", "count": 1},
            ],
            "pace": "free",
        },
        "topology": {"kind": "ring"},
        "training": {"rounds": 60, "virtual_time_s": 0.0008, "optimizer": {"lr": 0.02}},
        "evaluation": {"every_virtual_s": 0.0002, "samples": 4},
    },
}


class PulledPlugError(EdgesimError):
    """Stands for the end of the machine."""


@cache
def _prepared(kind, seed):
    return prepare(Scenario.model_validate({**BASE, **KINDS[kind], "seed": seed}))


def prepared(kind, seed=5):
    """The scenario of a kind of fleet, checked, with its data."""
    return _prepared(kind, seed)


@cache
def folder():
    """For all directories of this process; gone when it ends."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="runs-", dir=memory if memory.is_dir() else None))
    # Unlike atexit's, run at the end of a pool's processes, too.
    Finalize(None, shutil.rmtree, args=(made, True), exitpriority=1)
    return made


def console():
    return Console(file=StringIO(), force_terminal=False)


def finished(kind, seed=5):
    """Path of an undisturbed run's directory."""
    return _finished(kind, seed)


@cache
def _finished(kind, seed):
    place = folder() / f"{kind}-{seed}"
    run_scenario(prepared(kind, seed), place, inline=True, console=console())
    return place


@cache
def num_steps(kind):
    """Steps of all devices of an undisturbed run."""
    return len(pq.read_table(finished(kind) / "rounds.parquet"))


def interrupted(kind, eighths, num_evaluated, every_rounds=1, seed=5):
    """Path of the directory of a run that ended after some eighths of its steps.

    Args:
        kind: of fleet.
        eighths: of the steps that were begun.
        num_evaluated: evaluations that were made until then, at most.
        every_rounds: rounds between two checkpoints.
        seed: of the scenario.
    """
    return _interrupted(kind, eighths, num_evaluated, every_rounds, seed)


@cache
def _interrupted(kind, eighths, num_evaluated, every_rounds, seed):
    place = folder() / f"{kind}-{eighths}-{num_evaluated}-{every_rounds}-{seed}"
    step, steps = Device.step, [0]

    def step_or_end(self, model):
        steps[0] += 1
        if steps[0] >= eighths * num_steps(kind) // 8:
            raise PulledPlugError
        step(self, model)

    ready = prepared(kind, seed)
    recovery = ready.scenario.recovery.model_copy(update={"checkpoint_every_rounds": every_rounds})
    scenario = ready.scenario.model_copy(update={"recovery": recovery})
    num_steps(kind)
    with (
        patch.object(Device, "step", step_or_end),
        patch.object(Monitor, "_evaluate_next", lambda self: False),
        patch.object(run_module, "num_cores", lambda: 1),  # the same each time
        suppress(PulledPlugError),
    ):
        run_scenario(prepare(scenario), place, inline=True, console=console())
        raise AssertionError("the run should have been interrupted")
    _evaluate(place, finished(kind, seed), ready.training.evaluation_rounds[:num_evaluated])
    return place


def _evaluate(place, calm, evaluations):
    """Let the first evaluations be done, if all devices have left their models."""
    directory = RunDirectory(place)
    evaluations = [
        evaluation for evaluation in evaluations if directory.has_snapshots(evaluation, 3)
    ]
    rows = RunDirectory(calm).read_rows("evaluations.parquet")
    starts = [number for number, row in enumerate(rows) if row["model"] == "consensus"]
    if evaluations:
        done = rows[: starts[len(evaluations)]]
        columns = columns_that_hold(
            EVALUATIONS, VIRTUAL_EVALUATIONS, {"virtual_time_s": None, **done[0]}
        )
        directory.write_table("evaluations.parquet", done, columns)
    for evaluation in evaluations:
        directory.drop_snapshots(evaluation)


def some_interrupted(chance: random.Random):
    """Path of one of some interrupted runs, and its kind."""
    kind = chance.choice(sorted(KINDS))
    every_rounds = chance.choice([1, 2])
    return kind, interrupted(kind, chance.choice([3, 6]), chance.choice([0, 1]), every_rounds)


@contextmanager
def prepared_once():
    """Resume without reading the data and checking the scenario again and again."""
    known = {}

    def remember(scenario, **options):
        text = scenario.model_dump_json()
        if text not in known:
            known[text] = prepare(scenario, **options)
        return known[text]

    with patch.object(run_module, "prepare", remember):
        yield


def resumed(place):
    """Go on with a run in this process."""
    return resume_run(place, inline=True, console=console())


@cache
def expected(kind):
    """Outcome of an undisturbed run."""
    return outcome(finished(kind))


def outcome(place):
    """All that must be the same bits, of a finished run."""
    tables = {
        name: pd.read_parquet(place / f"{name}.parquet").drop(
            columns=list(WALL_COLUMNS), errors="ignore"
        )
        for name in ("rounds", "messages", "evaluations", "devices")
    }
    models = {
        f"{path.name}/{key}": array.tobytes()
        for path in sorted((place / "models").iterdir())
        for key, array in np.load(path, allow_pickle=False).items()
    }
    return {name: table.to_json() for name, table in tables.items()} | models
