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
    assert list(table["cell"]) == [cell.name for cell in found.cells]
    assert list(table["gossip.compressor.keep"]) == [0.1] * 3 + [0.01] * 3
    assert list(table["seed"]) == [1, 2, 3] * 2
    for row in table.to_dict("records")[2:4]:
        keep, seed = row["gossip.compressor.keep"], row["seed"]
        alone = edgesim.cost(
            "quickstart", gossip__compressor__keep=keep, seed=seed, advice=False, **PI
        )
        training = alone.answer.training
        assert row["fits"]
        assert row["memory_bytes"] == alone.answer.needs[0].needed_bytes
        assert row["rounds"] == 360
        assert row["round_s"] == alone.answer.costs.steady_state.period_s
        assert row["virtual_time_s"] == training.seconds
        assert row["sent_bytes"] == max(training.sent_bytes)
        assert row["total_sent_bytes"] == sum(training.sent_bytes)
        assert row["total_energy_j"] == sum(training.energy_j)
        assert row["batteries_last"] is None
    assert table["battery_used"].isna().all()


def test_cells_that_seeds_do_not_change_share_a_row():
    found = edgesim.sweep_costs("quickstart", GRID)
    [table] = found.tables
    assert table.title == "quickstart: what 6 cells cost"
    assert table.columns == ("cell", "memory", "rounds", "sends", "energy of all")
    assert [row[0] for row in table.rows] == ["keep=0.1", "keep=0.01"]
    assert table.notes == (
        "Memory and sends: of the device with the most. Rounds, a round: of the slowest.",
        (
            "Without fleet.profile: no times, and energy by horowitz_45nm, of arithmetic and "
            "memory traffic alone."
        ),
        "Cells that differ in their seed alone and cost the same share a row.",
    )
    assert repr(found) == "<quickstart: what 6 cells cost; .table() has them>"
    assert "<td>keep=0.01</td>" in found._repr_html_()


def test_cells_of_random_graphs_have_a_row_for_each_seed():
    grid = {"grid": {"topology": [{"kind": "erdos_renyi", "probability": 0.4}], "seed": [1, 2]}}
    found = edgesim.sweep_costs("quickstart", grid, **PI)
    assert found.table()["sent_bytes"].nunique() == 2
    assert [row[0] for row in found.tables[0].rows] == ["seed=1", "seed=2"]


def test_batteries_that_end_and_devices_without_the_memory_are_marked():
    fleets = [
        [{"profile": profile, "count": 4, "battery_wh": wh}]
        for profile, wh in (("raspberry-pi-4b", 1.0), ("arduino-portenta-h7", 0.0001))
    ]
    grid = {"grid": {"fleet.devices": fleets}}
    found = edgesim.sweep_costs("quickstart", grid, data__batch_size=300)
    table = found.table()
    assert list(table["fits"]) == [True, False]
    assert list(table["batteries_last"]) == [True, False]
    assert list(table["battery_used"] > 1) == [False, True]
    [shown] = found.tables
    assert (shown.columns[1], shown.columns[-1]) == ("fits", "battery")
    assert [row[1] for row in shown.rows] == ["yes", "NO"]
    assert [row[-1].startswith("ENDS EARLY, ") for row in shown.rows] == [False, True]
    assert "Battery: the largest share" in shown.notes[1]


def test_a_battery_that_lacks_a_little_is_not_told_as_full():
    alone = edgesim.cost("quickstart", fleet__devices=[_board(1.0)], advice=False)
    needed_j = max(life.needed_j for life in alone.answer.training.lives)
    grid = {"grid": {"fleet.devices": [[_board(needed_j / 3600 / 1.004)]]}}
    [row] = edgesim.sweep_costs("quickstart", grid).tables[0].rows
    assert row[-1] == "ENDS EARLY, 100 %"


def _board(battery_wh):
    return {"profile": "raspberry-pi-4b", "count": 8, "battery_wh": battery_wh}


def test_keys_that_an_entry_of_a_list_lacks_have_the_scenario_s_values():
    block = {"list": [{"gossip.compressor.keep": 0.01}, {"data.batch_size": 8}]}
    found = edgesim.sweep_costs("quickstart", block)
    assert list(found.table()["gossip.compressor.keep"]) == [0.01, 0.1]
    assert list(found.table()["data.batch_size"]) == [16, 8]
    assert [row[0] for row in found.tables[0].rows] == ["keep=0.01", "batch_size=8"]


def test_only_cells_without_profiles_have_the_note_of_it():
    block = {"list": [{"seed": 1}, {"fleet.profile": "raspberry-pi-4b"}]}
    [table] = edgesim.sweep_costs("quickstart", block).tables
    assert "energy by horowitz_45nm, of arithmetic" in table.notes[-1]
    assert [row[0] for row in table.rows] == ["any seed", "profile=raspberry-pi-4b"]


def test_targets_of_the_paper_make_no_rows():
    cells = [{"seed": seed, "paper.accuracy": 90.0 + seed} for seed in (1, 2)]
    targets = {"paper": {"place": "Table 1", "epochs": 200}}
    [table] = edgesim.sweep_costs("quickstart", {"list": cells}, **targets).tables
    assert [row[0] for row in table.rows] == ["any seed"]


def test_only_some_cells():
    found = edgesim.sweep_costs("quickstart", GRID, only={"gossip.compressor.keep": 0.01})
    assert list(found.table()["seed"]) == [1, 2, 3]
    assert found.tables[0].title == "quickstart: what 3 of 6 cells cost"
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
    assert lines[0] == "digits-comparison: what 12 of 24 cells cost"
    assert len([line for line in lines if line.startswith("algorithm=")]) == 4
    assert "messages carry 8-bit values" in beside
    assert "(12 of 12 cells)" in beside
    cells = json.loads((tmp_path / "costs.json").read_text())["cells"]
    assert [cell["settings"]["seed"] for cell in cells] == [1, 2, 3] * 4
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
    assert "1 of 6 cells were studied so far" in beside


def test_the_documentation_shows_a_table_as_it_is(shown):
    board = "fleet.profile=raspberry-pi-zero-2w", "network.bandwidth_mbps=1"
    said, _ = shown(*board, only=["data.partition.skew=0.8"])
    page = (Path(__file__).resolve().parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    assert f"```\n{said}```" in page
