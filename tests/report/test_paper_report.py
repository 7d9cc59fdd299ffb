"""`edgesim report --paper`: the paper's numbers beside what was measured."""

from __future__ import annotations

import statistics

import pandas as pd
import pytest
from reported_runs import SCENARIO, train

from edgesim.report import report
from edgesim.report.errors import ReportError
from edgesim.report.paper import required_paper_table
from edgesim.report.report import write_paper_report
from edgesim.report.runs import load_runs

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
    table, (page, _) = write_paper_report(places, tmp_path / "page.html")
    figure, row = table.rows
    last = [pd.read_parquet(place / "evaluations.parquet") for place in places[:2]]
    last = [evaluations[evaluations["device"] < 0].iloc[-1] for evaluations in last]
    authors, averaged = (
        [100 * row[name] for row in last] for name in ("after_gossip_accuracy", "accuracy")
    )
    said = [f"{statistics.mean(x):.2f} +- {statistics.stdev(x):.2f}" for x in (authors, averaged)]
    difference = f"{statistics.mean(authors) - 84.49:+.2f}"
    words = ("Table 3", "CHOCO + QGM", "small_cnn", "0.8", "80 %", "84.49")
    assert row == (*words, said[0], difference, said[1], "2", "1 of 200")
    assert figure[:6] == ("Fig. 1", "CHOCO + QGM, batch", "small_cnn", "0.8", "0 %", "-")
    assert figure[6:8] == ("-", "-")
    assert figure[9:] == ("1", "1")
    text = (tmp_path / "page.html").read_text()
    assert page == str(tmp_path / "page.html")
    assert "<td>84.49</td>" in text
    assert "How well the models learn" in text  # the rest of the report


def test_rows_that_cannot_be_compared_have_the_table_alone(places, tmp_path, monkeypatch):
    def refuse(_):
        raise ReportError("other data")

    monkeypatch.setattr(report, "check_comparable", refuse)
    table, _ = write_paper_report(places, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(table.rows) == 2
    assert "<td>84.49</td>" in text
    assert "How well the models learn" not in text


def test_runs_without_targets_are_refused(place):
    with pytest.raises(ReportError, match="no section paper"):
        required_paper_table(load_runs([place]))
