"""What is noted and said of a run that stops before its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np
from rich.console import Console

from edgesim.errors import EdgesimError
from edgesim.fleet.recording.view import say
from edgesim.program import program
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import ABOUT, STOPPED_BY
from edgesim.scenario.recovery import RecoverySection
from edgesim.scenario.schema import Scenario
from edgesim.storage.checkpoint_format import CheckpointError, decode
from edgesim.storage.space import StorageError

BY_ROUNDS = "checkpoint_every_rounds"

_log = logging.getLogger(__name__)


def note_stop(directory: RunDirectory, error: BaseException, *, can_go_on: bool) -> None:
    """Note an error that stops a run in its environment.json.

    An interruption by a person or by the system is no error of edgesim, and is not noted.

    Args:
        directory: of the run.
        error: that stops it.
        can_go_on: whether `resume` may get further.
    """
    if isinstance(error, EdgesimError):
        entry = {"error": str(error).partition("\n")[0], "can_go_on": can_go_on}
        _note(directory, lambda _: {STOPPED_BY: entry})


def count_restart(directory: RunDirectory) -> None:
    """Count an actor that was restarted, in environment.json."""
    _note(directory, lambda was: {"actor_restarts": was.get("actor_restarts", 0) + 1})


def _note(directory: RunDirectory, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change entries of environment.json at once: this process may be killed itself."""
    try:
        if directory.has(ABOUT):
            environment = directory.read_json("environment.json")
            directory.write_json("environment.json", environment | change(environment))
    except EdgesimError as error:
        _log.warning("environment.json could not be changed: %s", error)


@dataclass(frozen=True, slots=True)
class Advice:
    """Says what is kept of a run that stops, and how it goes on.

    Attributes:
        directory: of the run.
        scenario: of the run.
        address: of the Ray cluster that the run was on; None without.
        console: to say it on.
    """

    directory: RunDirectory
    scenario: Scenario
    address: str | None
    console: Console

    def say_how_to_resume(self, rounds_done: int | None) -> None:
        """Say what goes on with the run, and from where.

        Args:
            rounds_done: by all devices, when the fleet was last looked at; None if it never was.
        """
        there = "" if self.address is None else f" --address {self.address}"
        num_devices = self.scenario.fleet.num_devices
        if rounds_done is not None:
            rounds_done = max(rounds_done, min(self.directory.newest_checkpoints(num_devices)))
        command = f"{program()} resume {quote(self.directory.place)}{there}"
        say(self.console, f"{_stopped(rounds_done)}; go on with: {command}")
        start = starting_rounds(self.directory, num_devices, self.scenario.recovery)
        say(self.console, f"it goes on from {start}")

    def end(self, rounds_done: int | None, *, can_go_on: bool) -> None:
        """Join what is recorded, and say what to do, if the run's folder is still there.

        Args:
            rounds_done: as above.
            can_go_on: False of a run that would stop there again: one's own code has stopped it,
                or it has diverged.
        """
        try:
            if not self.directory.has(ABOUT):
                gone = f"{self.directory.place} is gone, and what was recorded with it"
                say(self.console, f"{_stopped(rounds_done)}; {gone}")
                return
            if can_go_on:
                self.say_how_to_resume(rounds_done)
            self.directory.merge_rounds(self.scenario.fleet.names)
            if not can_go_on:
                kept = rounds_kept(self.directory, self.scenario.fleet.num_devices)
                say(self.console, f"stopped; {kept} are kept: {self.directory.place}")
        except EdgesimError as error:
            _log.warning("what was recorded is kept in parts: %s", error)


def rounds_kept(directory: RunDirectory, num_devices: int) -> str:
    """How many rounds of each device are in rounds.parquet, in words.

    Args:
        directory: of a run whose rounds are joined.
        num_devices: of its fleet.
    """
    devices = directory.read_table("rounds.parquet", ["device"])["device"].to_numpy()
    counts = np.bincount(devices, minlength=num_devices)
    fewest, most = int(counts.min()), int(counts.max())
    if fewest < most:
        return f"{fewest:,} to {most:,} rounds of a device"
    return f"{most:,} {'round' if most == 1 else 'rounds'} of each device"


def starting_rounds(directory: RunDirectory, num_devices: int, recovery: RecoverySection) -> str:
    """The rounds from which devices go on, those of their newest checkpoints; in words.

    Devices that have left do not go on.

    Args:
        directory: of the run.
        num_devices: of its fleet.
        recovery: what the scenario says of checkpoints.
    """
    newest = [
        max(rounds, default=0)
        for device, rounds in enumerate(directory.all_checkpoint_rounds(num_devices))
        if not _has_left(directory, device, rounds)
    ] or directory.newest_checkpoints(num_devices)
    first, last = min(newest), max(newest)
    if last == 0:
        key = "checkpoint_every_s" if recovery.checkpoint_every_rounds is None else BY_ROUNDS
        return f"round 0: there is no checkpoint; recovery.{key} says when one is written"
    if first == last:
        return f"round {first}, that of the last checkpoints"
    return f"rounds {first} to {last}, each device from its last checkpoint"


def _has_left(directory: RunDirectory, device: int, rounds: Sequence[int]) -> bool:
    """Whether a device has left, by its last checkpoint, which leavers write twice."""
    if len(rounds) < 2 or rounds[-1] != rounds[-2] + 1:
        return False
    try:
        fields = decode(directory.read_checkpoint(device, rounds[-1])).fields
    except (CheckpointError, StorageError):  # whoever resumes the run is told
        return False
    return bool(fields["device"]["has_left"])


def _stopped(rounds_done: int | None) -> str:
    return "stopped" if rounds_done is None else f"stopped after round {rounds_done}"
