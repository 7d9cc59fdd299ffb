"""The monitor: it tells sinks how a fleet goes on, and evaluates models."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import cast

import pytest
import torch
from rich.console import Console

from edgesim.fleet.recording import monitor, view
from edgesim.fleet.recording.evaluation import Evaluator
from edgesim.fleet.recording.fleet_state import FleetFacts
from edgesim.fleet.recording.view import PlainView
from edgesim.fleet.transport.progress import DeviceProgress, Progress
from edgesim.results.columns import CONSENSUS
from edgesim.results.run_directory import RunDirectory, RunDirectoryError
from edgesim.results.snapshot import Snapshot
from edgesim.storage.store import StorageError


@pytest.mark.parametrize(
    ("num_actors", "num_devices", "seconds"),
    [(1, 0, 0.5), (2, 2, 0.5), (8, 8, 2), (1000, 1000, 5), (8, 600, 2), (8, 6000, 10)],
)
def test_many_actors_and_devices_are_asked_more_rarely(num_actors, num_devices, seconds):
    assert monitor.pause_s(num_actors, num_devices) == seconds


def a_monitor(directory, evaluator=None, *, num_devices=1, num_rounds=10, names=(), **settings):
    """Of one device and ten rounds, with nothing to evaluate, unless told otherwise."""
    console = settings.pop("console", Console(file=io.StringIO(), width=200))
    usual = {
        "facts": FleetFacts(num_devices=num_devices, num_rounds=num_rounds, names=names),
        "evaluation_rounds": [],
        "device_models": "never",
        "num_test_samples": 50,
        "view": PlainView(console),
    }
    return monitor.Monitor(directory, cast("Evaluator", evaluator), **(usual | settings))


def progress_of(*rounds, num_rounds=10, **more):
    """Of one host, whose devices have done so many rounds."""
    devices = [
        DeviceProgress(device=device, rounds_done=done, loss=1.0, **more)
        for device, done in enumerate(rounds)
    ]
    return Progress(num_rounds, tuple(devices))


class Told:
    """A sink that remembers what it was told."""

    def __init__(self):
        self.states, self.rows, self.is_closed = [], [], False

    def update(self, fleet):
        self.states.append(fleet)

    def evaluated(self, rows):
        self.rows.append(rows)

    def close(self):
        self.is_closed = True


def test_it_stops_at_once_however_long_its_pauses(monkeypatch, tmp_path):
    monkeypatch.setattr(monitor, "pause_s", lambda *_: 3600.0)
    looking_on = a_monitor(RunDirectory(str(tmp_path)))

    async def poll() -> list[Progress]:
        asyncio.get_running_loop().call_later(0.1, looking_on.stop_watching)  # in its pause
        return [progress_of(5)]

    asyncio.run(looking_on.watch(poll))
    assert looking_on.rounds_done == 5


def test_rounds_are_done_once_all_devices_are_heard_of(tmp_path):
    looking_on = a_monitor(RunDirectory(str(tmp_path)), num_devices=2)
    looking_on.go_on()

    async def poll() -> list[Progress]:
        return [answers.pop(0)]

    for answer, said in [((), None), ((7,), None), ((7, 6), 6), ((), 6)]:
        answers = [progress_of(*answer)]
        asyncio.run(looking_on.take_last_state(poll))
        assert looking_on.rounds_done == said


def test_devices_of_a_lost_actor_are_absent_also_if_it_was_restoring_them(tmp_path):
    told = Told()
    looking_on = a_monitor(RunDirectory(str(tmp_path)), num_devices=2, sinks=[told])

    async def poll() -> list[Progress]:
        return [Progress(10, (), absent=(0, 1))]

    asyncio.run(looking_on.take_last_state(poll))
    assert told.states[-1].absent == {0, 1}


def test_in_the_end_all_rounds_are_done(tmp_path):
    looking_on = a_monitor(RunDirectory(str(tmp_path)), num_devices=3)
    looking_on.finish()
    assert looking_on.rounds_done == 10


def test_it_looks_on_in_pauses_until_it_is_stopped(monkeypatch, tmp_path):
    pauses = []
    monkeypatch.setattr(monitor, "pause_s", lambda num_actors, _: pauses.append(num_actors) or 0.01)
    looking_on = a_monitor(RunDirectory(str(tmp_path)))
    assert looking_on.rounds_done == 0

    async def poll() -> list[Progress]:
        if len(pauses) == 4:
            looking_on.stop_watching()
        return [progress_of(5)] * 3

    async def conduct() -> None:
        async with asyncio.timeout(60):
            await looking_on.watch(poll)

    asyncio.run(conduct())
    assert pauses == [3] * 5


class Evaluators:
    """Says that each model got everything right; remembers which rounds it was asked about."""

    def __init__(self):
        self.asked, self.distances = [], {0: 0.25}

    def close(self):
        pass

    def evaluate(self, snapshots, *, devices_too, tell):
        round_index = snapshots[0].round_index
        self.asked.append(round_index)
        return evaluation_rows(round_index, devices=range(len(snapshots)) if devices_too else ())


def evaluation_rows(round_index, devices):
    return [
        {
            "round": round_index,
            "epoch": round_index / 2,
            "model": "consensus" if device == CONSENSUS else "device",
            "device": device,
            "accuracy": 1.0,
            "loss": 0.0,
            "consensus_distance": 0.0,
            "model_norm": 1.0,
            "virtual_time_s": None,
        }
        for device in (CONSENSUS, *devices)
    ]


def test_a_run_that_is_gone_on_with_evaluates_every_round_that_was_not(tmp_path):
    """Each evaluation has a row of the consensus model and one of each of the two devices."""
    directory, evaluators = RunDirectory.create(tmp_path / "run"), Evaluators()

    def monitor_of_run():
        return a_monitor(
            directory,
            evaluators,
            num_devices=2,
            num_rounds=8,
            evaluation_rounds=[2, 4, 6, 8],
            device_models="every",
        )

    def leave_snapshots(*rounds):
        for round_index in rounds:
            for device in range(2):
                x = torch.zeros(1)
                directory.write_snapshot(
                    Snapshot(device, round_index, round_index, x, 1.0, x, None)
                )

    leave_snapshots(2)
    with pytest.raises(RunDirectoryError, match=r"round-000000004-device-000000.npz .* missing"):
        monitor_of_run().finish()
    assert evaluators.asked == [2]
    leave_snapshots(4, 6, 8)
    again = monitor_of_run()
    again.go_on()
    again.finish()
    assert evaluators.asked == [2, 4, 6, 8]
    expected = [row for r in (2, 4, 6, 8) for row in evaluation_rows(r, devices=(0, 1))]
    assert again.rows == expected
    columns = directory.read_table("evaluations.parquet").to_pydict()
    assert columns["round"] == [row["round"] for row in expected]
    assert columns["device"] == [row["device"] for row in expected]


def test_models_are_evaluated_and_rounds_are_shown_while_the_fleet_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "FIRST_LINE_S", -1.0)
    monkeypatch.setattr(view, "LINE_INTERVAL_S", -1.0)  # a line each time
    directory, said = RunDirectory.create(tmp_path / "run"), io.StringIO()
    x, evaluators = torch.zeros(1), Evaluators()
    directory.write_snapshot(Snapshot(0, 2, 2, x, 1.0, x, None))
    console = Console(file=said, width=200)
    looking_on = a_monitor(
        directory, evaluators, num_rounds=4, evaluation_rounds=[2, 4], console=console
    )

    async def poll() -> list[Progress]:
        if evaluators.asked:
            looking_on.stop_watching()
        return [progress_of(2, num_rounds=4)]

    asyncio.run(looking_on.watch(poll))
    assert evaluators.asked == [2]
    assert [row["round"] for row in looking_on.rows] == [2]
    assert said.getvalue().startswith("round 2/4, loss 1.000")


def test_it_is_told_how_many_models_are_evaluated_and_rows_have_names(tmp_path, monkeypatch):
    class Tells(Evaluators):
        def evaluate(self, snapshots, *, devices_too, tell):
            tell(0, 3)
            return super().evaluate(snapshots, devices_too=devices_too, tell=tell)

    directory, said = RunDirectory.create(tmp_path / "run"), io.StringIO()
    for device in range(4):
        x = torch.zeros(1)
        directory.write_snapshot(Snapshot(device, 4, 4, x, 1.0, x, None))
    a_monitor(
        directory,
        Tells(),
        num_devices=4,
        num_rounds=4,
        evaluation_rounds=[4],
        device_models="final",
        num_test_samples=1234,
        console=Console(file=said),
        names=["north", "east", "south", "west"],
    ).finish()
    assert said.getvalue().startswith(
        "evaluating the averaged model and those of 2 of 4 devices on 1,234 images each\n"
    )
    columns = directory.read_table("evaluations.parquet").to_pydict()
    assert columns["name"] == [None, "north", "east", "south", "west"]


@pytest.mark.parametrize(
    ("device_models", "of_devices"), [("every", [2, 4]), ("final", [4]), ("never", [])]
)
def test_models_of_devices_are_evaluated_when_asked_for_and_the_last_ones_stay(
    tmp_path, device_models, of_devices
):
    directory, x = RunDirectory.create(tmp_path / "run"), torch.zeros(1)
    for round_index in (2, 4):
        directory.write_snapshot(Snapshot(0, round_index, round_index, x, 1.0, x, None))
    looking_on = a_monitor(
        directory,
        Evaluators(),
        num_rounds=4,
        evaluation_rounds=[2, 4],
        device_models=device_models,
    )
    looking_on.finish()
    assert [row["round"] for row in looking_on.rows if row["device"] == 0] == of_devices
    assert [directory.has_snapshots(round_index, 1) for round_index in (2, 4)] == [False, True]


def test_an_evaluation_whose_table_could_not_be_written_counts_once(tmp_path, monkeypatch):
    directory, x = RunDirectory.create(tmp_path / "run"), torch.zeros(1)
    directory.write_snapshot(Snapshot(0, 4, 4, x, 1.0, x, None))
    looking_on = a_monitor(directory, Evaluators(), num_rounds=4, evaluation_rounds=[4])

    def fail(*_, **__):
        raise StorageError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "write_table", fail)
        with pytest.raises(StorageError):
            looking_on._evaluate_next()
    looking_on.finish()
    assert [row["round"] for row in looking_on.rows] == [4]
    assert directory.read_table("evaluations.parquet")["round"].to_pylist() == [4]


def test_a_fleet_is_warned_of_once(tmp_path):
    directory, said = RunDirectory.create(tmp_path / "run"), io.StringIO()
    for round_index in (2, 4):
        x = torch.zeros(1)
        directory.write_snapshot(Snapshot(0, round_index, round_index, x, 1.0, x, None))
    a_monitor(
        directory,
        Evaluators(),
        num_rounds=4,
        evaluation_rounds=[2, 4],
        console=Console(file=said),
        warn=lambda rows: f"it diverges from round {rows[0]['round']} on",
    ).finish()
    assert said.getvalue().count("warning: it diverges from round 2 on\n") == 1


def test_an_evaluation_whose_models_are_missing_is_an_error_in_the_end(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", "digest")
    vector = torch.zeros(2)
    for device in (0, 3):
        directory.write_snapshot(Snapshot(device, 5, 5, vector, 1.0, vector, None))
    looking_on = a_monitor(directory, num_devices=4, num_rounds=5, evaluation_rounds=[5])
    said = r"round-000000005-device-000001.npz and 1 like it: missing: .*edgesim resume"
    with pytest.raises(RunDirectoryError, match=said):
        looking_on.finish()


def test_sinks_are_told_of_devices_evaluations_and_restarts(tmp_path):
    directory, evaluators, told = RunDirectory.create(tmp_path / "run"), Evaluators(), Told()
    x = torch.zeros(1)
    directory.write_snapshot(Snapshot(0, 2, 2, x, 1.0, x, None))
    settings = {"num_rounds": 4, "evaluation_rounds": [2, 4], "device_models": "every"}
    looking_on = a_monitor(directory, evaluators, sinks=[told], **settings)
    looking_on.note_restart(range(1))
    looking_on.note_restart(range(1))

    async def poll() -> list[Progress]:
        if evaluators.asked:
            looking_on.stop_watching()
        return [progress_of(2, num_rounds=4)]

    asyncio.run(looking_on.watch(poll))
    first, newest = told.states[0], told.states[-1]
    assert (first.devices[0].rounds_done, dict(first.evaluation)) == (2, {})
    assert newest.evaluation["round"] == 2
    assert newest.evaluated[0]["accuracy"] == 1.0
    assert newest.distances == {0: 0.25}
    assert newest.restarts == {0: 2}
    assert [[row["device"] for row in rows] for rows in told.rows] == [[CONSENSUS, 0]]
    looking_on.close()
    assert told.is_closed


def test_a_sink_that_fails_is_told_no_more_and_training_is_looked_on_at(tmp_path, caplog):
    class Fails(Told):
        def update(self, fleet):
            super().update(fleet)
            raise OSError("no space left on device")

    fails, told = Fails(), Told()
    looking_on = a_monitor(RunDirectory(str(tmp_path)), sinks=[fails, told])
    for done in (1, 2, 3):
        looking_on._observe([progress_of(done)])
    assert [len(sink.states) for sink in (fails, told)] == [1, 3]
    assert caplog.messages == ["Fails failed and is told no more: OSError: no space left on device"]


def test_sinks_are_told_of_progress_also_while_models_are_evaluated(tmp_path, monkeypatch):
    """An evaluation that ends only when the fleet has gone on."""
    monkeypatch.setattr(monitor, "pause_s", lambda *_: 0.01)
    directory, told, went_on = RunDirectory.create(tmp_path / "run"), Told(), threading.Event()

    class Waits(Evaluators):
        def evaluate(self, *args, **more):
            assert went_on.wait(60)
            return super().evaluate(*args, **more)

    x = torch.zeros(1)
    directory.write_snapshot(Snapshot(0, 2, 2, x, 1.0, x, None))
    evaluators = Waits()
    looking_on = a_monitor(directory, evaluators, evaluation_rounds=[2, 10], sinks=[told])
    asked = iter(range(1, 10**6))

    async def poll() -> list[Progress]:
        if next(asked) == 5:
            went_on.set()
        if evaluators.asked:
            looking_on.stop_watching()
        return [progress_of(2)]

    asyncio.run(looking_on.watch(poll))
    assert len(told.states) > 4


def test_sinks_that_take_long_are_told_more_rarely(tmp_path, monkeypatch):
    """A telling of 0.2 s of a core, at most a hundredth of the time: a pause of 20 s."""
    clock = iter(range(1000))
    monkeypatch.setattr(monitor, "thread_time", lambda: 0.2 * next(clock))
    pauses = []
    looking_on = a_monitor(RunDirectory(str(tmp_path)))

    async def wait_for(waiting, pause):
        waiting.close()
        pauses.append(pause)
        looking_on.stop_watching()

    async def poll() -> list[Progress]:
        return [progress_of(5)]

    monkeypatch.setattr(monitor.asyncio, "wait_for", wait_for)
    asyncio.run(looking_on.watch(poll))
    assert max(pauses) == pytest.approx(20)
