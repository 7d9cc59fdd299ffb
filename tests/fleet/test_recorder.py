"""What is shown of a run while it goes on."""

from __future__ import annotations

import asyncio
import io
from math import nan
from typing import cast

import pytest
import torch
from rich.console import Console

from edgesim.fleet import recorder
from edgesim.fleet.evaluation import CONSENSUS, Evaluator
from edgesim.fleet.evaluation_progress import EvaluationProgress
from edgesim.fleet.progress import Progress
from edgesim.fleet.run_directory import RunDirectory, RunDirectoryError
from edgesim.snapshot import Snapshot


@pytest.mark.parametrize(
    ("losses", "shown"),
    [((1.0, 2.0), "loss 1.500"), ((1.0, nan), "loss 1.000"), ((nan, nan), "loss -")],
    ids=["all know theirs", "one was restarted", "none has one"],
)
def test_the_loss_is_the_mean_of_those_that_have_one(monkeypatch, losses, shown):
    monkeypatch.setattr(recorder, "LOG_INTERVAL_S", -1.0)  # a line each time
    said = io.StringIO()
    display = recorder._Display(Console(file=said, width=200), total=20)
    parts = [
        Progress(num_devices=1, rounds_done=5, slowest_round=5, loss=loss, sent_bytes=0)
        for loss in losses
    ]
    display.show(parts, num_rounds=10)
    assert said.getvalue().startswith(f"round 5/10, {shown}, sent 0 bytes")


FIGURES = [Progress(num_devices=1, rounds_done=5, slowest_round=5, loss=1.0, sent_bytes=0)]


@pytest.mark.parametrize(("interval_s", "num_lines"), [(-1.0, 3), (3600.0, 0)])
def test_lines_of_progress_are_printed_at_intervals(monkeypatch, interval_s, num_lines):
    monkeypatch.setattr(recorder, "LOG_INTERVAL_S", interval_s)
    said = io.StringIO()
    display = recorder._Display(Console(file=said, width=200), total=20)
    for _ in range(3):
        display.show(FIGURES, num_rounds=10)
    assert said.getvalue().count("round 5/10") == num_lines


def test_on_a_terminal_one_line_is_kept_up_to_date_and_taken_away_in_the_end(monkeypatch):
    """Whatever the interval of lines. ESC [2K erases a line."""
    monkeypatch.setattr(recorder, "LOG_INTERVAL_S", -1.0)
    said = io.StringIO()
    console = Console(file=said, width=200, force_terminal=True, color_system=None)
    display = recorder._Display(console, total=20)
    with display:
        first = said.getvalue()
        display.show(FIGURES, num_rounds=10)
    assert "round - " in first
    assert "loss -  consensus accuracy - sent - " in first
    assert "sent 0 bytes\n" not in said.getvalue()
    assert said.getvalue().endswith("\x1b[2K")


def test_how_far_an_evaluation_is_is_shown_with_the_number_of_models():
    class Shown:
        def text(self, done, total):
            return f"{done}/{total}"

    display = recorder._Display(Console(file=io.StringIO()), total=20)
    display.evaluating(cast("EvaluationProgress", Shown()))(3, 7)
    assert display._progress.tasks[0].fields["evaluated"] == "  3/7"


@pytest.mark.parametrize(("num_actors", "seconds"), [(1, 0.5), (2, 0.5), (8, 2), (1000, 5)])
def test_many_actors_are_asked_more_rarely(num_actors, seconds):
    assert recorder.pause_s(num_actors) == seconds


def test_it_stops_at_once_however_long_its_pauses(monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "pause_s", lambda num_actors: 3600.0)
    looking_on = recorder.Recorder(
        RunDirectory(str(tmp_path)),
        cast("Evaluator", None),  # there is nothing to evaluate
        num_devices=1,
        num_rounds=10,
        evaluation_rounds=[],
        device_models="never",
        console=Console(file=io.StringIO()),
    )

    async def poll() -> list[Progress]:
        asyncio.get_running_loop().call_later(0.1, looking_on.stop_watching)  # in its pause
        return [Progress(1, rounds_done=5, slowest_round=5, loss=1.0, sent_bytes=0)]

    asyncio.run(looking_on.watch(poll))
    assert looking_on.rounds_done == 5


def test_in_the_end_all_rounds_of_all_devices_are_shown_as_done(tmp_path):
    looking_on = recorder.Recorder(
        RunDirectory(str(tmp_path)),
        cast("Evaluator", None),  # there is nothing to evaluate
        num_devices=3,
        num_rounds=10,
        evaluation_rounds=[],
        device_models="never",
        console=Console(file=io.StringIO()),
    )
    looking_on.finish()
    assert looking_on.rounds_done == 10
    assert looking_on._display._progress.tasks[0].percentage == 100


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

    def recorder_of_run():
        return recorder.Recorder(
            directory,
            cast("Evaluator", evaluators),
            num_devices=2,
            num_rounds=8,
            evaluation_rounds=[2, 4, 6, 8],
            device_models="every",
            console=Console(file=io.StringIO()),
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
        recorder_of_run().finish()
    assert evaluators.asked == [2]
    leave_snapshots(4, 6, 8)
    again = recorder_of_run()
    again.go_on()
    again.finish()
    assert evaluators.asked == [2, 4, 6, 8]
    expected = [row for r in (2, 4, 6, 8) for row in evaluation_rows(r, devices=(0, 1))]
    assert again.rows == expected
    columns = directory.read_table("evaluations.parquet").to_pydict()
    assert columns["round"] == [row["round"] for row in expected]
    assert columns["device"] == [row["device"] for row in expected]


def test_models_are_evaluated_and_rounds_are_shown_while_the_fleet_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "LOG_INTERVAL_S", -1.0)  # a line each time
    directory, said = RunDirectory.create(tmp_path / "run"), io.StringIO()
    x, evaluators = torch.zeros(1), Evaluators()
    directory.write_snapshot(Snapshot(0, 2, 2, x, 1.0, x, None))
    looking_on = recorder.Recorder(
        directory,
        cast("Evaluator", evaluators),
        num_devices=1,
        num_rounds=4,
        evaluation_rounds=[2, 4],
        device_models="never",
        console=Console(file=said, width=200),
    )

    async def poll() -> list[Progress]:
        if evaluators.asked:
            looking_on.stop_watching()
        return [Progress(1, rounds_done=2, slowest_round=2, loss=1.0, sent_bytes=0)]

    asyncio.run(looking_on.watch(poll))
    assert evaluators.asked == [2]
    assert [row["round"] for row in looking_on.rows] == [2]
    assert said.getvalue().startswith("round 2/4, loss 1.000")


def test_a_fleet_is_warned_of_once(tmp_path):
    directory, said = RunDirectory.create(tmp_path / "run"), io.StringIO()
    for round_index in (2, 4):
        x = torch.zeros(1)
        directory.write_snapshot(Snapshot(0, round_index, round_index, x, 1.0, x, None))
    recorder.Recorder(
        directory,
        cast("Evaluator", Evaluators()),
        num_devices=1,
        num_rounds=4,
        evaluation_rounds=[2, 4],
        device_models="never",
        console=Console(file=said),
        warn=lambda rows: "it diverges",
    ).finish()
    assert said.getvalue().count("warning: it diverges") == 1


def test_an_evaluation_whose_models_are_missing_is_an_error_in_the_end(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", "digest")
    vector = torch.zeros(2)
    for device in (0, 3):
        directory.write_snapshot(Snapshot(device, 5, 5, vector, 1.0, vector, None))
    looking_on = recorder.Recorder(
        directory,
        cast("Evaluator", None),  # it is not asked
        num_devices=4,
        num_rounds=5,
        evaluation_rounds=[5],
        device_models="never",
        console=Console(file=io.StringIO()),
    )
    said = r"round-000000005-device-000001.npz and 1 like it: missing: .*edgesim resume"
    with pytest.raises(RunDirectoryError, match=said):
        looking_on.finish()
