"""Runs that end in the middle, each trained once and copied for every test that goes on with it."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console
from small_fleets import train

from edgesim.device.device import Device
from edgesim.errors import EdgesimError
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.run import RunResult, resume_run

OFTEN = ("recovery.checkpoint_every_rounds=2",)
FREE = (
    "fleet.devices=[{profile: raspberry-pi-5, count: 3}, {profile: raspberry-pi-4b}]",
    "fleet.pace=free",
)
KINDS = {
    "ring": (),
    "eight bits, one file for all rounds": ("model.precision=int8",),
    "quasi-global momentum": ("training.optimizer.momentum_kind=quasi_global",),
    "quasi-global Adam": ("training.optimizer={kind: quasi_global_adam, lr: 0.002}",),
    "churn": ("topology.kind=complete", "fleet.churn={joins: [{device: 1, round: 2}]}"),
    "free": FREE,
    "free until": (
        *FREE,
        "topology.kind=ring",
        "training={rounds: 60, virtual_time_s: 0.004, optimizer: {lr: 0.02}}",
        "evaluation={every_virtual_s: 0.001, samples: 20}",
    ),
    "free churn and batteries": (
        (
            "fleet={pace: free, devices: [{profile: raspberry-pi-5, count: 3}, {profile: "
            "raspberry-pi-5, battery_wh: 4.0e-6}], churn: {absent: [{device: 1, from_s: 0.0005, "
            "until_s: 0.001}], joins: [{device: 2, at_s: 0.0003}]}, presumed_dead_after_s: 0.0005}"
        ),
        "topology.kind=complete",
        "training={rounds: 60, virtual_time_s: 0.004, optimizer: {lr: 0.02}}",
        "evaluation={every_virtual_s: 0.001, samples: 20}",
    ),
}


class PulledPlugError(EdgesimError):
    """Stands for the end of the machine."""


class Runs:
    """Undisturbed and interrupted runs of the small fleet, by their overrides.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._calm: dict[tuple[str, ...], RunResult] = {}
        self._interrupted: dict[tuple[object, ...], Path] = {}

    def calm(self, *overrides: str) -> RunResult:
        """An undisturbed run, which is to be read only."""
        if overrides not in self._calm:
            folder = self._new_folder()
            self._calm[overrides] = train(folder, "run", *overrides, inline=True)
        return self._calm[overrides]

    def interrupted(
        self, place: Path, *overrides: str, at_step: int, num_evaluated: int | None = None
    ) -> None:
        """Leave a run at a place that ended at the n-th step of its devices.

        Args:
            place: of its directory.
            overrides: of the small scenario, after checkpoints every two rounds.
            at_step: which step ends it.
            num_evaluated: evaluations that were made until then, at most.
        """
        key = (overrides, at_step, num_evaluated)
        if key not in self._interrupted:
            folder = self._new_folder()
            train_and_interrupt(folder, *overrides, at_step=at_step, num_evaluated=num_evaluated)
            self._interrupted[key] = folder / "run"
        shutil.copytree(self._interrupted[key], place)

    def _new_folder(self) -> Path:
        folder = self._folder / str(next(self._numbers))  # also after one that was not made
        folder.mkdir()
        return folder


def train_and_interrupt(
    folder: Path, *overrides: str, at_step: int, num_evaluated: int | None = None
) -> None:
    """Train into folder/run until the n-th step, or at most so many evaluations."""
    steps, evaluations = count(1), count(1)
    step, evaluate = Device.step, Monitor._evaluate_next

    def step_or_end(self, model):
        if next(steps) == at_step:
            raise PulledPlugError("the plug is pulled")
        step(self, model)

    def evaluate_or_not(self):
        return next(evaluations) <= num_evaluated and evaluate(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Device, "step", step_or_end)
        if num_evaluated is not None:
            patched.setattr(Monitor, "_evaluate_next", evaluate_or_not)
        with pytest.raises(PulledPlugError):
            train(folder, "run", *OFTEN, *overrides, inline=True)


def resumed(folder: Path) -> RunResult:
    """Go on with folder/run; what is said is in folder/resume.log."""
    with (folder / "resume.log").open("w") as log:
        return resume_run(folder / "run", console=Console(file=log))


def flip(path: Path) -> None:
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
