"""Sweeps know own files by their content: a sweep that moves with its files goes on."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import yaml
from small_fleets import small_scenario

import edgesim
from edgesim.cli.sweep import check_sweep, sweep_table
from edgesim.report.runs import load_runs
from edgesim.scenario.cell_names import cell_names, settings_in_table
from edgesim.sweeps.directory import as_begun, open_directory
from edgesim.sweeps.run import read_sweep

MODEL = """
from torch import nn

def net(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], num_classes))
"""
COMPRESSOR = """
from edgesim.compression.compressors import TopK

def Mine(keep):
    return TopK(keep=keep, values="fp32")
"""
MINE = {"kind": "./mine.py:Mine", "options": {"keep": 0.2}}
GOSSIP = {"algorithm": "choco", "averaging_rate": 0.2, "compressor": MINE}


def write(folder, seeds=(1,), **changes):
    """A sweep whose cells have a model and a compressor of files beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "net.py").write_text(MODEL)
    (folder / "mine.py").write_text(COMPRESSOR)
    scenario = small_scenario(model={"name": "./net.py:net"}, **changes)
    scenario["sweep"] = {"grid": {"seed": list(seeds)}, "list": [{"gossip": GOSSIP}]}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(scenario))
    return folder


def swept(folder, **options):
    return edgesim.sweep(folder / "sweep.yaml", out=folder / "out", workers=1, **options)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("swept") / "there")
    swept(folder)
    return folder


@pytest.fixture
def moved(first, tmp_path):
    """The sweep with its files in another folder."""
    return shutil.copytree(first, tmp_path / "here")


def test_names_of_cells_have_no_folder_of_own_files(first, tmp_path):
    other = write(tmp_path / ("with a long name" * 3))
    for folder in (first, other):
        (cell,) = read_sweep(folder / "sweep.yaml").cells
        assert "gossip=algorithm-choco-averaging_rate-0.2-compressor-kind-mine.py-Mine" in cell.name
    assert read_sweep(other / "sweep.yaml").cells[0].name == cell.name


def test_files_of_one_name_are_told_apart_and_other_names_stay():
    cells = [{"model.name": f"/{folder}/net.py:net"} for folder in "ab"]
    one, other = cell_names(cells, ["model.name"])
    assert re.fullmatch(r"name=net\.py-net-[0-9a-f]{8}", one)
    assert one != other
    cells = [{"data.path": f"/{folder}/net.py:net"} for folder in "ab"]
    assert cell_names(cells, ["data.path"]) == ["path=-a-net.py-net", "path=-b-net.py-net"]


def test_tables_name_own_files_without_their_folders(first):
    results, column = edgesim.load_sweep(first / "out"), "gossip.compressor.kind"
    table = sweep_table(results)
    assert {*results.evaluations[column]} == {"mine.py:Mine"}
    assert table.rows[0][list(table.columns).index(column)] == "mine.py:Mine"
    checked = check_sweep(first / "sweep.yaml", (), print)
    assert checked.rows[0][list(checked.columns).index(column)] == "mine.py:Mine"
    names = {"grid": {"model.name": [f"{first}/net.py:net", "small_cnn"]}}
    (costs, *_) = edgesim.sweep_costs(small_scenario(), names).tables
    assert [row[0] for row in costs.rows] == ["name=net.py:net", "name=small_cnn"]


def test_a_sweep_that_moved_with_its_files_goes_on(first, moved):
    write(moved, seeds=[1, 2])
    told = []
    results = swept(moved, on_event=lambda event: told.append((event.kind, event.cell)))
    assert [cell for kind, cell in told if kind == "done"] == [results.final["cell"][1]]
    assert results.final["seed"].tolist() == [1, 2]
    assert results.table()["cells"].tolist() == [2]
    runs = load_runs([moved / "out"])
    assert [run.label for run in runs] == ["small, seed 1", "small, seed 2"]
    assert len({run.group for run in runs}) == 1


def test_a_moved_file_that_has_changed_is_another_sweep(moved):
    (moved / "mine.py").write_text(f"{COMPRESSOR}# more\n")
    with pytest.raises(edgesim.SweepError, match=r"gossip\.compressor\.kind was .* and is .* now"):
        swept(moved)


def test_a_run_of_a_changed_file_is_none_of_the_cell(moved):
    """Though it has the settings of the cell."""
    (cell,) = edgesim.load_sweep(moved / "out").final["cell"]
    shutil.rmtree(moved / "out" / cell)
    (moved / "net.py").write_text(f"{MODEL}# more\n")
    scenario = read_sweep(moved / "sweep.yaml").cells[0].scenario
    edgesim.run(scenario, out=moved / "out" / cell, inline=True)
    with pytest.raises(edgesim.SweepError, match=r"model\.name is .* in this run and .* in the sw"):
        edgesim.load_sweep(moved / "out")


def test_a_folder_with_names_of_earlier_versions_goes_on(moved):
    """They had the folders of own files in them."""
    plan = json.loads((moved / "out" / "sweep.json").read_text())
    ((name, cell),) = plan["cells"].items()
    (moved / "out" / name).rename(moved / "out" / "old")
    plan["cells"] = {"old": cell}
    del plan["seal"]
    (moved / "out" / "sweep.json").write_text(json.dumps(plan))
    write(moved, seeds=[1, 2])
    results = swept(moved, only={"seed": 1})
    assert results.final["cell"].tolist() == ["old"]
    assert len(results.missing) == 1


def test_tables_keep_folders_that_tell_cells_apart():
    whole = ["./a/net.py:net", "./b/net.py:net"]
    assert settings_in_table(whole, "model.name") == whole
    assert settings_in_table(["/a/net.py:net", "small_cnn"], "model.name") == [
        "net.py:net",
        "small_cnn",
    ]


def test_a_begun_sweep_of_two_files_that_are_alike_goes_on(tmp_path):
    """An earlier version has named their cells by folders."""
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(MODEL)
    names = [f"{tmp_path}/{folder}/net.py:net" for folder in "ab"]
    scenario = small_scenario()
    scenario["sweep"] = {"grid": {"model.name": names}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(scenario))
    sweep = read_sweep(tmp_path / "sweep.yaml")
    old = [replace(cell, name=f"old-{n}") for n, cell in enumerate(sweep.cells)]
    open_directory(str(tmp_path / "out"), replace(sweep, cells=tuple(old)))
    again = as_begun(sweep, str(tmp_path / "out"))
    assert [cell.name for cell in again.cells] == ["old-0", "old-1"]
