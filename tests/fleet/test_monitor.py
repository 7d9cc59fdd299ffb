"""What is shown of a run while it goes on."""

from __future__ import annotations

import asyncio
import io
import re
from math import isnan, nan
from typing import cast

import pytest
import torch
from rich.console import Console

from edgesim.fleet.recording import monitor
from edgesim.fleet.recording.evaluation import CONSENSUS, Evaluator
from edgesim.fleet.recording.evaluation_progress import EvaluationProgress
from edgesim.fleet.transport.progress import Progress
from edgesim.results.columns import EVALUATIONS
from edgesim.results.run_directory import RunDirectory, RunDirectoryError
from edgesim.results.snapshot import Snapshot


@pytest.mark.parametrize(
    ("losses", "shown"),
    [((1.0, 2.0), "loss 1.500"), ((1.0, nan), "loss 1.000"), ((nan, nan), "loss -")],
    ids=["all know theirs", "one was restarted", "none has one"],
)
def test_the_loss_is_the_mean_of_those_that_have_one(monkeypatch, losses, shown):
    monkeypatch.setattr(monitor, "LOG_INTERVAL_S", -1.0)  # a line each time
    said = io.StringIO()
    display = monitor._Display(Console(file=said, width=200), total=20)
    parts = [
        Progress(num_devices=1, rounds_done=5, slowest_round=5, loss=loss, sent_bytes=0)
        for loss in losses
    ]
    display.show(parts, num_rounds=10)
    assert said.getvalue() == f"round 5/10, {shown}, sent 0 bytes\n"
    assert display._progress.tasks[0].completed == 10


def test_a_line_of_progress_says_what_is_left_once_that_can_be_known(monkeypatch):
    """A round of one device each 10 s, and 20 in all; a line after more than the interval."""
    now_s = [0.0]
    monkeypatch.setattr(monitor, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(monitor, "LOG_INTERVAL_S", 10.0)
    said = io.StringIO()
    display = monitor._Display(Console(file=said, width=200), total=20)
    monkeypatch.setattr(display._progress, "get_time", lambda: now_s[0])
    for done in (1, 2, 3, 4):
        now_s[0] = 10.0 * done
        display.show([Progress(1, done, done, loss=0.5, sent_bytes=7)], num_rounds=20)
    assert said.getvalue().splitlines() == [
        "round 2/20, loss 0.500, sent 7 bytes, about 180 s left",
        "round 4/20, loss 0.500, sent 7 bytes, about 160 s left",
    ]


def test_a_warning_is_printed_as_it_is_however_long_and_whatever_the_terminal():
    said = io.StringIO()
    console = Console(file=said, width=20, force_terminal=True, color_system="standard")
    monitor._Display(console, total=20).warn("gossip.averaging_rate [bold] 0.25 is too much")
    assert said.getvalue() == "warning: gossip.averaging_rate [bold] 0.25 is too much\n"


def test_an_evaluation_is_told_and_its_accuracy_stays():
    said = io.StringIO()
    display = monitor._Display(Console(file=said, width=200), total=20)
    row = {"round": 5, "epoch": 2.5, "accuracy": 0.75, "loss": 0.5, "consensus_distance": 0.125}
    display.evaluated(row)
    assert said.getvalue() == (
        "epoch 2.5 (round 5): consensus accuracy 0.7500, loss 0.5000, consensus distance 0.125\n"
    )
    assert display._progress.tasks[0].fields["accuracy"] == "0.7500"


FIGURES = [Progress(num_devices=1, rounds_done=5, slowest_round=5, loss=1.0, sent_bytes=0)]


@pytest.mark.parametrize(("interval_s", "num_lines"), [(-1.0, 3), (3600.0, 0)])
def test_lines_of_progress_are_printed_at_intervals(monkeypatch, interval_s, num_lines):
    monkeypatch.setattr(monitor, "LOG_INTERVAL_S", interval_s)
    said = io.StringIO()
    display = monitor._Display(Console(file=said, width=200), total=20)
    for _ in range(3):
        display.show(FIGURES, num_rounds=10)
    assert said.getvalue().count("round 5/10") == num_lines
    assert display._progress.disable, "nothing is drawn where no terminal is"


def test_on_a_terminal_one_line_is_kept_up_to_date_and_taken_away_in_the_end(monkeypatch):
    """Whatever the interval of lines. ESC [2K erases a line."""
    monkeypatch.setattr(monitor, "LOG_INTERVAL_S", -1.0)
    said = io.StringIO()
    console = Console(file=said, width=200, force_terminal=True, color_system=None)
    display = monitor._Display(console, total=20)
    with display:
        first = said.getvalue()
        display.show(FIGURES, num_rounds=10)
    line = r"round - {100,}loss -  consensus accuracy - sent - 0:00:00 left -:--:--"
    assert re.search(line, first)
    assert "sent 0 bytes\n" not in said.getvalue()
    assert said.getvalue().endswith("\x1b[2K")


def test_how_far_an_evaluation_is_is_shown_with_the_number_of_models():
    class Shown:
        def text(self, done, total):
            return f"{done}/{total}"

    display = monitor._Display(Console(file=io.StringIO()), total=20)
    display.evaluating(cast("EvaluationProgress", Shown()))(3, 7)
    assert display._progress.tasks[0].fields["evaluated"] == "  3/7"


@pytest.mark.parametrize(("num_actors", "seconds"), [(1, 0.5), (2, 0.5), (8, 2), (1000, 5)])
def test_many_actors_are_asked_more_rarely(num_actors, seconds):
    assert monitor.pause_s(num_actors) == seconds


def a_monitor(directory, evaluator=None, **settings):
    """Of one device and ten rounds, with nothing to evaluate, unless told otherwise."""
    usual = {
        "num_devices": 1,
        "num_rounds": 10,
        "evaluation_rounds": [],
        "device_models": "never",
        "num_test_samples": 50,
        "console": Console(file=io.StringIO()),
    }
    return monitor.Monitor(directory, cast("Evaluator", evaluator), **(usual | settings))


def test_it_stops_at_once_however_long_its_pauses(monkeypatch, tmp_path):
    monkeypatch.setattr(monitor, "pause_s", lambda num_actors: 3600.0)
    looking_on = a_monitor(RunDirectory(str(tmp_path)))

    async def poll() -> list[Progress]:
        asyncio.get_running_loop().call_later(0.1, looking_on.stop_watching)  # in its pause
        return [Progress(1, rounds_done=5, slowest_round=5, loss=1.0, sent_bytes=0)]

    asyncio.run(looking_on.watch(poll))
    assert looking_on.rounds_done == 5


def test_in_the_end_all_rounds_of_all_devices_are_shown_as_done(tmp_path):
    looking_on = a_monitor(RunDirectory(str(tmp_path)), num_devices=3)
    looking_on.finish()
    assert looking_on.rounds_done == 10
    shown = looking_on._display._progress.tasks[0]
    assert (shown.completed, shown.total) == (30, 30)


def test_it_looks_on_in_pauses_until_it_is_stopped(monkeypatch, tmp_path):
    pauses = []
    monkeypatch.setattr(monitor, "pause_s", lambda num_actors: pauses.append(num_actors) or 0.01)
    looking_on = a_monitor(RunDirectory(str(tmp_path)))
    assert looking_on.rounds_done == 0

    async def poll() -> list[Progress]:
        if len(pauses) == 4:
            looking_on.stop_watching()
        return [Progress(1, rounds_done=5, slowest_round=5, loss=1.0, sent_bytes=0)] * 3

    async def conduct() -> None:
        async with asyncio.timeout(60):
            await looking_on.watch(poll)

    asyncio.run(conduct())
    assert pauses == [3] * 5


class Evaluators:
    """Says that each model got everything right; remembers which rounds it was asked about."""

    def __init__(self):
        self.asked = []

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
    monkeypatch.setattr(monitor, "LOG_INTERVAL_S", -1.0)  # a line each time
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
        return [Progress(1, rounds_done=2, slowest_round=2, loss=1.0, sent_bytes=0)]

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


def test_of_earlier_versions_columns_are_taken_as_unknown(tmp_path):
    directory = RunDirectory.create(tmp_path / "run")
    early = tuple(column for column in EVALUATIONS if column.name != "model_norm")
    directory.write_table("evaluations.parquet", evaluation_rows(2, devices=()), early)
    looking_on = a_monitor(directory, num_rounds=4, evaluation_rounds=[2])
    looking_on.go_on()
    assert looking_on.rounds_done is None
    (row,) = looking_on.rows
    assert isnan(row["model_norm"])
    assert row["virtual_time_s"] is None


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
