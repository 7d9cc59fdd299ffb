"""`edgesim new` and shipped scenarios, from any folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from thorough import some

from edgesim.cli.listing import catalog_table
from edgesim.cli.new import write_new
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.scenario.files import parse_scenario
from edgesim.scenario.guide import guide
from edgesim.scenario.shipped import scenario_file, shipped_scenarios
from edgesim.scenario.sweep import has_sweep
from edgesim.scenario.template import new_scenario

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = [name for name, path in shipped_scenarios().items() if not has_sweep(path)]


@pytest.mark.parametrize("name", some(NAMES, 10))
def test_a_new_scenario_is_its_source_under_another_name(name, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(new_scenario("mine", name))
    expected = load_scenario(name).model_copy(update={"name": "mine"})
    assert load_scenario(path) == expected


def test_files_in_the_folder_of_the_new_one_are_named_from_there(tmp_path, monkeypatch):
    """So that the folder can be moved; other files keep their whole paths."""
    for name in ("boards.yaml", "network.py"):
        shutil.copy(EXAMPLES / "tutorial" / name, tmp_path)
    text = write_new(tmp_path / "mine", tmp_path / "boards.yaml").read_text()
    assert "name: ./network.py:network" in text
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert load_scenario(moved / "mine.yaml").model == load_scenario(moved / "boards.yaml").model
    (moved / "below").mkdir()
    text = write_new(moved / "below" / "mine", moved / "boards.yaml").read_text()
    assert f"name: {moved.resolve()}/network.py:network" in text


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


@pytest.mark.parametrize("name", some(NAMES, 4))
def test_each_commented_key_has_the_default_of_the_schema(name):
    """Each line that begins with # alone changes nothing without its #, and those above it."""
    text = new_scenario("mine", name)
    lines, expected = text.splitlines(), load_scenario(name).model_copy(update={"name": "mine"})
    folder = scenario_file(name).parent
    commented = [n for n, line in enumerate(lines) if re.match(r" *#\w", line)]
    assert len(commented) > 40
    for number in commented:
        if lines[number].endswith(":"):
            continue  # the name of a section, whose keys follow
        changed = list(lines)
        for place in (number, *sections_above(lines, number)):
            changed[place] = changed[place].replace("#", "", 1)
        assert parse_scenario("\n".join(changed), "mine", folder) == expected, lines[number]


def sections_above(lines, number):
    """Numbers of the lines that name the sections, commented themselves, that a key is in."""
    indent = lines[number].index("#")
    for place in range(number, -1, -1):
        named = re.match(r"( *)(#?)\w+:$", lines[place])
        if named and len(named[1]) < indent:
            indent = len(named[1])
            if named[2]:
                yield place


def test_keys_of_a_section_that_the_source_lacks_have_their_defaults():
    text = new_scenario("mine", "quickstart")
    for key in ("recovery.checkpoint_every_s", "network.bandwidth_mbps", "metrics.most_devices"):
        section, _, last = key.partition(".")
        assert f"\n#{section}:\n" in text
        assert f"\n  #{last}: {guide(key)[0].default}\n" in text


def test_a_section_that_is_null_has_its_default_and_an_example():
    text = new_scenario("mine", "quickstart")
    assert "null: always; for example {period_s: 60.0, awake_s: 20.0}\n  #duty_cycle: null" in text


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


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_name_that_names_no_file_is_refused(name):
    with pytest.raises(ScenarioError, match="names no file; give the scenario a name"):
        write_new(Path(name), Path("quickstart"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_new_scenario_keeps_parts_of_ones_own_and_their_options(path, tmp_path):
    text = write_new(tmp_path / "mine", path).read_text()
    expected = load_scenario(path).model_copy(update={"name": "mine"})
    assert load_scenario(tmp_path / "mine.yaml") == expected
    if path.stem == "few_labels":
        assert "    options: {slices: 2}" in text


def test_a_section_without_options_of_its_own_shows_none(tmp_path):
    text = write_new(tmp_path / "mine", Path("cifar10_thousand")).read_text()
    assert "kind: iid" in text
    partition = text[text.index("  partition:") : text.index("  batch_size:")]
    assert "options" not in partition
