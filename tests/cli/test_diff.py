"""`edgesim diff`: the same bits, or where two runs part."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from small_fleets import small_scenario, write_scenario

import edgesim
from edgesim.assembly.preparation import prepare
from edgesim.cli import main
from edgesim.cli.diff import diff_table
from edgesim.fleet.run import run_scenario
from edgesim.report.runs import load_runs
from edgesim.results.columns import WALL_COLUMNS
from edgesim.results.models import DeviceModel
from edgesim.results.run_files import RunDirectoryError
from edgesim.scenario import load_scenario


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A run, the same run once more, and one with another rate."""
    folder = tmp_path_factory.mktemp("diff")
    path = write_scenario(folder, small_scenario())
    for name, overrides in (("a", ()), ("again", ()), ("other", ("training.optimizer.lr=0.01",))):
        prepared = prepare(load_scenario(path, overrides))
        run_scenario(prepared, folder / name, inline=True, console=Console(file=StringIO()))
    return folder


@pytest.fixture
def run(places):
    return edgesim.load_run(places / "a")


def said(places, other, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["edgesim", "diff", str(places / "a"), str(places / other)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0, capsys.readouterr().out


def test_the_same_scenario_twice_has_the_same_bits(places, monkeypatch, capsys):
    status, text = said(places, "again", monkeypatch, capsys)
    assert status == 0
    assert text.count("the same bits") == 5
    assert "DIFFER" not in text


def test_another_rate_is_found_with_the_setting(places, monkeypatch, capsys):
    status, text = said(places, "other", monkeypatch, capsys)
    assert status == 1
    assert "DIFFER" in text
    assert "training.optimizer.lr" in text
    assert "0.01" in text


@pytest.mark.parametrize(
    ("other", "processor", "is_told"),
    [("again", "Pentium", False), ("other", "Pentium", True), ("other", None, False)],
)
def test_runs_with_other_bits_name_processors_that_differ(
    places, monkeypatch, other, processor, is_told
):
    """Runs of earlier versions have none on record."""
    one, two = load_runs([places / "a", places / other], are_compared=False)
    two = replace(two, environment={**two.environment, "processor": processor})
    monkeypatch.setattr("edgesim.cli.diff.load_runs", lambda *_, **__: [one, two])
    table, _ = diff_table("a", other)
    notes = " ".join(table.notes)
    assert ("by Pentium." in notes) == is_told
    assert (f"by {one.environment['processor']}; " in notes) == is_told


def test_a_folder_of_several_runs_is_told_from_a_run(places, monkeypatch, capsys):
    argv = ["edgesim", "diff", str(places), str(places / "a")]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert "runs, such as" in err
    assert "diff compares two: name the folder of each" in err


def differences(first, second):
    return {own.what: own.difference for own in edgesim.compare_runs(first, second)}


def test_a_model_that_one_run_lacks_is_named(run):
    fewer = replace(run, models={d: model for d, model in run.models.items() if d != 1})
    assert differences(run, fewer)["models"] == "the second run lacks that of device 1"
    assert differences(fewer, run)["models"] == "the first run lacks that of device 1"


def changed(run, table, row, column, value):
    """A run with another value in a cell."""
    content = getattr(run, table).copy()
    content.loc[row, column] = value
    return replace(run, **{table: content})


@pytest.mark.parametrize(
    ("table", "column"),
    [("rounds", "loss"), ("messages", "bytes"), ("evaluations", "loss"), ("devices", "samples")],
)
def test_the_last_bit_of_a_cell_is_found_and_where_it_is(run, table, column):
    content = getattr(run, table)
    before = content[column].iloc[3]
    after = np.nextafter(before, 9.0) if content[column].dtype.kind == "f" else before + 1
    found = differences(run, changed(run, table, 3, column, after))
    assert found.pop(table).startswith(f"1 of {len(content):,}, first in ")
    assert not any(found.values())


def test_nothing_is_the_same_as_nothing_and_zero_has_a_sign(run):
    empty = changed(run, "rounds", 0, "loss", np.nan)
    assert not any(differences(empty, changed(run, "rounds", 0, "loss", np.nan)).values())
    zero, minus = (changed(run, "rounds", 0, "loss", value) for value in (0.0, -0.0))
    assert "loss 0.0 and -0.0" in differences(zero, minus)["rounds"]


def test_times_of_the_machine_are_no_difference(run):
    columns = list(WALL_COLUMNS)
    rounds = run.rounds.assign(**dict.fromkeys(columns, 1.0))
    assert not any(differences(run, replace(run, rounds=rounds)).values())


def test_a_longer_run_and_other_columns_are_differences(run):
    shorter = replace(run, rounds=run.rounds.iloc[:-1])
    assert differences(run, shorter)["rounds"] == "the same bits as far as both go"
    fewer = replace(run, rounds=run.rounds.drop(columns="loss"))
    assert differences(run, fewer)["rounds"] == "columns of one run alone: loss"


def test_evaluations_of_other_rounds_are_compared_where_both_have_one(run):
    evaluations = run.evaluations
    assert evaluations["round"].nunique() > 1
    later = replace(run, evaluations=evaluations[evaluations["round"] > evaluations["round"].min()])
    found = differences(run, later)["evaluations"]
    assert found == "other rounds were evaluated; models in both: the same bits"
    changed = later.evaluations.assign(loss=0.0)
    found = differences(run, replace(run, evaluations=changed))["evaluations"]
    assert found.startswith(f"other rounds were evaluated; models in both: {len(changed)} of ")
    none = evaluations.assign(round=evaluations["round"] + 1000)
    found = differences(run, replace(run, evaluations=none))["evaluations"]
    assert found == "other rounds were evaluated, none in both"


def test_a_run_that_is_not_finished_is_refused(run):
    with pytest.raises(RunDirectoryError, match="is not finished"):
        edgesim.compare_runs(run, replace(run, missing=("rounds",)))


def test_folders_may_be_named(places, run):
    found = edgesim.compare_runs(str(places / "a"), places / "again")
    assert found == edgesim.compare_runs(run, edgesim.load_run(places / "again"))
    assert not any(part.difference for part in found)


def test_lists_are_compared_by_their_content(run):
    devices = run.devices.copy()
    counts = devices["label_counts"].iloc[1].copy()
    counts[0] += 1
    devices["label_counts"] = pd.Series([*devices["label_counts"]], dtype=object)
    devices.at[1, "label_counts"] = counts
    found = differences(run, replace(run, devices=devices))
    assert "first in device 1: label_counts" in found["devices"]


def test_a_bit_of_a_model_is_found(run):
    models = {device: run.models[device] for device in run.models}
    x = models[2].x.copy()
    x[-1] = np.nextafter(x[-1], x.dtype.type(9.0))
    other = {**models, 2: DeviceModel(2, x, *_rest(models[2]))}
    found = differences(replace(run, models=models), replace(run, models=other))
    assert found["models"] == "1 of them, first that of device 2"


def _rest(model):
    return model.u, model.buffers, model.rounds_done, model.gone
