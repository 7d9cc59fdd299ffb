"""`edgesim new` and shipped scenarios, from any folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from thorough import some

from edgesim.cli.listing import catalog_table
from edgesim.cli.new import write_new
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.scenario.guide import guide
from edgesim.scenario.shipped import scenario_file, shipped_scenarios
from edgesim.scenario.sweep import has_sweep
from edgesim.scenario.template import new_scenario

NAMES = [name for name, path in shipped_scenarios().items() if not has_sweep(path)]


@pytest.mark.parametrize("name", some(NAMES, 10))
def test_a_new_scenario_is_its_source_under_another_name(name, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(new_scenario("mine", name))
    expected = load_scenario(name).model_copy(update={"name": "mine"})
    assert load_scenario(path) == expected


def test_every_key_of_a_new_scenario_is_explained(tmp_path):
    path = write_new(tmp_path / "mine", Path("quickstart"))
    assert path == tmp_path / "mine.yaml"
    text = path.read_text()
    plain = " ".join(line.strip("# ") for line in text.splitlines())
    for key in (
        "name",
        "seed",
        "gossip.local_steps",
        "gossip.averaging_rate",
        "training.optimizer.lr",
    ):
        entry = guide(key)[0]
        assert f"{entry.meaning}; must be {entry.must_be}" in plain, key
    assert "noise" not in text, "a key of another kind than the chosen one"


def test_a_commented_key_with_its_default_changes_nothing(tmp_path):
    """Each line that begins with # alone is a key, with its default or an example."""
    text = new_scenario("mine", "quickstart")
    commented = [line for line in text.splitlines() if re.match(r" *#\w", line)]
    assert len(commented) > 40
    (tmp_path / "mine.yaml").write_text(
        text.replace("#device_models: final", "device_models: final")
    )
    scenario = load_scenario(tmp_path / "mine.yaml")
    assert scenario == load_scenario("quickstart").model_copy(update={"name": "mine"})


REFUSED = {
    "taken": ("taken", "quickstart", r"taken\.yaml: exists; choose another name"),
    "a name with spaces": ("my fleet", "quickstart", "must be lower-case letters"),
    "no source": ("mine", "quikstart", "did you mean quickstart"),
    "no folder": ("nowhere/mine", "quickstart", "can't be written"),
}


@pytest.mark.parametrize(("name", "source", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cant_be_written_is_refused(name, source, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.yaml").write_text("")
    with pytest.raises(ScenarioError, match=said):
        write_new(Path(name), Path(source))
    assert [path.name for path in tmp_path.iterdir()] == ["taken.yaml"]


def test_shipped_scenarios_are_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [row[0] for row in catalog_table("scenarios", None).rows]
    assert names == sorted(names)
    assert {"quickstart", "smoke/choco_ring", "paper/fig1_norms"} <= set(names)
    assert load_scenario("smoke/choco_trace").topology.kind == "trace"
    assert "edgesim run quickstart" in str(catalog_table("scenarios", "quickstart").rows)


def test_a_file_has_precedence_over_a_shipped_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text("")
    assert scenario_file("quickstart") == Path("quickstart")
    Path("quickstart").unlink()
    Path("quickstart").mkdir()
    assert scenario_file("quickstart").name == "quickstart.yaml"
