"""The tables of the paper's rows in the docs are those of docs/measured."""

from __future__ import annotations

import json

import paper_table
import pytest
from paper_table import FP32, INT8, Accuracies


def test_pages_have_the_tables_as_they_are_now():
    for page, tables in paper_table.pages().items():
        text = page.read_text()
        assert paper_table.with_tables(text, tables) == text, (
            f"{page.name}: python benchmarks/paper_table.py --write"
        )


def test_a_table_that_has_changed_is_replaced_and_nothing_else():
    page = "before\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n\nafter | x |\n"
    table = "| a | b |\n| --- | --- |\n| 5 | 6 |"
    assert paper_table.with_tables(page, [table]) == f"before\n\n{table}\n\nafter | x |\n"
    with pytest.raises(SystemExit, match="no page has the table"):
        paper_table.with_tables("nothing", [table])


def test_figures_are_those_of_the_last_evaluations():
    """Each cell once, by the settings that its name stands for."""
    measured = paper_table.ends()
    content = json.loads((paper_table.MEASURED / "table2a_quarter.json").read_text())
    ended = [cell["evaluations"][-1] for cell in content["cells"] if cell["finished"]]
    quarter = [ends[1] for (_, epochs), ends in measured.items() if epochs == 50]
    assert sorted(one.averaged for one in quarter) == sorted(100 * e["averaged"] for e in ended)
    (int8,) = (
        cell["evaluations"][-1]
        for cell in content["cells"]
        if "skew=0.0" in cell["cell"] and "identity" in cell["cell"] and "int8" in cell["cell"]
    )
    assert measured[INT8, 50][1].averaged == 100 * int8["averaged"]
    assert measured[INT8, 50][1].as_the_authors == 100 * int8["as_the_authors"]


def test_prices_are_seed_by_seed_and_of_the_same_seeds(monkeypatch):
    ends = {
        (FP32, 20): {1: Accuracies(80, 80), 2: Accuracies(70, 60), 3: Accuracies(10, 10)},
        (INT8, 20): {2: Accuracies(68, 57), 1: Accuracies(76.5, 76.5)},
        (FP32, 200): {1: Accuracies(72.29, 72.29)},
        (INT8, 200): {1: Accuracies(68.94, 68.94)},
    }
    monkeypatch.setattr(paper_table, "ends", lambda: ends)
    (table,) = paper_table.price_tables().values()
    assert table.splitlines()[2:] == ["| 0 %, skew 0 | 0.7 | 3.4 |  | 2.8 +- 1.1 (3.3 +- 0.4) |"]
