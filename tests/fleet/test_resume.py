"""A run that was interrupted goes on to the bits that it would have had."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from functools import partial
from io import StringIO
from itertools import count
from uuid import uuid4

import pandas as pd
import pytest
from rich.console import Console
from small_fleets import assert_same_bits, prepared, train

from edgesim import UnfinishedRunWarning, load_run
from edgesim.device.device import Device
from edgesim.errors import EdgesimError
from edgesim.fleet import run as run_module
from edgesim.fleet.recording.monitor import Monitor
from edgesim.fleet.recovery.checkpoints import NoSoundCheckpointError
from edgesim.fleet.run import resume_run, run_scenario
from edgesim.fleet.transport.network import EnvelopesLostError
from edgesim.results import run_directory
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.run_directory import RunDirectory, RunDirectoryError
from edgesim.storage.lease import Fence, Lease, LeaseError
from edgesim.storage.store import StorageError, Store

OFTEN = ("recovery.checkpoint_every_rounds=2",)
FREE = (
    "fleet.devices=[{profile: raspberry-pi-5, count: 3}, {profile: raspberry-pi-4b}]",
    "fleet.pace=free",
)
KINDS = {
    "ring": (),
    "eight bits, one file for all rounds": ("model.precision=int8",),
    "quasi-global momentum": ("training.optimizer.momentum_kind=quasi_global",),
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


AWAY = {
    "at times, in lockstep": (
        "topology.kind=complete",
        "training.rounds=12",
        (
            "fleet.churn={absent: [{device: 1, from_round: 2, until_round: 4}], "
            "joins: [{device: 2, round: 3}], leaves: [{device: 3, round: 4}]}"
        ),
    ),
    "by chance": (
        "topology.kind=complete",
        "training.rounds=12",
        "fleet.churn={random: {absence_probability: 0.4, mean_absence_rounds: 2}}",
    ),
    "free": (
        *KINDS["free churn and batteries"][1:],
        (
            "fleet={pace: free, devices: [{profile: raspberry-pi-5, count: 3}, {profile: "
            "raspberry-pi-5, battery_wh: 4.0e-6}], churn: {absent: [{device: 1, from_s: 0.0005, "
            "until_s: 0.001}], leaves: [{device: 2, at_s: 0.0008}]}, presumed_dead_after_s: 0.0005}"
        ),
    ),
}


class PulledPlugError(EdgesimError):
    """Stands for the end of the machine."""


def interrupted(tmp_path, monkeypatch, kind, at_step):
    """A run that ends at the n-th step of its devices."""
    step, steps = Device.step, [0]

    def step_or_end(self, model):
        steps[0] += 1
        if steps[0] == at_step:
            raise PulledPlugError("the plug is pulled")
        step(self, model)

    with monkeypatch.context() as patched:
        patched.setattr(Device, "step", step_or_end)
        with pytest.raises(PulledPlugError):
            train(tmp_path, "run", *OFTEN, *KINDS[kind], inline=True)


def resumed(tmp_path):
    with (tmp_path / "resume.log").open("w") as log:
        return resume_run(tmp_path / "run", console=Console(file=log))


@pytest.mark.parametrize(
    ("kind", "at_step"),
    [
        ("ring", 2),
        ("ring", 11),
        *((kind, 19) for kind in KINDS),
        ("free churn and batteries", 35),
    ],
)
def test_a_resumed_run_ends_as_if_nothing_had_happened(tmp_path, monkeypatch, kind, at_step):
    calm = train(tmp_path, "calm", *KINDS[kind], inline=True)
    interrupted(tmp_path, monkeypatch, kind, at_step)
    assert_same_bits(calm, resumed(tmp_path))
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {"parts", "checkpoints", "snapshots"}
    if kind == "free churn and batteries":
        assert list(calm.summary["dead_devices"]) == ["3"]


def test_a_run_that_ended_in_its_last_evaluation_goes_on_there(tmp_path, monkeypatch):
    calm = train(tmp_path, "calm", inline=True)

    def end(self):
        raise PulledPlugError("the plug is pulled")

    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "finish", end)
        with pytest.raises(PulledPlugError):
            train(tmp_path, "run", *OFTEN, inline=True)
    assert_same_bits(calm, resumed(tmp_path))


def test_what_was_recorded_can_be_read_before_it_goes_on(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, "ring", 15)
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    assert 0 < len(rounds) < 24
    assert not rounds.duplicated(["device", "round"]).any()
    log = (tmp_path / "run.log").read_text()
    assert f"; go on with: edgesim resume {tmp_path / 'run'}\n" in log


ROUND_LOSSES = {
    "in between": ("device-000001/*-000000002.parquet", "lacks round 2 of device 1"),
    "the first": ("device-000002/*-000000000.parquet", "lacks round 0 of device 2"),
    "the last of those before a checkpoint": (
        "device-000000/*-00000000[2-9].parquet",
        "lacks round 2 of device 0",
    ),
    "all": ("device-000003/*", "lacks round 0 of device 3"),
}


@pytest.mark.parametrize("kind", ["ring", "free"])
@pytest.mark.parametrize("loss", ROUND_LOSSES)
def test_an_unfinished_run_that_lost_rounds_is_not_loaded(tmp_path, monkeypatch, kind, loss):
    interrupted(tmp_path, monkeypatch, kind, 22)
    with pytest.warns(UnfinishedRunWarning):
        assert len(load_run(tmp_path / "run").rounds) >= 16
    pattern, said = ROUND_LOSSES[loss]
    for path in list((tmp_path / "run" / "parts").glob(pattern)):
        path.unlink()
    with pytest.raises(RunDirectoryError, match=rf"run/parts: {said}; bring it back") as caught:
        load_run(tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("at_step", [12, 20, 33])
@pytest.mark.parametrize("kind", AWAY)
def test_an_unfinished_run_whose_devices_were_away_is_loaded(tmp_path, monkeypatch, kind, at_step):
    """At times of their own, or as one who joins or leaves: no round of theirs is lost."""
    monkeypatch.setitem(KINDS, kind, AWAY[kind])
    interrupted(tmp_path, monkeypatch, kind, at_step)
    with pytest.warns(UnfinishedRunWarning):
        load_run(tmp_path / "run")


def test_the_environment_says_when_a_run_went_on(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, "ring", 11)
    resumed(tmp_path)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["mode"] == "inline"
    assert [attempt["mode"] for attempt in environment["resumed"]] == ["inline"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["resumes"], summary["actor_restarts"]) == (1, 0)


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path, monkeypatch, caplog
):
    calm = train(tmp_path, "calm", inline=True)
    interrupted(tmp_path, monkeypatch, "ring", 24)  # the last step: all are beyond their fourth
    directory = RunDirectory(tmp_path / "run")
    rounds = directory.checkpoint_rounds(0)
    assert len(rounds) >= 2
    data = bytearray(directory.read_checkpoint(0, rounds[-1]))
    data[len(data) // 2] ^= 1
    directory.write_checkpoint(0, rounds[-1], bytes(data))
    assert_same_bits(calm, resumed(tmp_path))
    assert f"checkpoint of device 0 after round {rounds[-1]} can't be used" in caplog.text


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


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
    tmp_path, monkeypatch, caplog, loss
):
    """Checkpoints after rounds 2 and 4, models and rounds between them."""
    calm = train(tmp_path, "calm", inline=True)
    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "_evaluate_next", lambda self: False)
        interrupted(tmp_path, monkeypatch, "ring", 24)
    assert RunDirectory(tmp_path / "run").checkpoint_rounds(1) == [2, 4]
    LOSSES[loss](tmp_path / "run")
    assert_same_bits(calm, resumed(tmp_path))
    assert "after round 4 can't be used: " in caplog.text


@pytest.mark.parametrize("kept", [0, 1])
def test_a_model_that_no_checkpoint_can_make_again_ends_the_attempt(tmp_path, monkeypatch, kept):
    """Also where one evaluation had been done: then the second one is lost."""
    num_done = count()
    evaluate = Monitor._evaluate_next
    often = (*OFTEN, "recovery.checkpoint_every_rounds=1", "evaluation.every_rounds=1")
    with monkeypatch.context() as patched:
        patched.setattr(
            Monitor, "_evaluate_next", lambda self: next(num_done) < kept and evaluate(self)
        )
        patched.setitem(KINDS, "often", often)
        interrupted(tmp_path, monkeypatch, "often", 24)
    for path in (tmp_path / "run" / "snapshots").glob(f"*-00000000{1 + kept}-*.npz"):
        path.unlink()
    directory = RunDirectory(tmp_path / "run")
    before = [directory.checkpoint_rounds(device) for device in range(4)]
    said = rf"none of its \d checkpoints .*round-00000000{1 + kept}-device-00000\d.npz: missing"
    with pytest.raises(NoSoundCheckpointError, match=said) as caught:
        resumed(tmp_path)
    assert "\n" not in str(caught.value)
    assert [directory.checkpoint_rounds(device) for device in range(4)] == before


def test_a_device_without_any_checkpoint_does_not_wait_for_what_nobody_has(tmp_path, monkeypatch):
    often = (*OFTEN, "recovery.checkpoint_every_rounds=1", "training.rounds=10")
    with monkeypatch.context() as patched:
        patched.setitem(KINDS, "often", often)
        interrupted(tmp_path, monkeypatch, "often", 36)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "device-000002")
    with pytest.raises(EnvelopesLostError, match="files in checkpoints/device-000002 are lost"):
        resumed(tmp_path)


def test_a_finished_run_says_so_and_gives_its_result_again(tmp_path):
    """Who starts a run again whenever it has ended, as a KubeRay job does, needs no error."""
    result = train(tmp_path, "run", inline=True)
    assert resumed(tmp_path) == result
    said = (tmp_path / "resume.log").read_text()
    assert said == f"{tmp_path / 'run'}: this run is finished; there is nothing to do\n"


LEFT_BY_A_RUN = (
    *("rounds", "messages", "evaluations", "devices"),
    "models/device-000003",
    "models/device-000000",
)


@pytest.mark.parametrize("name", LEFT_BY_A_RUN)
@pytest.mark.parametrize("loss", ["lost", "longer", "flipped", "empty"])
def test_a_finished_run_of_which_a_file_is_lost_is_not_taken_for_whole(finished, name, loss):
    """What tables could be made from again stays: it was killed before that was removed."""
    path = finished / (f"{name}.npz" if "/" in name else f"{name}.parquet")
    data, part = (
        path.read_bytes(),
        finished / "parts" / "device-000000" / "rounds-000000000.parquet",
    )
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    match loss:
        case "lost":
            path.unlink()
        case "longer":
            path.write_bytes(data + b"x")
        case "flipped":
            flip(path)
        case "empty":
            path.write_bytes(b"")
    try:
        with pytest.raises(
            RunDirectoryError, match=rf"run/{path.relative_to(finished)}: "
        ) as caught:
            resume_run(finished, console=Console(file=StringIO()))
        assert "\n" not in str(caught.value)
        assert part.exists()
    finally:
        path.write_bytes(data)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return train(folder, "run", inline=True).path


@pytest.mark.parametrize("kind", ["free until", "free churn and batteries"])
def test_a_finished_run_by_virtual_time_is_whole(tmp_path, kind):
    result = train(tmp_path, "run", *KINDS[kind], inline=True)
    assert resumed(tmp_path) == result


def test_who_can_not_go_on_is_not_told_to(tmp_path, monkeypatch, caplog):
    interrupted(tmp_path, monkeypatch, "ring", 19)
    shutil.rmtree(tmp_path / "run" / "parts")
    with pytest.raises(NoSoundCheckpointError, match=r"files are missing"):
        resumed(tmp_path)
    assert (tmp_path / "resume.log").read_text() == ""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("has_started", [False, True])
def test_a_stop_is_told_of_by_what_is_known(tmp_path, monkeypatch, has_started):
    """Who goes on has done more rounds than none; before the fleet has started nothing stops."""
    interrupted(tmp_path, monkeypatch, "ring", 19)

    def fail(*_, **__):
        raise PulledPlugError

    with monkeypatch.context() as patched:
        patched.setattr(run_module, *(("conduct", fail) if has_started else ("InlineFleet", fail)))
        with pytest.raises(PulledPlugError):
            resumed(tmp_path)
    said = f"stopped; go on with: edgesim resume {tmp_path / 'run'}\n" if has_started else ""
    assert (tmp_path / "resume.log").read_text() == said


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


def test_files_that_are_not_of_the_run_are_left_alone(tmp_path, monkeypatch):
    calm = train(tmp_path, "calm", inline=True)
    interrupted(tmp_path, monkeypatch, "ring", 19)
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


def test_a_run_with_other_data_is_not_resumed(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, "ring", 11)
    was = RunDirectory(tmp_path / "run")
    now = RunDirectory(tmp_path / "run")
    text, environment = was.read_text("scenario.yaml"), was.read_json("environment.json")
    now.begin("0" * 32)
    now.write_text("scenario.yaml", text)
    now.write_json("environment.json", environment)
    with pytest.raises(RunDirectoryError, match="data or arithmetic are not what this run began"):
        resumed(tmp_path)
    assert (tmp_path / "run" / "checkpoints").exists()


def test_a_folder_that_is_no_run_is_not_resumed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"run.*no run"):
        resumed(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_run_that_still_goes_on_is_not_resumed(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, "ring", 11)
    before = sorted(path.name for path in (tmp_path / "run" / "checkpoints").rglob("*"))
    with (
        RunDirectory(tmp_path / "run").held(),
        pytest.raises(RunDirectoryError, match="still going on in another process"),
    ):
        resumed(tmp_path)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").rglob("*")) == before


def test_a_run_in_an_object_store_that_another_process_took_over_ends_and_spoils_nothing(
    tmp_path, monkeypatch
):
    calm = train(tmp_path, "calm", inline=True)
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


def test_a_place_that_does_not_answer_costs_no_checkpoint(tmp_path, monkeypatch):
    calm = train(tmp_path, "calm", inline=True)
    interrupted(tmp_path, monkeypatch, "ring", 19)
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


def test_a_device_without_a_sound_checkpoint_ends_the_attempt_and_loses_nothing(
    tmp_path, monkeypatch
):
    interrupted(tmp_path, monkeypatch, "ring", 19)
    directory = RunDirectory(tmp_path / "run")
    for round_index in directory.checkpoint_rounds(2):
        directory.write_checkpoint(2, round_index, b"nothing")
    before = directory.checkpoint_rounds(2)
    with pytest.raises(NoSoundCheckpointError, match=r"device 2: none of its \d checkpoints"):
        resumed(tmp_path)
    assert directory.checkpoint_rounds(2) == before


def test_a_trace_that_has_changed_is_noticed(tmp_path, monkeypatch):
    trace = tmp_path / "contacts.csv"
    rows = [f"{t},{a},{(a + 1) % 4},1" for t in range(8) for a in range(4)]
    trace.write_text("time,source,target,duration\n" + "\n".join(rows) + "\n")
    KINDS["trace"] = (f"topology={{kind: trace, path: {trace}, seconds_per_round: 1}}",)
    try:
        interrupted(tmp_path, monkeypatch, "trace", 11)
    finally:
        del KINDS["trace"]
    trace.write_text("time,source,target,duration\n" + "\n".join(rows[:-1]) + "\n")
    with pytest.raises(RunDirectoryError, match="not what this run began with"):
        resumed(tmp_path)


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
