"""Whole runs: same bits however devices are packed, complete run directories, clean ends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import threading
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from process_trees import wait_until_round
from rich.console import Console
from small_fleets import assert_same_bits, outcome, prepared, train
from thorough import some

from edgesim.assembly.build import PLAIN
from edgesim.assembly.preparation import prepare
from edgesim.cli.answers import result_table
from edgesim.device.trainer import DivergedError
from edgesim.fleet import run as run_module
from edgesim.fleet.arithmetic import compile_kernels
from edgesim.fleet.on_ray.actor import ActorLostError
from edgesim.fleet.on_ray.addresses import HeadLostError
from edgesim.fleet.recording.closing_warnings import chance_warning
from edgesim.fleet.recording.view import PlainView
from edgesim.report.report import report_page
from edgesim.report.runs import load_runs
from edgesim.results.columns import DEVICES, EVALUATIONS, MESSAGES, ROUNDS
from edgesim.results.run_directory import RunDirectory, RunDirectoryError
from edgesim.scenario import load_scenario


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inline")
    return train(folder, "run", inline=True)


@pytest.mark.ray
@pytest.mark.parametrize("per_actor", ["1", "3", "auto"])
def test_packing_does_not_change_a_bit(tmp_path, inline_run, started_ray, per_actor):
    packed = train(tmp_path, "run", f"fleet.devices_per_actor={per_actor}")
    assert_same_bits(inline_run, packed)


@pytest.mark.ray
def test_packing_does_not_change_a_bit_in_8_bits(tmp_path, started_ray):
    """On the back end that the processor gives; the plain one is tested in test_eight_bit_fleet."""
    eight = ("model.precision=int8", "model.norm=range_evonorm", "training.rounds=3")
    inline = train(tmp_path, "inline", *eight, inline=True)
    for per_actor in some([3, 1], 1):
        packing = f"fleet.devices_per_actor={per_actor}"
        packed = train(tmp_path, f"packed-{per_actor}", *eight, packing)
        assert_same_bits(inline, packed)
    environment = json.loads((inline.path / "environment.json").read_text())
    assert environment["eight_bit_backend"].startswith(("int8_cpu (", "reference ("))
    assert "8-bit arithmetic: " in (tmp_path / "inline.log").read_text()


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(
    tmp_path, inline_run, two_threads
):
    """However many devices compute at a time: one did in the first run."""
    assert_same_bits(inline_run, train(tmp_path, "again", inline=True))
    other = train(tmp_path, "other", "seed=4", inline=True)
    assert not np.array_equal(
        outcome(inline_run)[2]["device-000000/x"], outcome(other)[2]["device-000000/x"]
    )


def test_a_fleet_whose_models_move_apart_is_told_of_while_it_trains_and_in_the_end(tmp_path):
    """DeepSqueeze diverges at an averaging rate of 1 with a tenth of the entries.

    Source: docs/reference.md, section 3.7.
    """
    squeeze = "algorithm: deepsqueeze, averaging_rate: 1.0, compressor: {kind: top_k, keep: 0.1}"
    often = ("training.rounds=60", "evaluation={every_rounds: 10, samples: 10}")
    run = train(tmp_path, "run", f"gossip={{{squeeze}}}", *often, inline=True)
    (text,) = run.summary["warnings"]
    assert "lower gossip.averaging_rate, now 1.0, or set it to auto" in text
    log = (tmp_path / "run.log").read_text()
    assert log.count("warning: the devices' models move apart") == 1
    assert log.index("warning: ") < log.index("(round 60)"), "not in the end alone"
    assert dict(result_table(run.summary, "").rows)["warning"] == text


def test_a_single_evaluation_in_the_end_tells_of_divergence_too(tmp_path):
    """CHOCO as published, on unlike boards: the averaged model looks as if it trained."""
    folder = Path(__file__).parents[2] / "scenarios" / "study"
    words = ("gossip.algorithm=choco_numerator", "gossip.averaging_rate=0.4", "training.epochs=5")
    overrides = (*words, "evaluation.every_epochs=null")
    fleet = prepare(load_scenario(folder / "unlike_boards.yaml", overrides))
    with (tmp_path / "run.log").open("w") as log:
        console = Console(file=log, width=10_000)
        run = run_module.run_scenario(fleet, tmp_path / "run", inline=True, console=console)
    (text,) = run.summary["warnings"]
    assert "norm of the averaged model" in text
    table = pd.read_parquet(run.path / "evaluations.parquet")
    (row,) = table[table["device"] == -1].to_dict("records")
    assert row["consensus_distance"] > 10 * row["model_norm"] > 0
    assert (tmp_path / "run.log").read_text().count("warning: the devices' models move apart") == 1


def test_a_model_that_guesses_is_told_to_have_learned_nothing(tmp_path):
    """A step of 1e-9 leaves the model as it began, which names one class or a few."""
    slow = ("training.rounds=1", "training.optimizer.lr=1.0e-9", "evaluation.samples=null")
    run = train(tmp_path, "run", *slow, inline=True)
    (text,) = run.summary["warnings"]
    figure = f"it classifies {100 * run.summary['consensus_accuracy']:.4g} %"
    assert text.startswith(f"the averaged model is no better than a guess: {figure}")
    assert dict(result_table(run.summary, "").rows)["warning"] == text
    page = report_page(load_runs([run.path]))
    assert text in page
    assert "nothing went wrong" not in page


@pytest.mark.parametrize("samples", ["null", "10"])
def test_a_guess_is_the_most_frequent_class_of_the_test_samples_in_use(tmp_path, samples):
    fleet = prepared(tmp_path, f"evaluation.samples={samples}")
    labels = fleet.test_samples().labels
    share = max(np.mean(labels == label) for label in range(10))
    assert f"most frequent class {100 * share:.4g} %" in chance_warning({"accuracy": share}, fleet)
    assert chance_warning({"accuracy": share + 1e-6}, fleet) is None
    assert chance_warning({"accuracy": None}, fleet) is None


def test_the_time_of_a_run_begins_when_kernels_are_compiled(tmp_path, monkeypatch):
    seen = []

    def clock():
        seen.append("clock")
        return 0.0

    monkeypatch.setattr(run_module, "perf_counter", clock)
    monkeypatch.setattr(run_module, "prepare_arithmetic", lambda *_: seen.append("compiled"))
    result = train(tmp_path, "run", inline=True)
    assert seen == ["compiled", "clock", "clock"]
    assert result.summary["wall_s"] == 0.0


def test_a_pipe_is_told_that_kernels_are_compiled(tmp_path):
    said = io.StringIO()
    compile_kernels(prepared(tmp_path), PLAIN, PlainView(Console(file=said)))
    assert said.getvalue().startswith("integer kernels, which the first run on a machine")


def test_auto_is_a_run_with_the_averaging_rate_that_was_found(tmp_path):
    """The number is in the scenario, the summary and the digest, so that resume uses the same."""
    found = train(tmp_path, "found", "gossip.averaging_rate=auto", inline=True)
    kept = load_scenario(found.path / "scenario.yaml")
    rate = kept.gossip.averaging_rate
    assert found.summary["averaging_rate"] == rate
    line = f"gossip.averaging_rate: auto found {rate:g} "
    assert line in (tmp_path / "found.log").read_text()
    assert (found.path / "scenario.yaml").read_text().startswith(f"# {line}")
    given = train(tmp_path, "given", f"gossip.averaging_rate={rate}", inline=True)
    assert_same_bits(found, given)
    digests = [json.loads((run.path / "run.json").read_text()) for run in (found, given)]
    assert digests[0]["run_digest"] == digests[1]["run_digest"]


def test_a_run_directory_is_complete_and_readable(inline_run):
    path, summary = inline_run.path, inline_run.summary
    rounds = pd.read_parquet(path / "rounds.parquet")
    evaluations = pd.read_parquet(path / "evaluations.parquet")
    devices = pd.read_parquet(path / "devices.parquet")
    messages = pd.read_parquet(path / "messages.parquet")
    for table, columns in (
        (rounds, ROUNDS),
        (messages, MESSAGES),
        (evaluations, EVALUATIONS),
        (devices, DEVICES),
    ):
        assert list(table.columns) == [column.name for column in columns]
        assert not table.isna().any().any()
    assert rounds[["round", "device"]].to_numpy().tolist() == [
        [round_index, device] for round_index in range(6) for device in range(4)
    ]
    assert evaluations[["round", "device"]].to_numpy().tolist() == [
        [3, -1],
        [6, -1],
        *([6, device] for device in range(4)),
    ]
    written = json.loads((path / "summary.json").read_text())
    assert written.pop("seal").startswith("edgesim-seal-1:")
    assert written == summary
    environment = json.loads((path / "environment.json").read_text())
    assert environment["mode"] == "inline"
    assert sorted(p.name for p in path.iterdir()) == [
        "devices.parquet",
        "environment.json",
        "evaluations.parquet",
        "messages.parquet",
        "models",
        "rounds.parquet",
        "run.json",
        "scenario.yaml",
        "summary.json",
    ]
    assert load_scenario(path / "scenario.yaml").name == "small"


def test_bytes_add_up(inline_run):
    """What is sent is what arrives, kind by kind."""
    rounds = pd.read_parquet(inline_run.path / "rounds.parquet")
    kinds = ["sent_value_bytes", "sent_index_bytes", "sent_overhead_bytes"]
    assert (rounds[kinds].sum(axis=1) == rounds["sent_bytes"]).all()
    assert rounds["sent_bytes"].sum() == rounds["received_bytes"].sum()
    assert (rounds["messages_sent"] == 1).all()


def test_a_run_directory_in_use_is_refused_and_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    with pytest.raises(RunDirectoryError, match="not an empty folder; choose another --out"):
        train(tmp_path, "run", inline=True)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_start_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    """It would be in the way of the next one, and could not be resumed."""

    def no_version():
        raise PackageNotFoundError("ray")

    monkeypatch.setattr("edgesim.fleet.environment._versions", no_version)
    with pytest.raises(PackageNotFoundError):
        train(tmp_path, "run", inline=True)
    assert not (tmp_path / "run").exists()


def test_the_directory_of_a_run_is_refused_with_the_way_to_go_on(inline_run):
    with pytest.raises(RunDirectoryError, match=f"a run already; .* resume {inline_run.path} goes"):
        RunDirectory.check_free(inline_run.path)


def test_test_samples_do_not_depend_on_the_seed(tmp_path):
    first = prepared(tmp_path).test_samples()
    second = prepared(tmp_path, "seed=9").test_samples()
    np.testing.assert_array_equal(first.labels, second.labels)
    assert len(first.labels) == 50


@pytest.mark.ray
def test_a_lost_actor_ends_the_run_with_its_name(tmp_path, started_ray):
    ray = pytest.importorskip("ray")
    killed = threading.Event()

    def kill_one():
        while not (tmp_path / "run" / "evaluations.parquet").is_file():
            time.sleep(0.05)
        ray.kill(ray.get_actor("run/device-2", namespace="edgesim"))
        killed.set()

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    with pytest.raises(ActorLostError, match=r"device-2|device 2"):
        train(
            tmp_path,
            "run",
            "training.rounds=100000",
            "evaluation.every_rounds=5",
        )
    assert killed.is_set()
    assert (tmp_path / "run" / "rounds.parquet").is_file(), "what was recorded stays"


@pytest.mark.ray
def test_a_run_whose_cluster_ends_says_how_it_goes_on(tmp_path, started_ray, monkeypatch):
    async def lose_head(_: str, *, is_own: bool) -> None:
        assert not is_own, "a cluster was given"
        await asyncio.to_thread(wait_until_round, tmp_path / "run", 2)
        raise HeadLostError("it is gone")

    monkeypatch.setattr("edgesim.fleet.on_ray.launch.watch_head", lose_head)
    endless = ("training.rounds=100000", "evaluation.every_rounds=5")
    with pytest.raises(HeadLostError):
        train(tmp_path, "run", *endless, address="head:6379")
    command = f"go on with: edgesim resume {tmp_path / 'run'} --address head:6379\n"
    assert command in (tmp_path / "run.log").read_text()


@pytest.mark.ray
def test_an_interrupted_run_leaves_no_actor(tmp_path, started_ray, monkeypatch):
    ray = pytest.importorskip("ray")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored

    def interrupt():
        wait_until_round(tmp_path / "run", 2)
        assert ray.util.list_named_actors(all_namespaces=True)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt, daemon=True)
    often = "recovery.checkpoint_every_rounds=2"
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, "run", "training.rounds=100000", often)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ray.util.list_named_actors(all_namespaces=True) == []


@pytest.mark.ray
def test_divergence_reaches_the_driver_of_a_ray_run(tmp_path, started_ray):
    with pytest.raises(DivergedError, match=r"device \d diverged in round \d+"):
        train(
            tmp_path,
            "run",
            "training.optimizer.lr=1.0e+20",
            "training.rounds=20",
        )
