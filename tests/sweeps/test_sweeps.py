"""Sweeps as they run: the same bits, resumed, with failed cells and changed files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from math import nan

import numpy as np
import pandas as pd
import pytest
from process_trees import MARK, marked, wait_for, with_interrupts
from thorough import some

import edgesim
from edgesim.cli import app, main
from edgesim.cli.answers import number
from edgesim.cli.sweep import sweep_table
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import RunDirectoryError
from edgesim.scenario.shipped import shipped_scenarios
from edgesim.storage.store import Store
from edgesim.sweeps.directory import missing_cells, write_failures
from edgesim.sweeps.run import check_cells, read_sweep

SMALL = {
    "fleet__devices": 4,
    "training__rounds": 4,
    "data__train_samples": 80,
    "evaluation": {"every_rounds": 2, "samples": 40},
}
GRID = {"grid": {"gossip.averaging_rate": [0.1, 0.2], "seed": [1, 2]}}
CELLS = [f"averaging_rate={rate},seed={seed}" for rate in (0.1, 0.2) for seed in (1, 2)]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep of four cells."""
    place = tmp_path_factory.mktemp("swept") / "sweep"
    return edgesim.sweep("quickstart", GRID, out=place, **SMALL)


@pytest.fixture
def copied(swept, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(swept.place, tmp_path / "sweep")


def plan_of(folder):
    """Content of sweep.json as earlier versions wrote it, to be changed: without a seal."""
    plan = json.loads((folder / "sweep.json").read_text())
    del plan["seal"]
    return plan


def cell_columns(run):
    return run.rounds.drop(columns=list(WALL_COLUMNS))


def test_a_cell_has_the_bits_of_the_same_scenario_run_alone(swept, tmp_path):
    alone = edgesim.run(
        "quickstart",
        out=tmp_path / "alone",
        inline=True,
        gossip__averaging_rate=0.2,
        seed=2,
        **SMALL,
    )
    cell = swept.run("averaging_rate=0.2,seed=2")
    assert cell.scenario == alone.scenario
    pd.testing.assert_frame_equal(cell_columns(cell), cell_columns(alone))
    pd.testing.assert_frame_equal(cell.evaluations, alone.evaluations)
    for device, model in alone.models.items():
        assert model.x.tobytes() == cell.models[device].x.tobytes()


def test_results_are_one_tidy_table(swept):
    found = swept.evaluations
    assert swept.is_finished
    assert found["cell"].drop_duplicates().tolist() == CELLS
    assert len(found) == 4 * 2
    assert list(found.columns)[:5] == ["cell", "gossip.averaging_rate", "seed", "round", "epoch"]
    row = found[(found["seed"] == 2) & (found["round"] == 4)].iloc[-1]
    run = swept.run(row["cell"])
    assert row["gossip.averaging_rate"] == run.scenario.gossip.averaging_rate == 0.2
    assert row["accuracy"] == run.summary["consensus_accuracy"]
    assert row["device_accuracy_mean"] == pytest.approx(run.summary["device_accuracy_mean"])
    assert row["total_sent_bytes"] == run.summary["sent_bytes"]
    assert row["total_messages_sent"] == run.summary["messages_sent"]


def test_a_key_that_an_entry_lacks_has_the_scenarios_value(copied):
    """Entries of a list may set different keys; no cell of the table is empty then."""
    plan = plan_of(copied)
    plan["keys"].append("topology")
    del plan["cells"][CELLS[2]]["settings"]["gossip.averaging_rate"]
    (copied / "sweep.json").write_text(json.dumps(plan))
    found = edgesim.load_sweep(copied).final
    assert found["gossip.averaging_rate"].tolist() == [0.1, 0.1, 0.2, 0.2]
    assert set(found["topology"]) == {"{kind: directed_ring, weights: column_stochastic}"}


def test_means_and_deviations_are_over_seeds(swept):
    means = swept.means()
    assert len(means) == 2 * 2
    assert means["cells"].tolist() == [2] * 4
    for row in means.to_dict("records"):
        own = swept.evaluations[
            (swept.evaluations["gossip.averaging_rate"] == row["gossip.averaging_rate"])
            & (swept.evaluations["round"] == row["round"])
        ]
        assert row["loss"] == pytest.approx(own["loss"].mean(), rel=1e-12)
        first, second = own["loss"]
        assert row["loss_std"] == pytest.approx(abs(first - second) / np.sqrt(2), rel=1e-12)
    with pytest.raises(ValueError, match="the sweep has no 'sed'; did you mean seed"):
        swept.means(over="sed")
    table = swept.table()
    assert table["round"].tolist() == [4, 4]
    assert "seed" not in table.columns
    assert swept.means(over="gossip.averaging_rate")["seed"].tolist() == [1, 1, 2, 2]


def test_a_folder_that_holds_the_run_of_another_cell_is_refused(copied):
    """Cells 0 and 2 have the same seed and other averaging rates."""
    first, other = copied / CELLS[0], copied / CELLS[2]
    first.rename(copied / "kept")
    other.rename(first)
    (copied / "kept").rename(other)
    said = r"gossip\.averaging_rate is 0\.2 in this run and 0\.1 in the sweep"
    with pytest.raises(edgesim.SweepError, match=f"{re.escape(CELLS[0])}: {said}"):
        edgesim.load_sweep(copied)
    with pytest.raises(edgesim.SweepError, match=f"{re.escape(CELLS[0])}: {said}"):
        edgesim.sweep("quickstart", GRID, out=copied, **SMALL)


def test_a_changed_plan_is_refused(copied):
    file = copied / "sweep.json"
    text = file.read_text()
    file.write_text(text.replace('"gossip.averaging_rate": 0.1', '"gossip.averaging_rate": 0.3', 1))
    with pytest.raises(edgesim.SweepError, match=r"sweep\.json: damaged; bring it back"):
        edgesim.load_sweep(copied)


@pytest.mark.parametrize(
    "plan",
    [
        [],
        {"format": 1},
        {"format": 1, "name": "a", "keys": [], "cells": []},
        {"format": 1, "name": "a", "keys": [], "cells": {"x": {}}},
        {"format": 1, "name": 1, "keys": [], "cells": {}},
    ],
)
def test_a_plan_of_another_shape_is_damaged(tmp_path, plan):
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(edgesim.SweepError, match=r"sweep\.json: damaged; bring it back"):
        edgesim.load_sweep(tmp_path)


def test_cells_whose_figures_are_in_doubt_are_named(copied):
    for place, cell in enumerate(CELLS):
        with RunDirectory.open_existing(copied / cell).held() as files:
            summary = files.read_json("summary.json")
            files.write_json("summary.json", summary | {"warnings": [f"move apart {place}"]})
    results = edgesim.load_sweep(copied)
    assert list(results.warnings) == CELLS
    shown = [f"{cell}: move apart {place}" for place, cell in enumerate(CELLS[:3])]
    assert results.warning_lines() == [*shown, "and 1 more cells"]
    lines = [f"warning: {line}" for line in results.warning_lines()]
    assert list(sweep_table(results).notes[:4]) == lines
    assert repr(results).endswith("and 1 more cells")
    assert "move apart 0" in results._repr_html_()


def test_null_and_whole_numbers_stay_what_they_are(copied):
    plan = plan_of(copied)
    values = {"recovery.checkpoint_every_rounds": 2, "model.norm": "batch"}
    plan["keys"] += values
    for place, cell in enumerate(CELLS):
        for key, value in values.items():
            plan["cells"][cell]["settings"][key] = value if place >= 2 else None
    (copied / "sweep.json").write_text(json.dumps(plan))
    results = edgesim.load_sweep(copied)
    for key, value in values.items():
        assert results.table()[key].tolist() == [None, value]
    assert [row[1:3] for row in sweep_table(results).rows] == [("null", "null"), ("2", "batch")]


def test_notes_tell_of_columns_that_are_there(swept):
    swept = replace(swept, warnings={})
    of_both, of_means, _ = sweep_table(swept).notes
    assert of_both.endswith("; devices: the mean of their own models' accuracies")
    assert of_means == "all of the last evaluations: means, with sample deviations over seeds"
    alone = swept.evaluations.drop(columns="device_accuracy_mean")
    assert sweep_table(replace(swept, evaluations=alone)).notes[0] == "averaged model: its accuracy"
    none = alone.assign(accuracy=None)
    assert sweep_table(replace(swept, evaluations=none)).notes[0] == of_means


def test_a_sweep_taken_for_a_run_is_named(swept):
    with pytest.raises(RunDirectoryError, match="the folder of a sweep, not a run") as caught:
        edgesim.load_run(swept.place)
    assert f"edgesim sweep SCENARIO --out {swept.place}" in str(caught.value)


def test_rates_that_were_found_and_costs_are_shown(tmp_path):
    """Of the cell that asks for a rate, and of both cells with clocks."""
    grid = {"grid": {"gossip.averaging_rate": ["auto", 0.2]}}
    results = edgesim.sweep(
        "quickstart", grid, out=tmp_path / "s", workers=1, fleet__profile="raspberry-pi-4b", **SMALL
    )
    found = results.table()
    rate = results.run("averaging_rate=auto").summary["averaging_rate"]
    assert found["averaging_rate_found"].tolist() == [rate, pytest.approx(nan, nan_ok=True)]
    shown = sweep_table(results)
    auto, fixed = (dict(zip(shown.columns, row, strict=True)) for row in shown.rows)
    assert list(auto) == [
        *("gossip.averaging_rate", "averaged model", "devices", "loss", "consensus distance"),
        *("averaging rate", "virtual s", "joules", "bytes sent", "messages", "cells"),
    ]
    assert (auto["averaging rate"], fixed["averaging rate"]) == (f"{rate:g}", "")
    summary = results.run("averaging_rate=0.2").summary
    assert fixed["averaged model"] == f"{summary['consensus_accuracy']:.4f}"
    assert fixed["devices"] == f"{summary['device_accuracy_mean']:.4f}"
    assert fixed["virtual s"] == number(summary["virtual_time_s"])
    assert fixed["joules"] == number(summary["energy_j"])
    assert fixed["messages"] == f"{summary['messages_sent']:,}"
    assert "all of the last evaluations" in shown.notes, "each row is one cell"


def test_cells_that_differ_in_the_precision_are_told_what_differs_with_it(tmp_path):
    def said(**grid):
        planned = read_sweep("quickstart", {"grid": {"model.precision": ["fp32", "int8"], **grid}})
        return [line for line in check_cells(planned, "s") if "model.norm" in line]

    (text,) = said(seed=[1, 2])
    assert text == (
        "model.norm is evonorm_s0 in the cells in fp32, range_evonorm in those in int8; to "
        "compare precisions alone, set model.norm to range_evonorm and model.gate to hard_sigmoid"
    )
    remedy = {"model.norm": ["range_evonorm"], "model.gate": ["hard_sigmoid"]}
    assert said(**remedy) == []


def test_finished_cells_are_not_run_again_and_new_ones_are(copied, swept, capsys):
    begun = []
    more = {"grid": {**GRID["grid"], "seed": [1, 2, 3]}}
    done = copied / CELLS[0] / "summary.json"
    before = done.stat().st_mtime_ns
    results = edgesim.sweep(
        "quickstart", more, out=copied, workers=1, on_event=begun.append, progress=True, **SMALL
    )
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "4 of 6 cells are finished already"
    assert re.fullmatch(r"2/2 averaging_rate=0\.2,seed=3: accuracy 0\.\d{4}", shown[-1])
    assert {event.cell for event in begun} == {
        f"averaging_rate={rate},seed=3" for rate in (0.1, 0.2)
    }
    assert done.stat().st_mtime_ns == before
    assert len(results.final) == 6
    kept = results.evaluations[results.evaluations["seed"] < 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, swept.evaluations)


def test_a_changed_file_is_told_what_differs_from_its_folder(copied):
    with pytest.raises(edgesim.SweepError, match=r"training\.rounds was 4 there and is 5 now"):
        edgesim.sweep("quickstart", GRID, out=copied, **SMALL | {"training__rounds": 5})
    fewer = {"grid": {**GRID["grid"], "seed": [1]}}
    with pytest.raises(
        edgesim.SweepError, match=r"the file lacks averaging_rate=0\.1,seed=2 and 1"
    ):
        edgesim.sweep("quickstart", fewer, out=copied, **SMALL)
    (copied / "sweep.json").unlink()
    with pytest.raises(edgesim.SweepError, match="holds no sweep; name another out"):
        edgesim.sweep("quickstart", GRID, out=copied, **SMALL)
    with pytest.raises(edgesim.SweepError, match=r"no folder of a sweep; it lacks sweep\.json"):
        edgesim.load_sweep(copied)
    with pytest.raises(edgesim.SweepError, match="there is nothing; name the folder of a sweep"):
        edgesim.load_sweep(copied / "mistyped")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"grid": {"sed": [1]}}, "sweep.grid: sed is no key of a scenario; did you mean seed?"),
        ({"grd": {"seed": [1]}}, "sweep.grd is an unknown key; did you mean grid?"),
    ],
)
def test_a_block_given_in_python_has_no_line_of_the_file(block, said):
    with pytest.raises(edgesim.ScenarioError) as refused:
        edgesim.sweep("quickstart", block)
    assert str(refused.value) == said


def test_nothing_runs_if_one_cell_cant(tmp_path):
    """That topology needs eight devices, which the last cell alone lacks."""
    block = {"list": [{"fleet.devices": 8}, {"fleet.devices": 7}]}
    with pytest.raises(edgesim.ScenarioError, match=r"cell devices=7: .*torus of 7"):
        edgesim.sweep("quickstart", block, out=tmp_path / "s", topology={"kind": "torus"})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_cell_is_named_and_the_rest_is_done(tmp_path):
    block = {"list": [{"training.optimizer.lr": 1.0e20}, {"training.optimizer.lr": 0.05}]}
    with pytest.warns(edgesim.SweepWarning, match=r"1 cells failed: lr=1.0e.20: .*diverged"):
        results = edgesim.sweep("quickstart", block, out=tmp_path / "s", workers=1, **SMALL)
    assert list(results.missing) == ["lr=1.0e+20"]
    assert "diverged" in results.missing["lr=1.0e+20"]
    assert results.final["cell"].tolist() == ["lr=0.05"]
    assert "missing lr=1.0e+20" in repr(results)
    with pytest.warns(edgesim.UnfinishedRunWarning, match="1 of 2 cells are not finished"):
        edgesim.load_sweep(tmp_path / "s")


def test_what_a_run_left_that_was_killed_at_its_first_moment_is_no_obstacle(copied, swept):
    shutil.rmtree(copied / CELLS[1])
    (copied / CELLS[1] / "parts").mkdir(parents=True)
    about = (copied / CELLS[2] / "run.json").read_bytes()
    shutil.rmtree(copied / CELLS[2])
    (copied / CELLS[2] / "models").mkdir(parents=True)
    (copied / CELLS[2] / "run.json").write_bytes(about)
    results = edgesim.sweep("quickstart", GRID, out=copied, workers=1, **SMALL)
    pd.testing.assert_frame_equal(results.evaluations, swept.evaluations)


def test_after_a_kill_in_the_middle_nothing_is_left_and_the_same_command_goes_on(
    tmp_path, swept, capsys, monkeypatch
):
    """Killed once its first cell is done, interrupted once its second is; in the end in here.

    The interrupt is of `make thorough`: a kill leaves less time to end in order.
    """
    words = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in SMALL.items()]
    scenario, place = tmp_path / "s.yaml", tmp_path / "s"
    text = edgesim.dump_scenario(edgesim.load_scenario("quickstart"))
    scenario.write_text(f"{text}sweep: {json.dumps(GRID)}\n")
    arguments = ["sweep", str(scenario), "--out", str(place), "--workers", "1"]
    arguments += [word for override in words for word in ("--set", override)]
    mark = str(tmp_path)
    ends = [(CELLS[0], signal.SIGKILL, -signal.SIGKILL), (CELLS[1], signal.SIGINT, 130)]
    for cell, sent, status in some(ends, 1):
        process = subprocess.Popen(
            with_interrupts(signal.SIG_DFL, sys.executable, "-m", "edgesim", *arguments),
            cwd=tmp_path,
            env={**os.environ, MARK: mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_for((place / cell / "summary.json").is_file, process, look_s=0.05)
        process.send_signal(sent)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == status, output
        assert "Traceback" not in output
        assert ("stopped; the same command goes on with" in output) is (sent == signal.SIGINT)
        wait_for(lambda: not marked(mark), None)
        assert not (place / CELLS[3] / "summary.json").exists()
    monkeypatch.setattr(sys, "argv", ["edgesim", *arguments])
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main()
    signal.signal(signal.SIGTERM, handler)
    assert not ended.value.code
    said = capsys.readouterr().out
    assert "cells are finished already" in said
    assert "+-" in said
    pd.testing.assert_frame_equal(edgesim.load_sweep(place).evaluations, swept.evaluations)


def test_cells_use_the_modules_of_the_process_that_starts_them(tmp_path, monkeypatch):
    """Not those of the working folder, which a console script does not look into."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edgesim.py").write_text("raise SystemExit('the wrong edgesim')")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    results = edgesim.sweep("quickstart", {"grid": {"seed": [1]}}, out="s", workers=1, **SMALL)
    assert results.evaluations["accuracy"].notna().any()


def test_a_report_names_cells_without_results(copied):
    (copied / CELLS[0] / "summary.json").unlink()
    store = Store.at(copied)
    write_failures(store, {CELLS[0]: "the averaged model ended with a loss of inf"})
    (copied / CELLS[1] / "summary.json").unlink()
    assert missing_cells(store) == {
        CELLS[0]: "the averaged model ended with a loss of inf",
        CELLS[1]: "not finished",
    }
    shutil.rmtree(copied / CELLS[0])
    shutil.rmtree(copied / CELLS[1])
    app(["report", str(copied)], standalone_mode=False)
    page = (copied / "report.html").read_text()
    said = f"<li>Cell {CELLS[0]} of the sweep has no result: the averaged model ended with a loss"
    assert said in page
    assert f"<li>Cell {CELLS[1]} of the sweep has no result: not finished.</li>" in page


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "[" * 100_000])
def test_a_foreign_or_damaged_list_of_failures_gets_one_line(copied, content):
    (copied / "failures.json").write_text(content)
    with pytest.raises(edgesim.SweepError, match=r"failures\.json: damaged, or of another program"):
        edgesim.load_sweep(copied)


def test_chosen_cells_run_first_and_the_others_later_in_the_same_folder(swept, tmp_path):
    place = tmp_path / "sweep"
    only = {"gossip__averaging_rate": 0.2, "seed": 1}
    first = edgesim.sweep("quickstart", GRID, only=only, out=place, **SMALL)
    assert first.evaluations["cell"].unique().tolist() == [CELLS[2]]
    assert sorted(first.missing) == sorted({*CELLS} - {CELLS[2]})
    whole = edgesim.sweep("quickstart", GRID, out=place, **SMALL)
    pd.testing.assert_frame_equal(whole.evaluations, swept.evaluations)
    again = edgesim.sweep("quickstart", GRID, only={"seed": 2}, out=place, **SMALL)
    assert not again.missing


def test_cells_that_are_not_chosen_keep_the_reason_of_their_failure(tmp_path):
    block = {"list": [{"training.optimizer.lr": 1.0e20}, {"training.optimizer.lr": 0.05}]}
    place = tmp_path / "s"
    with pytest.warns(edgesim.SweepWarning, match="1 cells failed"):
        edgesim.sweep(
            "quickstart", block, only={"training__optimizer__lr": 1e20}, out=place, **SMALL
        )
    only = {"training__optimizer__lr": 0.05}
    results = edgesim.sweep("quickstart", block, only=only, out=place, **SMALL)
    assert "diverged" in results.missing["lr=1.0e+20"]


def test_the_command_runs_the_chosen_cells_alone(tmp_path, capsys):
    scenario = tmp_path / "rates.yaml"
    scenario.write_text(
        f"{shipped_scenarios()['quickstart'].read_text()}\nsweep: {json.dumps(GRID)}\n"
    )
    sets = ["training.rounds=2", "data.train_samples=80", "evaluation.samples=40"]
    sets += ["evaluation.every_rounds=2", "evaluation.every_epochs=null"]
    words = [word for value in sets for word in ("--set", value)]
    chosen = ["--only", "seed=2", "--only", "gossip.averaging_rate=0.1"]
    out = tmp_path / "out"
    app(["sweep", str(scenario), *words, *chosen, "--out", str(out)], standalone_mode=False)
    assert f"1/1 {CELLS[1]}: accuracy" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [CELLS[1]]
