"""`edgesim report --paper`: the paper's numbers beside what was measured."""

from __future__ import annotations

import statistics
from io import StringIO
from types import SimpleNamespace

import pandas as pd
import pytest
from reported_runs import SCENARIO, train
from rich.console import Console

from edgesim.cli.report import show_report
from edgesim.report import report
from edgesim.report.departures import departure_notes
from edgesim.report.errors import ReportError
from edgesim.report.paper import required_paper_table
from edgesim.report.report import write_paper_report
from edgesim.report.runs import load_runs
from edgesim.scenario.shipped import shipped_folder
from edgesim.scenario.sweep import parse_sweep, scaled_sweep

ROW = {
    **{key: SCENARIO[key] for key in ("topology", "data", "model", "gossip")},
    "name": "a-row",
    "seed": 1,
    "fleet": {"devices": 4},
    "training": {"epochs": 1, "optimizer": {"lr": 0.05, "momentum_kind": "quasi_global"}},
    "evaluation": {"samples": 50, "gossip_rounds": 3},
    "paper": {"place": "Table 3", "accuracy": 84.49, "epochs": 200},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Two seeds of a row, and one of a row without a number."""
    folder = tmp_path_factory.mktemp("paper")
    found = [train(folder / str(seed), f"seed={seed}", scenario=ROW) for seed in (1, 2)]
    other = (
        "paper={place: Fig. 1}",
        "model.norm=batch",
        "gossip.compressor={kind: identity}",
        "evaluation.gossip_rounds=0",
    )
    return [*found, train(folder / "other", *other, scenario=ROW)]


def test_a_row_is_the_mean_over_seeds_beside_the_paper(places, tmp_path):
    (table,), (page, _) = write_paper_report(places, tmp_path / "page.html")
    figure, row = table.rows
    last = [pd.read_parquet(place / "evaluations.parquet") for place in places[:2]]
    last = [evaluations[evaluations["device"] < 0].iloc[-1] for evaluations in last]
    authors, averaged = (
        [100 * row[name] for row in last] for name in ("after_gossip_accuracy", "accuracy")
    )
    said = [f"{statistics.mean(x):.2f} +- {statistics.stdev(x):.2f}" for x in (authors, averaged)]
    words = ("Table 3", "CHOCO + QGM", "small_cnn", "0.8", "80 %", "84.49")
    samples = ("200 of 1,442", "50 of 355")
    assert row[:11] == (*words, said[0], "cut", said[1], "2", "1 of 200")
    assert row[11:] == ("3 to 4", *samples)
    assert figure[:6] == ("Fig. 1", "CHOCO + QGM, batch", "small_cnn", "0.8", "0 %", "-")
    assert figure[6:8] == ("-", "-")
    assert figure[9:] == ("1", "1", "4", *samples)
    text = (tmp_path / "page.html").read_text()
    assert page == str(tmp_path / "page.html")
    assert "<td>84.49</td>" in text
    assert "evaluation.samples is 50, there not set (all rows)" in text
    assert "How well the models learn" in text  # the rest of the report


def test_a_difference_needs_the_whole_schedule_and_all_samples(tmp_path):
    whole = ("data.train_samples=null", "evaluation.samples=null", "paper.epochs=1")
    place = train(tmp_path / "whole", *whole, scenario=ROW)
    table = required_paper_table(load_runs([place]))
    assert table.columns[-1] == "rounds"
    (row,) = table.rows
    assert row[7] == f"{float(row[6]) - 84.49:+.2f}"
    assert not any(note.startswith("Cut:") for note in table.notes)


def _cell(*overrides, scale=0.02, name="table2a_fp32"):
    """A run of the last cell of a shipped sweep, as far as settings go."""
    path = shipped_folder() / "paper" / f"{name}.yaml"
    sweep = parse_sweep(path.read_text(), name, path.parent, overrides)
    scenario = scaled_sweep(sweep, scale).cells[-1].scenario
    return SimpleNamespace(settings=scenario.model_dump(mode="json"), scenario=scenario)


def test_settings_that_are_not_as_shipped_are_named():
    cut = ("data.train_samples=1024", "evaluation.samples=500", "data.path=here", "seed=3")
    skewed = _cell("training.optimizer.lr=0.2", scale=0.07)
    rows = [("a", _cell(*cut)), ("b", _cell(*cut)), ("c", skewed)]
    said = "Not as in scenarios/paper"
    assert departure_notes(rows) == [
        f"{said}: data.train_samples is 1024, there not set (a; b).",
        f"{said}: evaluation.samples is 500, there not set (a; b).",
        f"{said}: training.optimizer.lr is 0.2, there 0.1 (c).",
    ]
    milestones = _cell("training.schedule.milestones=[100, 120]", scale=0.1)
    assert departure_notes([("a", milestones)]) == [
        f"{said}: training.schedule.milestones is [10, 12], there [100, 150]."
    ]
    assert not departure_notes([("a", _cell(scale=1.0, name="table1_cifar10_int8"))])


def test_a_place_without_a_shipped_scenario_is_told():
    run = _cell("paper.place=Table 9")
    (line,) = departure_notes([("mine", run)])
    assert line.endswith("so settings are not compared: mine.")


def test_rows_that_cannot_be_compared_have_the_table_alone(places, tmp_path, monkeypatch):
    def refuse(_):
        raise ReportError("other data")

    monkeypatch.setattr(report, "check_comparable", refuse)
    (table,), _ = write_paper_report(places, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(table.rows) == 2
    assert "<td>84.49</td>" in text
    assert "How well the models learn" not in text


def test_costs_of_an_accuracy_stand_beside_the_paper(places, tmp_path, monkeypatch):
    often = train(tmp_path / "often", "evaluation.every_rounds=1", scenario=ROW)
    page, shown = tmp_path / "page.html", Console(file=StringIO(), width=200)
    show_report([str(often)], page, shown, with_paper=True, accuracies=[1.0])
    printed = shown.file.getvalue()
    assert printed.index("The paper and what was measured") < printed.index(
        "What an accuracy of the averaged model cost"
    )
    assert "What an accuracy of the averaged model cost" in page.read_text()
    with pytest.raises(ReportError, match="no run has two evaluations"):
        write_paper_report(places[:1], page, [1.0])

    def refuse(_):
        raise ReportError("other data")

    monkeypatch.setattr(report, "check_comparable", refuse)
    with pytest.raises(ReportError, match="other data"):
        write_paper_report([often], page, [1.0])


def test_runs_without_targets_are_refused(place):
    with pytest.raises(ReportError, match="no section paper"):
        required_paper_table(load_runs([place]))
