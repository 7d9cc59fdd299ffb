"""What the cells of a sweep cost: each as alone, once for all its seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

import edgesim
from edgesim.cli import sweep_costs as command
from edgesim.errors import EdgesimError, ScenarioError

GRID = {"grid": {"gossip.compressor.keep": [0.1, 0.01], "seed": [1, 2, 3]}}
PI = {"fleet__profile": "raspberry-pi-4b"}


def test_each_cell_costs_what_it_costs_alone():
    found = edgesim.sweep_costs("quickstart", GRID, **PI)
    table = found.table()
    assert list(table["gossip.compressor.keep"]) == [0.1, 0.01]
    for row, keep in zip(table.to_dict("records"), (0.1, 0.01), strict=True):
        alone = edgesim.cost("quickstart", gossip__compressor__keep=keep, advice=False, **PI)
        training = alone.answer.training
        assert row["fits"]
        assert row["memory_bytes"] == alone.answer.needs[0].needed_bytes
        assert row["rounds"] == 360
        assert row["round_s"] == alone.answer.costs.steady_state.period_s
        assert row["virtual_time_s"] == training.seconds
        assert row["sent_bytes"] == max(training.sent_bytes)
        assert row["total_sent_bytes"] == sum(training.sent_bytes)
        assert row["total_energy_j"] == sum(training.energy_j)
    assert table["battery_used"].isna().all()


def test_the_table_says_what_it_is_of():
    found = edgesim.sweep_costs("quickstart", GRID)
    table = found.text_table()
    assert table.title == "quickstart: what 2 cells cost (of 6)"
    assert table.columns == (
        *("gossip.compressor.keep", "memory", "rounds", "sends", "energy of all"),
    )
    assert [row[0] for row in table.rows] == ["0.1", "0.01"]
    assert table.notes == (
        "of the whole training; memory and sends of the device with the most",
        (
            "times need fleet.profile; energy without it is that of arithmetic and memory traffic "
            "alone, by horowitz_45nm"
        ),
        "of cells that differ in their seed alone, the first was studied",
    )
    assert repr(found) == "<costs of quickstart: what 2 cells cost (of 6); .table() has them>"
    assert "<td>0.01</td>" in found._repr_html_()


def test_batteries_and_devices_without_the_memory_are_shown():
    fleets = [
        [{"profile": profile, "count": 4, "battery_wh": 1.0}]
        for profile in ("raspberry-pi-4b", "arduino-portenta-h7")
    ]
    grid = {"grid": {"fleet.devices": fleets}}
    found = edgesim.sweep_costs("quickstart", grid, data__batch_size=300)
    table = found.table()
    assert list(table["fits"]) == [True, False]
    assert (table["battery_used"] > 0).all()
    columns = found.text_table().columns
    assert (columns[1], columns[-1]) == ("fits", "battery")
    assert [row[1] for row in found.text_table().rows] == ["yes", "NO"]


def test_keys_that_cost_nothing_make_no_rows():
    cells = [{"seed": seed, "paper.accuracy": 90.0 + seed} for seed in (1, 2)]
    targets = {"paper": {"place": "Table 1", "epochs": 200}}
    table = edgesim.sweep_costs("quickstart", {"list": cells}, **targets).table()
    assert list(table["cell"]) == ["seed=1"]
    assert "paper.accuracy" not in table


def test_only_some_cells():
    found = edgesim.sweep_costs("quickstart", GRID, only={"gossip.compressor.keep": 0.01})
    assert list(found.table()["cell"]) == ["keep=0.01,seed=1"]
    with pytest.raises(ScenarioError, match="no cell of quickstart has this"):
        edgesim.sweep_costs("quickstart", GRID, only={"seed": 4})


def test_a_cell_that_cannot_be_studied_is_named():
    with pytest.raises(ScenarioError, match=r"^quickstart: cell name=vgg11: model: vgg11 needs"):
        edgesim.sweep_costs("quickstart", {"grid": {"model.name": ["small_cnn", "vgg11"]}})


@pytest.fixture
def shown():
    """The command, with its output and what it says beside it."""

    def run(*words, only=(), json_file=None, unfit=(), file="sweeps/digits_comparison"):
        out, err = Console(width=200), Console(width=200)
        with out.capture() as said, err.capture() as beside:
            command.show_sweep_costs(file, words, only, json_file, out, err, unfit)
        return said.get(), beside.get()

    return run


def test_the_command_prints_a_row_for_each_cell_and_writes_all_numbers(shown, tmp_path):
    said, beside = shown(only=["model.precision=int8"], json_file=tmp_path / "costs.json")
    lines = said.splitlines()
    assert lines[0] == "digits-comparison: what 4 cells cost (of 12)"
    assert len([line for line in lines if line.startswith(("choco", "deepsqueeze"))]) == 4
    assert "messages carry 8-bit values" in beside
    assert "(4 of 4 cells)" in beside
    cells = json.loads((tmp_path / "costs.json").read_text())["cells"]
    assert [cell["settings"]["seed"] for cell in cells] == [1] * 4
    assert {cell["answer"]["training"]["sent_bytes"][0] for cell in cells} == {958800.0, 960240.0}


def test_what_is_for_one_scenario_is_refused(shown):
    with pytest.raises(ScenarioError, match=r"--out is for one scenario, and .* is a sweep"):
        shown(unfit=["--out", "--paper"])


def test_a_file_that_cannot_be_written_is_named(shown, tmp_path):
    with pytest.raises(EdgesimError, match=r"can't be written .*name another place"):
        shown(json_file=tmp_path / "nowhere" / "costs.json", only=["seed=1"])


def test_long_work_says_how_far_it_is(monkeypatch, shown):
    monkeypatch.setattr(command, "_LINE_INTERVAL_S", -1.0)
    _, beside = shown(only=["model.precision=fp32", "gossip.algorithm=choco"])
    assert "1 of 2 cells were studied" in beside


def test_the_documentation_shows_a_table_as_it_is(shown):
    board = "fleet.profile=raspberry-pi-zero-2w", "network.bandwidth_mbps=1"
    said, _ = shown(*board, only=["data.partition.skew=0.8"])
    page = (Path(__file__).resolve().parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    assert f"```\n{said}```" in page
