"""`edgesim.run` and its like, as a notebook calls them."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import edgesim
from edgesim.api.runs import _finished
from edgesim.api.scenarios import errors_of_python
from edgesim.fleet.run import RunResult
from edgesim.quant.kernels.products import native
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.run_directory import RunDirectory

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"
SMALL = {
    "fleet__devices": 4,
    "training__rounds": 6,
    "data__train_samples": 160,
    "evaluation": {"every_rounds": 2, "samples": 40},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run, and the evaluations that its callback was told of."""
    told = []
    place = tmp_path_factory.mktemp("trained") / "run"
    run = edgesim.run("quickstart", out=place, inline=True, on_evaluation=told.append, **SMALL)
    return run, told


def same_bits(first, second):
    columns = [name for name in first.rounds.columns if name not in WALL_COLUMNS]
    pd.testing.assert_frame_equal(first.rounds[columns], second.rounds[columns])
    pd.testing.assert_frame_equal(first.evaluations, second.evaluations)
    for device, model in first.models.items():
        np.testing.assert_array_equal(model.x, second.models[device].x)


def test_a_run_carries_its_scenario_tables_and_models(trained):
    run, _ = trained
    assert run.is_finished
    assert run.missing == ()
    assert run.scenario.name == "quickstart"
    assert run.scenario.fleet.devices == 4
    assert len(run.rounds) == 4 * 6
    assert len(run.messages) == 4 * 6
    assert run.consensus["round"].tolist() == [2, 4, 6]
    assert list(run.models) == [0, 1, 2, 3]
    assert run.models.consensus.u == pytest.approx(4.0)
    assert run.summary["rounds"] == 6


def test_the_consensus_model_is_that_of_the_evaluations(trained):
    run, _ = trained
    assert run.models.consensus.device == -1
    norm = np.linalg.norm(run.models.consensus.z)
    assert norm == pytest.approx(run.consensus["model_norm"].iloc[-1], rel=1e-12)
    distances = [np.linalg.norm(m.z - run.models.consensus.z) for m in run.models.values()]
    spread = np.sqrt(np.mean(np.square(distances)))
    assert spread == pytest.approx(run.consensus["consensus_distance"].iloc[-1], rel=1e-9)


def test_evaluations_hold_the_bytes_sent_by_then(trained):
    run, _ = trained
    rounds = run.rounds
    for row in run.evaluations.itertuples():
        before = rounds[rounds["round"] < row.round]
        if row.device >= 0:
            before = before[before["device"] == row.device]
        assert row.total_sent_bytes == before["sent_bytes"].sum() > 0
    assert run.consensus["total_sent_bytes"].iloc[-1] == run.summary["sent_bytes"]
    assert run.evaluations["total_sent_bytes"].dtype == np.int64


def test_a_callback_is_told_of_each_evaluation(trained):
    run, told = trained
    assert [evaluation.round for evaluation in told] == [2, 4, 6]
    assert [evaluation.accuracy for evaluation in told] == run.consensus["accuracy"].tolist()
    assert [len(evaluation.devices) for evaluation in told] == [0, 0, 4]
    assert {evaluation.place for evaluation in told} == {run.place}


def test_a_run_shows_itself_in_a_few_words(trained):
    run, _ = trained
    assert repr(run).startswith("<run quickstart (seed 1): accuracy 0.")
    assert len(repr(run)) < 400
    html = run._repr_html_()
    assert html.startswith("<table>")
    assert run.place in html
    for warning in run.summary["warnings"]:
        assert warning in repr(run)
    assert run == run
    assert {run: 1}[run] == 1


@pytest.mark.parametrize("form", ["file", "mapping", "object", "name"])
def test_a_scenario_may_be_a_file_a_mapping_an_object_or_a_shipped_name(form):
    content = yaml.safe_load(QUICKSTART.read_text())
    given = {
        "file": QUICKSTART,
        "mapping": content,
        "object": edgesim.load_scenario(QUICKSTART),
        "name": "quickstart",
    }[form]
    expected = edgesim.load_scenario(QUICKSTART, ["seed=7", "gossip.averaging_rate=0.25"])
    checked = edgesim.validate(given, seed=7, gossip__averaging_rate=0.25)
    assert checked.scenario == expected
    assert checked.num_rounds == 360
    assert checked.num_parameters == 24_170
    assert edgesim.load_scenario(given, ["seed=7"], gossip__averaging_rate=0.25) == expected


def test_overrides_take_what_python_code_holds(tmp_path):
    checked = edgesim.validate(
        "quickstart",
        seed=np.int64(5),
        training__optimizer__lr=np.float64(0.125),
        training__schedule__milestones=(3, 4),
        topology={"kind": "random_regular", "degree": 2},
        **{"data.batch_size": 8},
    )
    scenario = checked.scenario
    assert (scenario.seed, scenario.training.optimizer.lr) == (5, 0.125)
    assert scenario.training.schedule.milestones == (3, 4)
    assert scenario.topology.kind == "random_regular"
    assert scenario.data.batch_size == 8


def test_validate_says_what_a_run_would_do_and_warns_of_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checked = edgesim.validate("quickstart", model__precision="int8")
    assert "24,170 parameters" in repr(checked)
    assert any("8-bit values" in notice for notice in checked.notices)
    assert "8-bit values" in checked._repr_html_()
    assert list(tmp_path.iterdir()) == []


def test_validate_says_what_a_run_would_compute_8_bits_with_on_this_machine(monkeypatch):
    def said(**settings):
        return dict(edgesim.validate("quickstart", **settings).table.rows).get("8-bit arithmetic")

    int8 = {"model__precision": "int8"}
    assert said() is None
    assert said(**int8).startswith(("int8_cpu (numba kernels: ", "reference ("))
    monkeypatch.setattr(native, "multiply_add_is_native", lambda: False)
    plain = "reference (torch operations on whole numbers in float32)"
    assert said(**int8) == plain
    assert said(**int8, model__quantization={"backend": "int8_cpu"}) == (
        "none here: model.quantization.backend is int8_cpu, but this processor lacks the 16-bit "
        "multiply-add of AVX2; choose auto or reference"
    )


@pytest.mark.parametrize("ask", [edgesim.validate, edgesim.cost])
def test_a_rate_at_which_devices_move_apart_is_told_of_before_a_run(ask):
    def told(**overrides):
        return [n for n in ask("quickstart", **overrides).notices if "lets devices move" in n]

    (text,) = told(gossip__averaging_rate=1.0)
    assert "gossip.averaging_rate: 1 lets devices move apart with top_k" in text
    assert told() == []
    assert told(gossip__averaging_rate=1.0, fleet__devices=1) == []
    assert told(gossip__averaging_rate="auto") == [], "what is found is no matter of a trial"


def test_cost_has_tables_numbers_and_a_page(tmp_path):
    costs = edgesim.cost("quickstart", fleet__profile="raspberry-pi-4b")
    assert costs.numbers()["scenario"]["devices"][0]["profile"] == "raspberry-pi-4b"
    assert repr(costs).splitlines()
    assert repr(costs).startswith("quickstart: 8 devices train small_cnn")
    assert costs.answer.advice.changes
    answers = costs.study.answer_tables()
    assert costs._repr_html_().count("<table>") == len(answers) + len(costs.tables)
    page = costs.write(tmp_path / "page")
    assert page.name == "index.html"
    costs.write_numbers(tmp_path / "numbers.json")
    assert (tmp_path / "numbers.json").stat().st_size > 1000


def test_a_notice_of_a_run_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr("edgesim.api.runs.run_scenario", stop)
    with (
        pytest.warns(edgesim.ScenarioWarning, match="quickstart: messages carry 8-bit values"),
        pytest.raises(KeyboardInterrupt),
    ):
        edgesim.run("quickstart", out=tmp_path / "run", model__precision="int8")


def stop(*_, **__):
    raise KeyboardInterrupt


def test_a_folder_with_a_run_is_refused_in_words_of_python(trained):
    place = trained[0].place
    with pytest.raises(edgesim.EdgesimError) as refused:
        edgesim.run("quickstart", out=place, inline=True, **SMALL)
    assert str(refused.value) == (
        f"{place}: holds a run already; edgesim.resume({place!r}) goes on with it, and another out "
        "begins a new one"
    )


@pytest.mark.parametrize(
    ("said", "in_python"),
    [
        ("--address: HOST:PORT is meant", "address: HOST:PORT is meant"),
        ("start one, or leave --address away", "start one, or leave address away"),
        ("a cluster with GPUs (--address)", "a cluster with GPUs (address)"),
        ("no space left\nrun without Ray: --inline", "no space left\nrun without Ray: inline=True"),
        ("name one by --out that all nodes reach", "name one by out that all nodes reach"),
        (
            "or go on with `edgesim sweep SCENARIO --out runs/s`",
            "or go on with edgesim.sweep(SCENARIO, out='runs/s')",
        ),
        ("edgesim resume 'my runs/a' goes on", "edgesim.resume('my runs/a') goes on"),
        ("let `edgesim resume /tmp/run` train", "let edgesim.resume('/tmp/run') train"),
        ("""edgesim resume 'it'"'"'s' goes on""", """edgesim.resume("it's") goes on"""),
        ("edgesim resume it's goes on", "edgesim resume it's goes on"),
        ("/tmp/my--out/--inline: can't be read", "/tmp/my--out/--inline: can't be read"),
    ],
)
def test_errors_of_runs_name_arguments_of_python(said, in_python):
    with pytest.raises(edgesim.EdgesimError) as raised, errors_of_python():
        raise edgesim.EdgesimError(said)
    assert str(raised.value) == in_python


def test_an_address_that_is_none_is_refused_in_words_of_python(tmp_path):
    with pytest.raises(edgesim.EdgesimError) as refused:
        edgesim.run("quickstart", out=tmp_path / "run", address="head", **SMALL)
    assert str(refused.value) == "address head: HOST:PORT is meant, such as head:6379, or auto"


def test_who_interrupts_a_run_on_a_cluster_is_told_how_it_goes_on_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgesim.api.runs.run_scenario", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        edgesim.run("quickstart", out="run", address="head:6379", **SMALL)
    assert not hasattr(stopped.value, "__notes__"), "the run had not begun"
    RunDirectory.create("run")
    with pytest.raises(KeyboardInterrupt) as stopped:
        edgesim.run("quickstart", out="run", address="head:6379", **SMALL)
    assert stopped.value.__notes__ == [
        "the run goes on with edgesim.resume('run', address='head:6379')"
    ]


def test_a_run_is_quiet_and_leaves_the_process_as_it_was(trained, tmp_path, capfd, caplog):
    """As in a notebook: within a running event loop, with threads for torch."""
    handler, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    torch.set_num_threads(2)

    async def cell():
        return edgesim.run("quickstart", out=tmp_path / "run", inline=True, **SMALL)

    try:
        with warnings.catch_warnings(), caplog.at_level(logging.INFO):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", edgesim.ResultWarning)  # its fleet learns little
            run = asyncio.run(cell())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert tuple(capfd.readouterr()) == ("", "")
    assert [r for r in caplog.records if r.name.startswith("edgesim") and r.levelno > 20] == []
    same_bits(run, trained[0])


class EnoughError(Exception):
    """Of a callback that wants a run to stop."""


@pytest.mark.parametrize("is_notebook", [False, True], ids=["script", "notebook"])
def test_an_error_of_a_callback_stops_the_run_which_can_be_resumed(trained, tmp_path, is_notebook):
    def callback(evaluation):
        raise EnoughError(evaluation.round)

    def stopped():
        with pytest.raises(EnoughError) as raised:
            edgesim.run(
                "quickstart", out=tmp_path / "run", inline=True, on_evaluation=callback, **SMALL
            )
        return raised

    async def cell():
        return stopped()

    raised = asyncio.run(cell()) if is_notebook else stopped()
    assert raised.value.args == (2,)
    assert raised.value.__notes__ == [f"the run goes on with edgesim.resume('{tmp_path / 'run'}')"]
    told = []
    run = edgesim.resume(tmp_path / "run", on_evaluation=told.append)
    assert [evaluation.round for evaluation in told] == [4, 6]
    same_bits(run, trained[0])


def test_an_interrupt_in_a_notebook_ends_the_run_in_order(trained, tmp_path):
    place = tmp_path / "run"

    def interrupt(_):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    async def cell():
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            edgesim.run("quickstart", out=place, inline=True, on_evaluation=interrupt, **SMALL)
        finally:
            signal.signal(signal.SIGINT, before)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    assert not any(thread.name.startswith("run") for thread in threading.enumerate())
    with pytest.warns(edgesim.UnfinishedRunWarning, match=r"missing: rounds: .* of 6 rounds"):
        unfinished = edgesim.load_run(place)
    assert not unfinished.is_finished
    assert len(unfinished.missing) == 3
    assert repr(unfinished).startswith("<run quickstart (seed 1), unfinished: ")
    assert "; devices 4; " in repr(unfinished)
    assert "missing" in repr(unfinished)
    assert unfinished.scenario.training.rounds == 6
    assert len(unfinished.models) == 0
    same_bits(edgesim.resume(place), trained[0])


def test_runs_of_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    from edgesim.api.runs import default_place

    monkeypatch.chdir(tmp_path)
    places = []
    for _ in range(3):
        places.append(default_place("mine"))
        places[-1].mkdir(parents=True)
    assert len(set(places)) == 3


def test_every_public_name_is_there_and_documented():
    assert set(edgesim.__all__) <= set(dir(edgesim))
    for name in edgesim.__all__:
        assert getattr(edgesim, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = edgesim.rnu


def test_what_a_run_says_at_its_end_is_raised_as_a_warning(tmp_path):
    slow = {"training__rounds": 1, "training__optimizer__lr": 1e-9, "evaluation__every_epochs": 1}
    with pytest.warns(edgesim.ResultWarning) as caught:
        run = edgesim.run("quickstart", out=tmp_path / "run", inline=True, **slow)
    (text,) = run.summary["warnings"]
    assert "no better than a guess" in text
    (warning,) = caught
    doubt, opened = str(warning.message).splitlines()
    assert doubt == f"{run.place}: {text}"
    assert opened == f"the run is finished; edgesim.load_run({run.place!r}) opens it"
    assert warning.filename == __file__
    with pytest.warns(edgesim.ResultWarning, match="no better than a guess"):
        edgesim.resume(run.place)


def test_a_doubt_raised_as_an_error_says_all_doubts_and_how_the_run_is_opened(tmp_path):
    """Notices of own parts are none; a doubt at the end may begin with the key of a part."""
    said = ["too late", "model.name: Own: not trained", "model.name: Own: moved", "no guess"]
    place = tmp_path / "run"
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\n\ndef linear(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    model = {"name": f"{tmp_path}/own.py:linear"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        edgesim.run("quickstart", out=place, inline=True, model=model, training__rounds=1)
    result = RunResult(str(place), {"warnings": said, "own_notices": said[1:2]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(edgesim.ResultWarning) as caught:
            _finished(result)
        _finished(RunResult(str(place), {"warnings": said[1:2], "own_notices": said[1:2]}))
    assert str(caught.value).splitlines() == [
        f"{place}: too late",
        f"{place}: model.name: Own: moved",
        f"{place}: no guess",
        f"the run is finished; edgesim.load_run({str(place)!r}) opens it",
    ]
