"""TensorBoard and MLflow get the metrics of a run, by their own libraries where these are there."""

from __future__ import annotations

import logging

import pytest

import edgesim
from edgesim.sinks.steps import evaluation_values

SMALL = {
    "fleet__devices": 4,
    "training__rounds": 4,
    "data__train_samples": 80,
    "evaluation": {"every_rounds": 2, "samples": 40},
}


def test_figures_of_an_evaluation_are_named_as_metrics():
    row = {"round": 4, "epoch": 2.0, "model": "consensus", "device": -1, "accuracy": None}
    assert evaluation_values([{**row, "loss": 0.5, "virtual_time_s": float("nan")}]) == (
        4,
        {"evaluation_epoch": 2.0, "evaluation_loss": 0.5},
    )


def test_a_sink_that_fails_does_not_stop_the_run(tmp_path, caplog):
    class Broken(edgesim.Sink):
        def update(self, fleet):
            raise ConnectionError("the server is gone")

        def evaluated(self, rows):
            pytest.fail("it is told no more")

    with caplog.at_level(logging.WARNING):
        run = edgesim.run("quickstart", out=tmp_path / "r", inline=True, sinks=[Broken()], **SMALL)
    assert run.is_finished
    assert "Broken failed and is told no more: ConnectionError: the server is gone" in caplog.text


def test_tensorboard_has_the_metrics(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (extra tensorboard)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = edgesim.TensorBoard(tmp_path / "board")
    run = edgesim.run("quickstart", out=tmp_path / "r", inline=True, sinks=[board], **SMALL)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    found = events.Scalars("evaluation_accuracy")
    assert [event.step for event in found] == [2, 4]
    assert [event.value for event in found] == pytest.approx(run.consensus["accuracy"].tolist())
    assert events.Scalars("fleet_sent_bytes")[-1].value == run.summary["sent_bytes"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own use of SQLAlchemy
def test_mlflow_has_the_metrics(tmp_path):
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra mlflow)")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = edgesim.MLflow(uri)
    run = edgesim.run("quickstart", out=tmp_path / "r", inline=True, sinks=[tracker], **SMALL)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("edgesim")
    (kept,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(kept.info.run_id, "evaluation_accuracy")
    assert [metric.step for metric in history] == [2, 4]
    assert [metric.value for metric in history] == run.consensus["accuracy"].tolist()
    assert kept.info.status == "FINISHED"
