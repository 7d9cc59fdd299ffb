"""examples/power.py: a regression with a loss and a measure of its own, trained in every way."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from broken_examples import TASK, broken
from runs_of_examples import EXAMPLES, FREE, INT8, resume, train, train_and_kill
from small_fleets import assert_same_bits

from edgesim import load_run
from edgesim.assembly.preparation import prepare
from edgesim.cli.answers import result_table
from edgesim.errors import OwnCodeError, ScenarioError
from edgesim.scenario import load_scenario
from edgesim.scenario.catalog import TASKS
from edgesim.study.iteration import iteration_costs

NAME = "power.yaml"
OF_CATALOG = ("training.task_options=null", "training.task=regression")


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    return train(NAME, tmp_path_factory.mktemp("inline") / "run", inline=True)


def test_the_example_is_short():
    assert len((EXAMPLES / "power.py").read_text().splitlines()) < 60


@pytest.mark.ray
def test_actors_give_the_bits_of_one_process_however_they_are_packed(inline, tmp_path, started_ray):
    assert_same_bits(inline, train(NAME, tmp_path / "run", "fleet.devices_per_actor=3"))


def test_a_killed_run_goes_on_to_the_same_bits(inline, tmp_path, monkeypatch):
    assert_same_bits(inline, resume(train_and_kill(NAME, tmp_path / "run", monkeypatch)))


def test_at_free_pace_in_8_bits_two_runs_are_equal(tmp_path):
    runs = [train(NAME, tmp_path / name, *FREE, *INT8, inline=True) for name in ("one", "other")]
    assert_same_bits(*runs)


def test_its_measure_has_a_column_and_accuracy_is_null(inline):
    run = load_run(inline.path)
    assert run.evaluations["worst_share"].between(0, 1).all()
    assert run.evaluations["accuracy"].isna().all()
    assert run.summary["consensus_accuracy"] is None
    last = run.evaluations[run.evaluations["model"] == "consensus"].iloc[-1]
    assert run.summary["consensus_worst_share"] == last["worst_share"]
    assert run.summary["consensus_loss"] == last["loss"]
    assert all(not counts for counts in run.devices["label_counts"].map(list))


def test_the_regression_of_the_catalog_learns_and_has_its_own_column(tmp_path):
    run = train(NAME, tmp_path / "run", *OF_CATALOG, "training.rounds=40", inline=True)
    losses = pd.read_parquet(run.path / "rounds.parquet")["loss"]
    assert losses.iloc[-8:].mean() < losses.iloc[:8].mean()
    evaluations = pd.read_parquet(run.path / "evaluations.parquet")
    assert "mean_absolute_error" in evaluations
    assert "worst_share" not in evaluations


def test_a_classification_has_no_further_columns(tmp_path):
    run = train("sensors.yaml", tmp_path / "run", "evaluation.own_samples=0", inline=True)
    assert list(pd.read_parquet(run.path / "evaluations.parquet").columns) == [
        *("round", "epoch", "model", "device", "accuracy", "loss", "consensus_distance"),
        "model_norm",
    ]
    assert "consensus_perplexity" not in json.loads((run.path / "summary.json").read_text())


@pytest.mark.parametrize("precision", [(), INT8], ids=["fp32", "int8"])
def test_next_tokens_are_learnt_from_sequences_of_whole_numbers(precision, tmp_path):
    """Each device has the sequences of a writer; what follows depends on the writer's step."""
    assert len((EXAMPLES / "counting.py").read_text().splitlines()) < 60
    run = load_run(
        train("counting.yaml", tmp_path / "run", *precision, "training.rounds=40", inline=True).path
    )
    averaged, *devices = run.evaluations.iloc[-5:].to_dict("records")
    assert averaged["perplexity"] == pytest.approx(np.exp(averaged["loss"]))
    assert averaged["accuracy"] > 0.5  # by chance 0.08
    assert all(device["own_accuracy"] > 0.8 for device in devices)
    assert all(device["own_perplexity"] < device["perplexity"] for device in devices)
    rows = dict(result_table(run.summary, "x").rows)
    assert rows["  perplexity"] == f"{averaged['perplexity']:.4g}"
    # A linear layer at eight places of 16 samples, and a convolution at nine; the embedding is
    # measured, and has no products.
    work = (
        iteration_costs(load_scenario(EXAMPLES / "counting.yaml", precision)).devices[0].work.total
    )
    products = 8 * 24 * 12 + 9 * 24 * 24 * 2
    assert work.macs_int8 + work.macs_fp32 == 3 * 16 * products


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("training={epochs: 1, optimizer: {lr: 0.1}}",), "task is classification: a target must"),
        ((*OF_CATALOG, "training.task=next_token"), "task is next_token: a target must be a row"),
        (
            ("training.task_options={gamma: 1}",),
            "training.task_options.gamma is no option of .*Huber; it takes delta",
        ),
        (
            ("training.task=regression",),
            "training.task_options.delta is no option of regression; it takes none",
        ),
    ],
)
def test_targets_and_tasks_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ScenarioError, match=said):
        prepare(load_scenario(EXAMPLES / NAME, settings))


def test_measures_by_hand():
    outputs, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])
    task = TASKS["regression"]()
    assert float(task.loss(outputs, targets)) == 2.5  # (1 + 4) / 2
    assert task.sums(outputs, targets) == {"loss": 5.0, "mean_absolute_error": 3.0}
    words = TASKS["next_token"]().sums(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64))
    assert words["accuracy"] == 2.0  # of equal outputs the first is the largest
    assert words["loss"] == pytest.approx(2 * np.log(4))
    with pytest.raises(ValueError, match="needs as many numbers in both"):
        task.loss(torch.zeros(2, 3), targets)


NO_NUMBER = """
from torch.nn import functional


class Mine:
    metrics = {"f1": "of no samples"}

    def loss(self, outputs, targets):
        return functional.cross_entropy(outputs, targets)

    def sums(self, outputs, targets):
        return {"loss": float(self.loss(outputs, targets)) * len(targets)}

    def summary(self, means):
        return {"loss": means["loss"], "f1": float("nan")}
"""


QUICKSTART = EXAMPLES.parent / "scenarios" / "quickstart.yaml"


def settings_of(tmp_path, body):
    """Of a short run of quickstart with a task of this text."""
    (tmp_path / "mine.py").write_text(body)
    return (
        f"training.task={tmp_path}/mine.py:Mine",
        "training.rounds=4",
        "evaluation={every_rounds: 1, samples: 20}",
        "data.train_samples=100",
    )


def run_of(tmp_path, body):
    return train(QUICKSTART, tmp_path / "run", *settings_of(tmp_path, body), inline=True)


def test_a_measure_that_is_no_number_is_null_and_said(tmp_path):
    """The training is not lost for it."""
    run = run_of(tmp_path, NO_NUMBER)
    assert run.summary["consensus_f1"] is None
    (said,) = run.summary["warnings"]
    assert said.startswith(
        "the averaged model ends with f1 nan, null in summary.json; look at what tra"
    )
    assert ("  f1", "no number") in result_table(run.summary, "place").rows
    assert load_run(run.path).evaluations["f1"].isna().all()


def test_what_a_task_gives_late_is_told_by_its_key(tmp_path):
    """The check before the run evaluates some twenty batches."""
    changes = {
        "def sums(": "calls = []\n\n    def sums(",
        'return {"loss": float(': "self.calls.append(1)\n"
        '        return {"loss"[: 4 - len(self.calls) // 22]: float(',
    }
    body = NO_NUMBER
    for old, new in changes.items():
        body = body.replace(old, new)
    with pytest.raises(OwnCodeError) as caught:
        run_of(tmp_path, body)
    first, second = str(caught.value).splitlines()
    assert first == "training.task: sums(outputs, targets) has no loss"
    assert second.startswith("mend your code and start the run anew")


def test_a_loss_that_is_not_finite_is_the_tasks_own_where_outputs_are(tmp_path):
    """It is not blamed on the learning rate."""
    body = NO_NUMBER.replace(
        "        return functional.cross_entropy(outputs, targets)\n",
        "        self.calls = getattr(self, 'calls', 0) + 1\n"
        "        return functional.cross_entropy(outputs, targets) / (self.calls < 30)\n",
    )
    with pytest.raises(OwnCodeError, match="loss gives inf for outputs that are finite"):
        run_of(tmp_path, body)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "(outputs, targets)\n",
            "(outputs, targets if len(targets) > 2 else -100 + 0 * targets)\n",
        ),
        ("* len(targets)}", "* len(targets), 'rare': float('nan')}"),
        ("return {", "targets[2], {}\n        return {"),
    ],
    ids=["a half without labels", "a sum that is no number", "a half of too few samples"],
)
def test_what_the_halves_of_a_batch_do_not_tell_is_no_fault(tmp_path, old, new):
    body = NO_NUMBER.replace(old, new, 1)
    assert body != NO_NUMBER
    assert not prepare(load_scenario(QUICKSTART, settings_of(tmp_path, body))).notices


ROOTS = """
from torch.nn import functional


class Mine:
    metrics = {"other": "of a batch"}

    def loss(self, outputs, targets):
        return functional.cross_entropy(outputs, targets)

    def sums(self, outputs, targets):
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        found = OTHER
        return {"loss": float(losses.sum()), "other": float(found) * len(targets)}

    def summary(self, means):
        return means
"""


@pytest.mark.parametrize(
    "found", ["losses.mean().sqrt()", "losses.median()", "losses.square().mean().sqrt()"]
)
def test_a_measure_that_is_no_sum_is_told_however_alike_the_samples_are(tmp_path, found):
    """Losses of an initial model are those of a guess, with deviations of some 5 %."""
    settings = settings_of(tmp_path, ROOTS.replace("OTHER", found))
    (said,) = prepare(load_scenario(QUICKSTART, settings)).notices
    assert "training.task: other of 4 samples is " in said
    assert said.endswith(": so evaluations depend on how samples are grouped")


def test_a_root_of_mean_squares_of_a_regression_is_told(tmp_path):
    change = {
        "int((errors > self.delta).sum())": "float(errors.square().mean().sqrt()) * len(targets)"
    }
    (said,) = prepare(load_scenario(broken(tmp_path, TASK, change)[0])).notices
    assert "worst_share of 4 samples is" in said


@pytest.mark.parametrize("found", ["losses.mean()", "(outputs - 0.1).mean()", "1 / 3"])
def test_a_sum_is_told_by_nothing(tmp_path, found):
    settings = settings_of(tmp_path, ROOTS.replace("OTHER", found))
    assert not prepare(load_scenario(QUICKSTART, settings)).notices


@pytest.mark.parametrize(
    ("reported", "is_told"),
    [
        ("-losses.sum()", True),
        ("losses.sum() * 1000", True),
        ("losses.sum() * 0", True),
        ("losses.sum() * 3", False),
        ("(losses / 2 - 2).sum()", False),
        ("losses.sum()", False),
    ],
)
def test_a_reported_loss_of_the_other_sign_or_size_is_told(tmp_path, reported, is_told):
    """Loss and report may differ on purpose, as by a penalty."""
    body = ROOTS.replace("OTHER", "losses.mean()").replace("losses.sum()", reported)
    notices = prepare(load_scenario(QUICKSTART, settings_of(tmp_path, body))).notices
    assert len(notices) == is_told
    assert all("training.task: loss gives 2." in said for said in notices)
    assert all("training goes by the first, evaluations report the second" in s for s in notices)
