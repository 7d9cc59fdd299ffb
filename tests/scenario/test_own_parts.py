"""References to one's own parts: their form, where files are, and what their content is called."""

import pickle
import re
from pathlib import Path

import pytest
from test_scenario_files import error_of

from edgesim.errors import ScenarioError
from edgesim.scenario import dump_scenario, load_scenario
from edgesim.scenario.files import parse_scenario
from edgesim.scenario.guide import guide
from edgesim.scenario.own_parts import OwnPart, own_parts

ROOT = Path(__file__).parents[2]
QUICKSTART = (ROOT / "scenarios" / "quickstart.yaml").read_text()
SOURCE = "class Mine:\n    pass\n"


@pytest.fixture
def scenario_path(tmp_path):
    """A scenario whose compressor is of a file beside it."""
    (tmp_path / "mine.py").write_text(SOURCE)
    path = tmp_path / "scenario.yaml"
    text, found = QUICKSTART.partition("gossip:")[::2]
    assert found
    path.write_text(
        f"{text}gossip:\n  algorithm: choco\n  averaging_rate: 0.1\n"
        "  compressor: {kind: ./mine.py:Mine, options: {strength: 2}}\n"
    )
    return path


def test_a_file_is_found_beside_the_scenario_and_its_text_is_kept(scenario_path, monkeypatch):
    monkeypatch.chdir("/")
    scenario = load_scenario(scenario_path)
    ((key, part),) = own_parts(scenario)
    assert key == "gossip.compressor.kind"
    assert (part.place, part.name) == (str(scenario_path.parent / "mine.py"), "Mine")
    assert part.source == SOURCE
    assert scenario.gossip.compressor.options == {"strength": 2}


def test_what_is_written_and_what_is_shipped_reads_back_equal(scenario_path):
    scenario = load_scenario(scenario_path)
    assert parse_scenario(dump_scenario(scenario), "copy", Path("/")) == scenario
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_the_content_is_part_of_what_a_part_is(scenario_path):
    before = load_scenario(scenario_path)
    (scenario_path.parent / "mine.py").write_text(f"{SOURCE}# more\n")
    after = load_scenario(scenario_path)
    assert before != after
    assert before.gossip.compressor.kind.digest != after.gossip.compressor.kind.digest


def test_an_override_names_a_file_relative_to_the_current_folder(scenario_path, monkeypatch):
    (scenario_path.parent / "here").mkdir()
    (scenario_path.parent / "here" / "other.py").write_text(SOURCE)
    monkeypatch.chdir(scenario_path.parent / "here")
    scenario = load_scenario(scenario_path, ["gossip.compressor.kind=other.py:Mine"])
    assert scenario.gossip.compressor.kind.place.endswith("here/other.py")
    assert scenario.gossip.compressor.options == {"strength": 2}, "the keys of an own part stay"


@pytest.mark.parametrize("file", ["runs 10:30/mine.py", "C:/a.py:b/mine.py", r"C:\lab\data.py"])
def test_the_last_colon_separates_the_name_from_a_path_with_colons(
    scenario_path, monkeypatch, file
):
    """As folders of Linux may have, and paths of Windows do."""
    monkeypatch.chdir(scenario_path.parent)
    path = scenario_path.parent / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SOURCE)
    for reference in (f"{file}:Mine", f"{path}:Mine"):
        scenario = load_scenario(scenario_path, [f"gossip.compressor.kind='{reference}'"])
        assert (part := scenario.gossip.compressor.kind).name == "Mine"
        assert (part.place, part.source) == (str(path), SOURCE)
        assert parse_scenario(dump_scenario(scenario), "copy", Path("/")) == scenario
    said = error_of(scenario_path, f"gossip.compressor.kind='{file}'")
    assert f"name the class or function in it: {file}:Name; the file has Mine" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("absent.py:Mine", "absent.py, which is not there; there are mine.py"),
        ("no_such_package.parts:Mine", "the package no_such_package, which is not installed"),
        ("mine:Mine", "not installed; install it; or for the file beside it: ./mine.py:Mine"),
        ("a/b:Mine", "is 'a/b:Mine'; must be package.module:Name or ./file.py:Name"),
        ("mine.py:1x", "must be package.module:Name or ./file.py:Name"),
        ("mine", "must be one of identity, top_k"),
        (
            "mine.py",
            "name the class or function in it: mine.py:Name; the file has Mine",
        ),
        ("subprocess:getoutput", "names subprocess, which is Python's own; name a part of yours"),
        ("builtins:eval", "names builtins, which is Python's own"),
        ("absent.py", "is absent.py; name the class or function in it: absent.py:Name"),
    ],
)
def test_what_is_missing_or_wrong_is_refused_in_one_line(scenario_path, monkeypatch, value, said):
    monkeypatch.chdir(scenario_path.parent)
    message = error_of(scenario_path, f"gossip.compressor.kind={value}")
    assert "gossip.compressor.kind" in message
    assert said in message
    assert "\n" not in message


def test_a_file_that_is_not_there_is_told_with_the_most_similar_one_beside_it(scenario_path):
    for name in (*(f"b{number}" for number in range(9)), "moniqua"):
        (scenario_path.parent / f"{name}.py").write_text(SOURCE)
    kind = f"gossip.compressor.kind={scenario_path.parent}"
    said = error_of(scenario_path, f"{kind}/monika.py:Mine")
    assert "monika.py, which is not there; did you mean moniqua.py?" in said
    said = error_of(scenario_path, f"{kind}/sparsifier.py:Mine")
    assert "which is not there; there are b0.py, b1.py, b2.py, b3.py, b4.py, ..." in said


def test_a_file_that_is_no_text_is_refused(scenario_path):
    (scenario_path.parent / "mine.py").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in error_of(scenario_path)


def test_a_module_goes_by_all_files_of_its_package(tmp_path, scenario_path, monkeypatch):
    package = tmp_path / "lab_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("from lab_of_tests.helpers import Mine\n")
    (package / "helpers.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    override = ["gossip.compressor.kind=lab_of_tests.parts:Mine"]
    before = load_scenario(scenario_path, override).gossip.compressor.kind
    assert (before.place, before.name, before.source) == ("lab_of_tests.parts", "Mine", None)
    (package / "helpers.py").write_text(f"{SOURCE}# more\n")
    assert load_scenario(scenario_path, override).gossip.compressor.kind.digest != before.digest


def test_a_package_announces_a_name_as_soon_as_it_is_installed(
    tmp_path, scenario_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    override = ["gossip.compressor.kind=halves"]
    with pytest.raises(ScenarioError, match="halves"):
        load_scenario(scenario_path, override)
    about = tmp_path / "lab_of_tests-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: lab_of_tests\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[edgesim.compressors]\nhalves = numpy.linalg:norm\n")
    compressor = load_scenario(scenario_path, override).gossip.compressor
    assert isinstance(compressor.kind, OwnPart)
    assert str(compressor.kind) == "numpy.linalg:norm", "which needs no name to read back"


def test_the_guide_says_where_ones_own_parts_may_stand():
    (entry,) = guide("gossip.compressor.kind")
    assert "./file.py:Name" in entry.must_be
    options = {entry.key: entry.condition for entry in guide("gossip") if "options" in entry.key}
    assert "gossip.algorithm: ./file.py:Name" in options["gossip.options"]


def test_the_guide_names_every_group_of_entry_points():
    sources = (ROOT / "edgesim" / "scenario").glob("*.py")
    used = {
        group for path in sources for group in re.findall(r'"(edgesim\.[a-z]+)"', path.read_text())
    }
    said = (ROOT / "docs" / "own-parts.md").read_text().partition("The groups are ")[2]
    assert set(re.findall(r"`(edgesim\.[a-z]+)`", said.partition("\n\n")[0])) == used
    assert "edgesim.partitions" in used
