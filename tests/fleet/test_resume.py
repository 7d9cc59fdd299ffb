"""A run that was interrupted goes on to the bits that it would have had."""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from io import StringIO
from itertools import count
from uuid import uuid4

import pandas as pd
import pytest
from interrupted_runs import KINDS, OFTEN, PulledPlugError, flip, resumed
from rich.console import Console
from small_fleets import assert_same_bits, prepared, train

from edgesim.device.device import Device
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.run import resume_run, run_scenario
from edgesim.results import run_directory
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.run_directory import RunDirectory
from edgesim.storage.lease import Fence, Lease, LeaseError
from edgesim.storage.store import StorageError, Store


@pytest.mark.parametrize(
    ("kind", "at_step"),
    [
        ("ring", 2),
        ("ring", 11),
        *((kind, 19) for kind in KINDS),
        ("free churn and batteries", 35),
    ],
)
def test_a_resumed_run_ends_as_if_nothing_had_happened(tmp_path, runs, kind, at_step):
    calm = runs.calm(*KINDS[kind])
    runs.interrupted(tmp_path / "run", *KINDS[kind], at_step=at_step)
    assert_same_bits(calm, resumed(tmp_path))
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {"parts", "checkpoints", "snapshots"}
    if kind == "free churn and batteries":
        assert list(calm.summary["dead_devices"]) == ["3"]


def test_a_run_that_ended_in_its_last_evaluation_goes_on_there(tmp_path, runs, monkeypatch):
    calm = runs.calm()

    def end(self):
        raise PulledPlugError("the plug is pulled")

    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "finish", end)
        with pytest.raises(PulledPlugError):
            train(tmp_path, "run", *OFTEN, inline=True)
    assert_same_bits(calm, resumed(tmp_path))


def test_the_environment_says_when_a_run_went_on(tmp_path, runs):
    runs.interrupted(tmp_path / "run", at_step=11)
    resumed(tmp_path)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["mode"] == "inline"
    assert [attempt["mode"] for attempt in environment["resumed"]] == ["inline"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["resumes"], summary["actor_restarts"]) == (1, 0)


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path, runs, caplog):
    calm = runs.calm()
    runs.interrupted(tmp_path / "run", at_step=24)  # the last step: all are beyond their fourth
    directory = RunDirectory(tmp_path / "run")
    rounds = directory.checkpoint_rounds(0)
    assert len(rounds) >= 2
    data = bytearray(directory.read_checkpoint(0, rounds[-1]))
    data[len(data) // 2] ^= 1
    directory.write_checkpoint(0, rounds[-1], bytes(data))
    assert_same_bits(calm, resumed(tmp_path))
    assert f"checkpoint of device 0 after round {rounds[-1]} can't be used" in caplog.text


LOSSES = {
    "all models": lambda run: shutil.rmtree(run / "snapshots"),
    "a model": lambda run: next(run.glob("snapshots/*3-device-000002.npz")).unlink(),
    "a damaged model": lambda run: flip(next(run.glob("snapshots/*3-device-000002.npz"))),
    "a round": lambda run: (run / "parts/device-000001/rounds-000000002.parquet").unlink(),
    "a damaged round": lambda run: flip(run / "parts/device-000001/rounds-000000002.parquet"),
    "messages": lambda run: (run / "parts/device-000001/messages-000000002.parquet").unlink(),
    "damaged messages": lambda run: flip(run / "parts/device-000001/messages-000000002.parquet"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_recorded_and_is_lost_is_made_again_from_an_older_checkpoint(
    tmp_path, runs, caplog, loss
):
    """Checkpoints after rounds 2 and 4, models and rounds between them."""
    calm = runs.calm()
    runs.interrupted(tmp_path / "run", at_step=24, num_evaluated=0)
    assert RunDirectory(tmp_path / "run").checkpoint_rounds(1) == [2, 4]
    LOSSES[loss](tmp_path / "run")
    assert_same_bits(calm, resumed(tmp_path))
    assert "after round 4 can't be used: " in caplog.text


def test_files_that_are_not_of_the_run_are_left_alone(tmp_path, runs):
    calm = runs.calm()
    runs.interrupted(tmp_path / "run", at_step=19)
    foreign = (
        "checkpoints/device-000001/round-abc.ckpt",
        "checkpoints/device-000001/round-7.ckpt",
        "parts/device-000001/rounds-abc.parquet",
        "parts/device-000001/copy-of-rounds-000000000.parquet",
        "parts/notes/rounds-000000000.parquet",
        "snapshots/round-000000003-device-x.npz",
        "snapshots/round-000000006-device-x.npz",
    )
    for name in foreign:
        path = tmp_path / "run" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert_same_bits(calm, resumed(tmp_path))


def test_a_place_that_does_not_answer_costs_no_checkpoint(tmp_path, runs, monkeypatch):
    calm = runs.calm()
    runs.interrupted(tmp_path / "run", at_step=19)
    directory = RunDirectory(tmp_path / "run")
    before = [directory.checkpoint_rounds(device) for device in range(4)]

    def fail(self, device, round_index):
        raise StorageError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "read_checkpoint", fail)
        with pytest.raises(StorageError, match="does not answer"):
            resumed(tmp_path)
    assert [directory.checkpoint_rounds(device) for device in range(4)] == before
    assert_same_bits(calm, resumed(tmp_path))


def test_a_run_in_an_object_store_that_another_process_took_over_ends_and_spoils_nothing(
    tmp_path, runs, monkeypatch
):
    calm = runs.calm()
    place, console = f"memory://{uuid4().hex}/run", Console(file=StringIO())
    store, step, steps = Store.at(place), Device.step, count(1)
    quick = partial(Lease, renew_s=0.05, still_s=1.5, look_s=0.1)
    monkeypatch.setattr(run_directory, "Lease", quick)
    monkeypatch.setattr(run_directory, "Fence", partial(Fence, look_s=0.1))

    def step_and_be_succeeded(self, model):
        if next(steps) == 12:
            store.create("leases/000001.json", b'{"name": "another"}')
            time.sleep(0.2)  # until the next look
        step(self, model)

    with monkeypatch.context() as patched:
        patched.setattr(Device, "step", step_and_be_succeeded)
        with pytest.raises(LeaseError, match="another process has taken over this run"):
            run_scenario(prepared(tmp_path, *OFTEN), place, inline=True, console=console)
    assert store.exists("leases/000001.json")
    assert not store.exists("rounds.parquet")
    result = resume_run(place, console=console)  # the other one does not live
    rounds = RunDirectory(place).read_table("rounds.parquet").to_pandas()
    columns = [column for column in rounds if column not in WALL_COLUMNS]
    quiet_rounds = pd.read_parquet(calm.path / "rounds.parquet")
    pd.testing.assert_frame_equal(rounds[columns], quiet_rounds[columns], check_exact=True)
    assert result.summary["consensus_accuracy"] == calm.summary["consensus_accuracy"]
    assert store.names("leases/*") == []


def test_an_edge_that_falls_silent_does_not_keep_all_checkpoints(tmp_path, monkeypatch):
    most = [0]
    write = RunDirectory.write_checkpoint

    def count(self, device, round_index, data):
        write(self, device, round_index, data)
        most[0] = max(most[0], len(self.checkpoint_rounds(device)))

    monkeypatch.setattr(RunDirectory, "write_checkpoint", count)
    away = "fleet.churn={absent: [{device: 1, from_round: 5}]}"
    train(
        tmp_path, "run", away, "topology.kind=complete", "training.rounds=40",
        "recovery.checkpoint_every_rounds=1", inline=True,
    )  # fmt: skip
    assert 3 <= most[0] <= 9
