"""Of a large fleet a sample of devices is evaluated: which, with how much work, how it is told."""

from __future__ import annotations

import io

import pandas as pd
import pytest
import torch
from rich.console import Console
from small_fleets import prepared, train

from edgesim.api.checks import prepared_table
from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.cli.answers import result_table
from edgesim.fleet.recording import evaluation, evaluation_progress
from edgesim.fleet.recording.evaluation import Evaluator, evaluated_devices
from edgesim.fleet.recording.evaluation_progress import EvaluationProgress
from edgesim.results.columns import CONSENSUS
from edgesim.results.snapshot import Snapshot


def test_the_sample_follows_from_the_seed_and_grows_at_its_end():
    order = evaluated_devices(1000, 50, seed=1)
    assert sorted(order) == list(range(1000))
    assert evaluated_devices(1000, 50, seed=1) == order
    assert evaluated_devices(1000, 60, seed=1)[:50] == order[:50]
    assert evaluated_devices(1000, 50, seed=2)[:50] != order[:50]
    assert evaluated_devices(8, 8, seed=1) == list(range(8))
    assert evaluated_devices(8, None, seed=1) == list(range(8))


class Fleet:
    """Snapshots of a small model, and how often each was evaluated on how many samples."""

    def __init__(self, folder, num_devices, most, left=()):
        ready = prepared(folder)
        models = [make_flat_model(ready.scenario, ready.data, PLAIN) for _ in range(2)]
        self.num_samples = 0
        self.told = []
        self.evaluator = Evaluator(models, self.passes, 1, 5, most)
        self.snapshots = [
            Snapshot(
                device,
                1,
                1,
                models[0].parameters.clone() * (1 + device / 100),
                0.0 if device in left else 1.0,
                models[0].buffers.clone(),
                None,
            )
            for device in range(num_devices)
        ]

    def passes(self):
        for _ in range(3):
            self.num_samples += 4
            yield torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64)

    def rows(self):
        try:
            return self.evaluator.evaluate(
                self.snapshots,
                devices_too=True,
                tell=lambda done, total: self.told.append((done, total)),
            )
        finally:
            self.evaluator.close()


def test_only_the_sample_is_evaluated_and_only_it_costs_anything(tmp_path):
    """12 samples for each of five devices and the average, not for each of thirty."""
    fleet = Fleet(tmp_path, num_devices=30, most=5)
    rows = fleet.rows()
    assert [row["device"] for row in rows] == [CONSENSUS, *sorted(evaluated_devices(30, 5, 5)[:5])]
    assert fleet.num_samples == 12 * 6
    assert fleet.told == [(done, 6) for done in range(7)]


def test_the_average_and_its_distance_are_of_all_devices(tmp_path):
    few, all_of_them = Fleet(tmp_path, 30, most=5), Fleet(tmp_path, 30, most=None)
    rows, all_rows = few.rows(), all_of_them.rows()
    assert rows[0] == all_rows[0]
    by_device = {row["device"]: row for row in all_rows}
    assert rows == [by_device[row["device"]] for row in rows]
    assert len(all_rows) == 31
    assert all_of_them.num_samples == 12 * 31


def test_others_take_the_place_of_devices_that_have_left(tmp_path):
    order = evaluated_devices(30, 5, 5)
    rows = Fleet(tmp_path, 30, most=5, left=order[:2]).rows()
    assert [row["device"] for row in rows[1:]] == sorted(order[2:7])


def test_rows_say_whose_model_it_is_and_how_far_it_is_from_the_average(tmp_path):
    """Models x, 1.01 x and 1.02 x; of the average the root of the mean of squares is given."""
    fleet = Fleet(tmp_path, 3, most=None)
    length = float(fleet.snapshots[0].x.double().norm())
    rows = fleet.rows()
    assert [row["model"] for row in rows] == ["consensus", "device", "device", "device"]
    distances = [row["consensus_distance"] / length for row in rows]
    assert distances == pytest.approx([0.01 * (2 / 3) ** 0.5, 0.01, 0, 0.01], abs=1e-7)


def test_every_batch_of_every_model_is_rounded_with_noise_of_its_own(tmp_path, monkeypatch):
    seeds = []
    monkeypatch.setattr(evaluation, "seed_rounding_", lambda _, seed: seeds.append(seed))
    Fleet(tmp_path, 3, most=None).rows()
    assert len(set(seeds)) == len(seeds) == 4 * 3


def test_a_run_says_which_devices_its_figures_are_of(tmp_path):
    result = train(tmp_path, "run", "evaluation.device_sample=2", inline=True)
    evaluations = pd.read_parquet(result.path / "evaluations.parquet")
    devices = evaluations[evaluations["model"] == "device"]["device"].tolist()
    assert devices == sorted(evaluated_devices(4, 2, seed=3)[:2])
    assert result.summary["device_models_evaluated"] == 2
    labels = [label for label, _ in result_table(result.summary, "x").rows]
    assert "accuracy of 2 of 4 devices" in labels
    assert (
        "evaluating the averaged model and those of 2 of 4 devices on 50 images each"
        in (tmp_path / "run.log").read_text()
    )
    whole = train(tmp_path, "whole", "evaluation.device_sample=all", inline=True)
    assert whole.summary["device_models_evaluated"] == 4
    assert "accuracy of single devices" in [row[0] for row in result_table(whole.summary, "x").rows]
    everybody = pd.read_parquet(whole.path / "evaluations.parquet")
    kept = everybody[(everybody["model"] == "consensus") | everybody["device"].isin(devices)]
    pd.testing.assert_frame_equal(evaluations, kept.reset_index(drop=True), check_exact=True)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("device_sample=2", ("  in the last", "also of 2 of 4 devices: 150 images")),
        ("device_sample=all", ("  in the last", "also of all devices: 250 images")),
        ("device_models=every", ("  in each", "also of all devices: 250 images")),
    ],
)
def test_it_is_said_beforehand_what_evaluations_will_take(tmp_path, override, said):
    rows = prepared_table(prepared(tmp_path, f"evaluation.{override}")).rows
    assert ("evaluations", "2 of the averaged model") in rows
    assert said in rows


def test_progress_is_told_where_no_terminal_shows_it(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(evaluation_progress, "monotonic", lambda: now_s[0])
    said = io.StringIO()
    progress = EvaluationProgress(Console(file=said, width=40), 1000, 10_000)
    for done in range(52):
        now_s[0] = 4.0 * done
        text = progress.text(done, 51)
        assert text == "" if done == 51 else text.startswith(f"evaluated {done}/51 models")
    lines = said.getvalue().splitlines()
    assert lines[0] == (
        "evaluating the averaged model and those of 50 of 1,000 devices on 10,000 images each"
    )
    assert lines[1] == "evaluated 1/51 models, about 200 s left"  # 50 more at 4 s each
    assert len(lines) == 2 + 200 // 32  # a line at the first look after each 30 s
    assert progress.text(0, 1) == ""  # one model is no news
    assert said.getvalue().splitlines() == lines
