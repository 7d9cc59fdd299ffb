"""Cells of a sweep begin with the same samples, files and own code, or are refused."""

import re
from copy import deepcopy

import numpy as np
import pytest
import yaml

import edgesim
from edgesim.code_version import CodeVersion, code_version
from edgesim.results.run_directory import RunDirectory
from edgesim.scenario.files import dump_scenario
from edgesim.storage.store import Store
from edgesim.sweeps.sameness import check_settings, warnings_of_code

SHORT = {"training__rounds": 4, "evaluation__every_rounds": 2}
ONE_MORE = ({"grid": {"seed": [1]}}, {"grid": {"seed": [1, 2]}})
MODEL = """
import torch

def net(input_shape, num_classes):
    size, width = input_shape[0] * input_shape[1] * input_shape[2], {width}
    layers = torch.nn.Linear(size, width), torch.nn.ReLU(), torch.nn.Linear(width, num_classes)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)
"""


def swept(place, block, **settings):
    return edgesim.sweep("quickstart", block, out=place / "s", workers=1, **SHORT, **settings)


def write_shards(path, num_samples, num_devices):
    rows = "".join(f"{sample},{sample % num_devices}\n" for sample in range(num_samples))
    path.write_text(f"sample,device\n{rows}")


@pytest.mark.parametrize(
    ("key", "there", "here"),
    [
        ("fleet.devices", 8, 4),
        ("fleet.duty_cycle", None, {"period_s": 60, "awake_s": 20}),
        ("training.schedule", {"milestones": [2]}, {"milestones": [1]}),
        ("data.batch_size", 16, 8),
        ("gossip.compressor", {"kind": "identity"}, {"kind": "top_k", "keep": 0.1}),
        ("model.norm", None, "batch"),
    ],
)
def test_a_run_of_other_settings_is_told_from_its_cell(tmp_path, key, there, here):
    def scenario(value):
        usual = {"fleet.profile": "raspberry-pi-4b", "training.epochs": 3}
        return edgesim.load_scenario("quickstart", **(usual | {key: value}))

    store = Store.at(tmp_path)
    run = RunDirectory.create(tmp_path / "cell")
    run.write_text("scenario.yaml", dump_scenario(scenario(there)))
    check_settings(store, "cell", scenario(there).model_dump(mode="json"), {})
    with pytest.raises(edgesim.SweepError, match=f"cell: {key}.* in this run and .* in the sweep"):
        check_settings(store, "cell", scenario(here).model_dump(mode="json"), {})


@pytest.mark.parametrize(
    "here",
    [
        {"devices": 4, "profile": "raspberry-pi-5"},
        {"devices": [{"profile": "raspberry-pi-4b", "count": 3}, {"profile": "raspberry-pi-5"}]},
    ],
)
def test_a_run_on_other_boards_is_told_from_its_cell(tmp_path, here):
    there = {"devices": 4, "profile": "raspberry-pi-4b"}
    run = RunDirectory.create(tmp_path / "cell")
    text = dump_scenario(edgesim.load_scenario("quickstart", fleet=there))
    run.write_text("scenario.yaml", text)
    wanted = edgesim.load_scenario("quickstart", fleet=here).model_dump(mode="json")
    with pytest.raises(edgesim.SweepError, match=r"fleet\.devices is 4 raspberry-pi-4b in"):
        check_settings(Store.at(tmp_path), "cell", wanted, {})


def test_what_a_run_finds_itself_is_no_other_setting(tmp_path):
    """Of a rate, of places on nodes, and of the names in the file of a graph."""
    wanted = edgesim.load_scenario("quickstart").model_dump(mode="json")
    wanted["gossip"] |= {"averaging_rate": "auto", "sites": "nodes"}
    found = deepcopy(wanted)
    found["gossip"] |= {"averaging_rate": 0.1, "sites": [0] * 8}
    found["fleet"] |= {"names": [*"abcdefgh"], "devices": [{"count": 8}]}
    RunDirectory.create(tmp_path / "cell").write_text("scenario.yaml", yaml.safe_dump(found))
    check_settings(Store.at(tmp_path), "cell", wanted, {})


def test_a_file_that_changes_between_two_calls_stops_the_next_cell(tmp_path):
    shards = tmp_path / "shards.csv"
    settings = {"data__partition": {"kind": "file", "path": str(shards)}}
    write_shards(shards, 320, 8)
    swept(tmp_path, ONE_MORE[0], **settings)
    write_shards(shards, 480, 8)
    with pytest.warns(
        edgesim.SweepWarning, match=r"shards.csv of this cell differ from those of c"
    ):
        results = swept(tmp_path, ONE_MORE[1], **settings)
    assert results.final["seed"].tolist() == [1]


def test_own_code_that_changes_while_a_sweep_runs_stops_the_cells_that_follow(tmp_path):
    code = tmp_path / "parts.py"
    code.write_text(MODEL.format(width=8))

    def edit(event):
        if event.kind == "done":
            code.write_text(MODEL.format(width=9))

    with pytest.warns(
        edgesim.SweepWarning, match=r"parts.py:net of this cell differ from those of"
    ):
        results = swept(tmp_path, ONE_MORE[1], model={"name": f"{code}:net"}, on_event=edit)
    assert results.final["seed"].tolist() == [1]


DATA = """
import numpy as np

class Images:
    num_classes = 2

    def __init__(self, path):
        arrays = np.load(path)
        self.train, self.test = (arrays["x"], arrays["y"]), (arrays["x"], arrays["y"])
"""


def write_images(path, seed):
    draw = np.random.default_rng(seed)
    x, y = draw.integers(256, size=(32, 8, 8, 1), dtype=np.uint8), draw.permutation(32) % 2
    np.savez(path, x=x, y=y)


def test_cells_that_are_tested_on_unlike_samples_are_told_and_not_averaged(tmp_path):
    (tmp_path / "data.py").write_text(DATA)
    data = tmp_path / "images.npz"
    source = {"source": f"{tmp_path}/data.py:Images", "path": str(data), "batch_size": 4}
    source["partition"] = {"kind": "iid"}
    settings = {"fleet__devices": 2, "topology": {"kind": "complete"}, "data": source}
    write_images(data, 1)
    swept(tmp_path, ONE_MORE[1], only={"seed": 1}, **settings)
    write_images(data, 2)
    with pytest.warns(
        edgesim.SweepWarning, match="the test samples of this cell differ from those"
    ):
        results = swept(tmp_path, ONE_MORE[1], **settings)
    assert results.final["seed"].tolist() == [1]
    cell = tmp_path / "s" / "seed=2"
    edgesim.run("quickstart", out=cell, inline=True, seed=2, **SHORT, **settings)
    with pytest.raises(
        edgesim.SweepError, match="samples of cell seed=2 differ from those of cell"
    ):
        edgesim.load_sweep(tmp_path / "s")


def test_finished_cells_that_other_code_of_edgesim_has_made_are_said(tmp_path, monkeypatch):
    swept(tmp_path, ONE_MORE[0])
    other = CodeVersion("0.1.0", "f" * 32, "abc")
    monkeypatch.setattr("edgesim.sweeps.sameness.code_version", lambda: other)
    said = f"made finished cells (1 of 1 by {code_version()}), and this is {other}: results may"
    with pytest.warns(edgesim.ScenarioWarning, match=re.escape(said)):
        assert len(swept(tmp_path, ONE_MORE[1]).final) == 2


def test_results_name_cells_that_other_code_has_made_than_most():
    new, old, unknown = ({"code": {"digest": digest}} for digest in ("b" * 32, "a" * 32, ""))
    environments = {"1": old, "2": new, "3": unknown, "4": new}
    assert warnings_of_code({"1": new, "2": new}) == warnings_of_code({"1": unknown}) == {}
    said = warnings_of_code(environments)
    assert list(said) == ["1", "3"]
    assert "(code aaaaaaaa), and 2 cells by" in said["1"]
    assert "(code not on record), and 2 cells by" in said["3"]
    assert said["1"].endswith("(code bbbbbbbb): results may differ for that alone")
