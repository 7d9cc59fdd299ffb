"""What can't be gone on with is refused in a line, and stays as it was."""

from __future__ import annotations

import logging
import re
import shutil
from itertools import count

import pytest
from interrupted_runs import OFTEN, PulledPlugError, resumed, train_and_interrupt
from small_fleets import train

from edgesim import UnfinishedRunWarning, load_run
from edgesim.device.device import Device
from edgesim.device.trainer import DivergedError
from edgesim.fleet import run as run_module
from edgesim.fleet.recovery.checkpoints import NoSoundCheckpointError
from edgesim.fleet.stops import starting_rounds
from edgesim.fleet.transport.network import EnvelopesLostError
from edgesim.results.run_directory import RunDirectory, RunDirectoryError
from edgesim.scenario.recovery import RecoverySection
from edgesim.storage.store import StorageError


@pytest.mark.parametrize("kept", [0, 1])
def test_a_model_that_no_checkpoint_can_make_again_ends_the_attempt(tmp_path, runs, kept):
    """Also where one evaluation had been done: then the second one is lost."""
    often = ("recovery.checkpoint_every_rounds=1", "evaluation.every_rounds=1")
    runs.interrupted(tmp_path / "run", *often, at_step=24, num_evaluated=kept)
    for path in (tmp_path / "run" / "snapshots").glob(f"*-00000000{1 + kept}-*.npz"):
        path.unlink()
    directory = RunDirectory(tmp_path / "run")
    before = [directory.checkpoint_rounds(device) for device in range(4)]
    said = rf"none of its \d checkpoints .*round-00000000{1 + kept}-device-00000\d.npz: missing"
    with pytest.raises(NoSoundCheckpointError, match=said) as caught:
        resumed(tmp_path)
    assert "\n" not in str(caught.value)
    assert [directory.checkpoint_rounds(device) for device in range(4)] == before


def test_a_device_without_any_checkpoint_does_not_wait_for_what_nobody_has(tmp_path, runs, caplog):
    often = ("recovery.checkpoint_every_rounds=1", "training.rounds=10")
    runs.interrupted(tmp_path / "run", *often, at_step=36)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "device-000002")
    with pytest.raises(EnvelopesLostError, match="files in checkpoints/device-000002 are lost"):
        resumed(tmp_path)
    assert not any("sent again" in line for line in caplog.messages), "said once, by the error"


def test_a_device_without_a_sound_checkpoint_ends_the_attempt_and_loses_nothing(tmp_path, runs):
    runs.interrupted(tmp_path / "run", at_step=19)
    directory = RunDirectory(tmp_path / "run")
    for round_index in directory.checkpoint_rounds(2):
        directory.write_checkpoint(2, round_index, b"nothing")
    before = directory.checkpoint_rounds(2)
    with pytest.raises(NoSoundCheckpointError, match=r"device 2: none of its \d checkpoints"):
        resumed(tmp_path)
    assert directory.checkpoint_rounds(2) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            r"the data \(data.source: digits\), or what edgesim makes of them, have changed",
        ),
        (
            {"code": {"digest": "0" * 32, "commit": None}},
            r"this is edgesim .*, and this run began with edgesim \S+ \(code 0{8}\), which",
        ),
        ({"code": {}}, r"began with edgesim \S+ \(code not on record\), which may compute another"),
        (
            {"samples": {"training": "0" * 32, "test": "0" * 32}},
            r"the training samples \(data.source: digits\) are not those that this run began with",
        ),
        (
            {"accelerator": "cuda"},
            "the arithmetic is cpu, fp32, and this run began with cuda, fp32",
        ),
    ],
    ids=["data", "code", "code on no record", "samples", "arithmetic"],
)
def test_a_run_with_other_data_or_arithmetic_is_not_resumed(tmp_path, runs, changes, said):
    runs.interrupted(tmp_path / "run", at_step=11)
    was = RunDirectory(tmp_path / "run")
    now = RunDirectory(tmp_path / "run")
    text, environment = was.read_text("scenario.yaml"), was.read_json("environment.json")
    now.begin("0" * 32)
    now.write_text("scenario.yaml", text)
    now.write_json("environment.json", environment | changes)
    with pytest.raises(RunDirectoryError, match=said):
        resumed(tmp_path)
    assert (tmp_path / "run" / "checkpoints").exists()


def test_a_trace_that_has_changed_is_noticed(tmp_path, runs):
    trace = tmp_path / "contacts.csv"
    rows = [f"{t},{a},{(a + 1) % 4},1" for t in range(8) for a in range(4)]
    trace.write_text("time,source,target,duration\n" + "\n".join(rows) + "\n")
    topology = f"topology={{kind: trace, path: {trace}, seconds_per_round: 1}}"
    runs.interrupted(tmp_path / "run", topology, at_step=11)
    for changed in (rows[:-1], rows[:1]):  # the second one connects nobody, which comes later
        trace.write_text("time,source,target,duration\n" + "\n".join(changed) + "\n")
        with pytest.raises(RunDirectoryError, match=r"contacts.csv is not what this run began"):
            resumed(tmp_path)


def test_a_folder_that_is_no_run_is_not_resumed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"run.*no run"):
        resumed(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_run_that_still_goes_on_is_not_resumed(tmp_path, runs):
    runs.interrupted(tmp_path / "run", at_step=11)
    before = sorted(path.name for path in (tmp_path / "run" / "checkpoints").rglob("*"))
    with (
        RunDirectory(tmp_path / "run").held(),
        pytest.raises(RunDirectoryError, match="still going on in another process"),
    ):
        resumed(tmp_path)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").rglob("*")) == before


def test_who_can_not_go_on_is_not_told_to(tmp_path, runs, caplog):
    runs.interrupted(tmp_path / "run", at_step=19)
    shutil.rmtree(tmp_path / "run" / "parts")
    with pytest.raises(NoSoundCheckpointError, match=r"files are missing"):
        resumed(tmp_path)
    assert "go on with" not in (tmp_path / "resume.log").read_text()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("has_started", [False, True])
def test_a_stop_is_told_of_by_what_is_known(tmp_path, runs, monkeypatch, has_started):
    """Who goes on has done more rounds than none; before the fleet has started nothing stops."""
    runs.interrupted(tmp_path / "run", at_step=19)
    directory = RunDirectory(tmp_path / "run")
    first = min(directory.newest_checkpoints(4))
    for device in range(4):  # however far it came
        directory.drop_checkpoints(device, range(first + 1, 20))
    rounds = f"round {first}, that of the last checkpoints\n"
    if has_started:
        directory.write_checkpoint(3, 19, b"")
        rounds = f"rounds {first} to 19, each device from its last checkpoint\n"

    def fail(*_, **__):
        raise PulledPlugError

    with monkeypatch.context() as patched:
        patched.setattr(run_module, *(("conduct", fail) if has_started else ("InlineFleet", fail)))
        with pytest.raises(PulledPlugError):
            resumed(tmp_path)
    said = f"going on from {rounds}"
    if has_started:
        said += f"stopped; go on with: edgesim resume {tmp_path / 'run'}\nit goes on from {rounds}"
    assert (tmp_path / "resume.log").read_text() == said


def test_a_device_without_checkpoint_begins_again(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", "0" * 32)
    for device, round_index in (0, 4), (0, 12), (2, 6):
        directory.write_checkpoint(device, round_index, b"")
    assert directory.newest_checkpoints(4) == [12, 0, 6, 0]


def test_devices_that_have_left_do_not_go_on(tmp_path):
    """A leaver writes its last checkpoints whatever the interval is."""
    leave = "fleet.churn={leaves: [{device: 1, round: 3}]}"
    seldom = "recovery.checkpoint_every_rounds=100"
    train_and_interrupt(
        tmp_path, "topology={kind: complete}", leave, seldom, "training.rounds=12", at_step=30
    )
    newest = RunDirectory(tmp_path / "run").newest_checkpoints(4)
    assert newest[1]
    assert newest == [0, newest[1], 0, 0]
    assert "it goes on from round 0: there is no checkpoint" in (tmp_path / "run.log").read_text()


def test_who_stops_before_the_first_checkpoint_is_told_that_all_is_done_again(tmp_path):
    train_and_interrupt(tmp_path, "recovery.checkpoint_every_rounds=100", at_step=11)
    said = (tmp_path / "run.log").read_text()
    key = "recovery.checkpoint_every_rounds"
    assert f"from round 0: there is no checkpoint; {key} says when one is written\n" in said


def test_the_interval_of_checkpoints_is_one_of_seconds_unless_rounds_are_given(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", "0" * 32)
    said = starting_rounds(directory, 2, RecoverySection())
    assert said.endswith(
        "there is no checkpoint; recovery.checkpoint_every_s says when one is written"
    )


def test_who_has_diverged_is_not_told_to_do_so_again(tmp_path):
    with pytest.raises(DivergedError, match=r"lower training.optimizer.lr"):
        train(tmp_path, "run", "training.optimizer.lr=1.0e+30", inline=True)
    said = (tmp_path / "run.log").read_text()
    assert "resume" not in said
    with pytest.warns(UnfinishedRunWarning):
        rounds = load_run(tmp_path / "run").rounds
    counts = [int((rounds["device"] == device).sum()) for device in range(4)]
    kept = f"{min(counts)} to {max(counts)} rounds of a device"
    if min(counts) == max(counts):
        kept = f"{max(counts)} {'round' if max(counts) == 1 else 'rounds'} of each device"
    assert f"stopped; {kept} are kept: {tmp_path / 'run'}" in said


def test_who_loses_the_folder_of_a_run_is_not_told_to_go_on_with_it(tmp_path, monkeypatch):
    step, steps = Device.step, count(1)

    def step_and_lose_all(self, model):
        if next(steps) == 12:
            (tmp_path / "run").rename(tmp_path / "elsewhere")
        step(self, model)

    monkeypatch.setattr(Device, "step", step_and_lose_all)
    with pytest.raises(StorageError, match=r"run/.*: can't be written") as caught:
        train(tmp_path, "run", *OFTEN, inline=True)
    assert "\n" not in str(caught.value)
    said = (tmp_path / "run.log").read_text()
    assert "edgesim resume" not in said
    assert re.search(rf"stopped after round \d; {tmp_path / 'run'} is gone", said)
    assert not (tmp_path / "run").exists()
