"""Reading and writing scenario files; every shipped one loads."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edgesim.scenario import Scenario, ScenarioError, dump_scenario, load_scenario
from edgesim.scenario.outline import SCENARIO
from edgesim.scenario.section import LARGEST_FACTOR, LARGEST_SEED, SMALLEST_FACTOR
from edgesim.scenario.strict_yaml import compose, to_value
from edgesim.sweeps.run import read_sweep

ROOT = Path(__file__).parents[2]
SHIPPED = [
    p for p in sorted((ROOT / "scenarios").rglob("*.yaml")) if "\nsweep:" not in p.read_text()
]
SMOKE = [path for path in SHIPPED if path.parent.name == "smoke"]

LEAST = """\
name: least
fleet: {devices: 4}
topology: {kind: ring}
data:
  partition: {kind: iid}
  batch_size: 8
model: {name: small_cnn}
training:
  epochs: 1
  optimizer:
    lr: 0.1
gossip: {algorithm: choco, averaging_rate: 1}
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, overrides)
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_load(path: Path):
    scenario = load_scenario(path)
    assert scenario.name.removeprefix("smoke-").replace("-", "_") in (
        path.stem,
        "cifar10_resnet20_ring8",
    )


def test_small_scenarios_use_every_choice_of_algorithm_graph_partition_and_compressor():
    """Scenarios of smoke, and cells of the sweep of methods for skewed data."""
    methods = read_sweep("sweeps/skewed_methods")
    scenarios = [load_scenario(path) for path in SMOKE]
    scenarios += [cell.scenario for cell in methods.cells]

    def choices(*path: str) -> set[str]:
        slot = SCENARIO
        for key in path:
            found = slot.key(key)
            assert found
            slot = found
        return set(slot.names)

    algorithms = {s.gossip.algorithm for s in scenarios}
    assert {getattr(of, "shipped_as", of) for of in algorithms} == choices("gossip")
    assert {s.topology.kind for s in scenarios} == choices("topology")
    natural = {"by_owner", "file"}  # these need data with owners: tests/examples
    assert {s.data.partition.kind for s in scenarios} == choices("data", "partition") - natural
    compressors = {getattr(s.gossip, "compressor", None) for s in scenarios} - {None}
    assert {c.kind for c in compressors} == choices("gossip", "compressor")
    kinds = {s.training.optimizer.momentum_kind for s in scenarios}
    assert kinds == choices("training", "optimizer", "momentum_kind")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_norms_follow_the_precision(path: Path):
    """Who changes model.precision gets no norm of the other precision with it."""
    document = yaml.safe_load(path.read_text())["model"]
    assert document.get("norm") in (None, "range_batch")  # which has a form in either precision


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_dumped_scenarios_load_back_equal(path: Path, tmp_path: Path):
    scenario = load_scenario(path)
    assert load_scenario(write(tmp_path, dump_scenario(scenario))) == scenario


@given(
    lr=st.floats(min_value=SMALLEST_FACTOR, max_value=LARGEST_FACTOR),
    keep=st.floats(min_value=0, max_value=1, exclude_min=True),
    seed=st.integers(min_value=0, max_value=LARGEST_SEED),
    description=st.text(st.characters(exclude_categories=["Cs"])),
    name=st.from_regex(r"[a-z0-9][a-z0-9._-]*", fullmatch=True),
)
def test_any_number_and_any_text_survives_dump_and_load(
    lr: float, keep: float, seed: int, description: str, name: str
):
    value: Any = to_value(compose(LEAST, "x"), Path())
    value |= {"name": name, "seed": seed, "description": description}
    value["training"]["optimizer"]["lr"] = lr
    value["gossip"]["compressor"] = {"kind": "top_k", "keep": keep}
    scenario = Scenario.model_validate(value)
    node = compose(dump_scenario(scenario), "x")
    assert node
    assert Scenario.model_validate(to_value(node, Path())) == scenario
    assert math.isfinite(scenario.training.optimizer.lr)


def test_relative_paths_start_at_the_file_and_those_of_overrides_at_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = LEAST.replace("data:", "data:\n  source: cifar10\n  path: ../images")
    text = text.replace("{kind: ring}", "{kind: cycle, graphs: [{kind: file, path: g.csv}]}")
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "elsewhere").mkdir()
    path = write(tmp_path / "scenarios", text)
    monkeypatch.chdir(tmp_path / "elsewhere")
    scenario = load_scenario(path)
    assert scenario.data.path == str(tmp_path / "images")
    _, options = scenario.topology.builder_options()
    assert options["graphs"][0]["path"] == str(tmp_path / "scenarios" / "g.csv")
    assert load_scenario(path, ["data.path=here"]).data.path == str(tmp_path / "elsewhere/here")
    assert load_scenario(path, ["data.path=/abs"]).data.path == "/abs"


def test_aliases_are_allowed(tmp_path: Path):
    text = LEAST.replace("seed: 1", "").replace("devices: 4", "devices: &n 4")
    text = text.replace("batch_size: 8", "batch_size: *n")
    assert load_scenario(write(tmp_path, text)).data.batch_size == 4


def test_a_byte_order_mark_is_skipped(tmp_path: Path):
    assert load_scenario(write(tmp_path, b"\xef\xbb\xbf" + LEAST.encode())).name == "least"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "x.yaml: is empty; must be a mapping with the keys name, "),
        ("# nothing\n", "x.yaml: is empty; must be"),
        ("- 1\n", "x.yaml:1: holds a list; must be a mapping with the keys name, "),
        ("hello\n", "x.yaml:1: holds a single value; must be a mapping"),
        ("name: [1,\n", "x.yaml:2:1: not valid YAML: "),
        (
            "name: x\n\tseed: 1\n",
            r"x.yaml:2:1: not valid YAML: found character '\t' that cannot start any token; inden",
        ),
        (
            "name: x\ndescription: a: b\n",
            "x.yaml:2:15: not valid YAML: mapping values are not allowed here; put a text with a",
        ),
        ("name: x\n---\nname: y\n", "x.yaml:2:1: not valid YAML: "),
        ("name: x\nseed: *gone\n", "x.yaml:2:7: not valid YAML: found undefined alias"),
        ("name: x\nseed: \0\n", "x.yaml:2: not valid YAML: a character that text files"),
        ("name: " + "[" * 5000, "x.yaml: not valid YAML: nested too deeply"),
        ("name: &a [*a]\n", "x.yaml:1: *a contains itself; write the value out"),
        ("name: x\nseed: !!python/name:os.system 1\n", "x.yaml:2: the tag !!python/name:os.sys"),
        ("name: x\nseed: !own 1\n", "x.yaml:2: the tag !own is not allowed"),
        ("name: x\nseed: 1\nname: y\n", "x.yaml:3: the key name is there already in line 1"),
        ("1: x\n", "x.yaml:1: the key 1 is no text"),
        ("[a]: x\n", "x.yaml:1: the key in brackets is no text"),
        (b"name: \xff\n", "x.yaml: is not UTF-8 text (byte 6); save it as UTF-8"),
    ],
)
def test_files_that_are_no_scenario_are_refused_in_one_line(
    text: str | bytes, error: str, tmp_path: Path
):
    message = error_of(write(tmp_path, text))
    assert message.startswith(error)
    assert "\n" not in message


def test_a_key_repeated_on_one_line_is_refused(tmp_path: Path):
    text = LEAST.replace("{devices: 4}", "{devices: 4, devices: 5}")
    message = error_of(write(tmp_path, text))
    assert message == "x.yaml:2: the key devices is there already in line 2; keep one of the two"


def test_duplicate_keys_are_refused_in_inner_sections_too(tmp_path: Path):
    message = error_of(write(tmp_path, LEAST.replace("    lr: 0.1", "    lr: 0.1\n    lr: 0.2")))
    assert message == "x.yaml:12: the key lr is there already in line 11; keep one of the two"


def test_a_missing_file_names_a_similar_one(tmp_path: Path):
    write(tmp_path, LEAST)
    assert error_of(tmp_path / "y.yaml") == "y.yaml: no such file; did you mean x.yaml?"
    assert error_of(tmp_path / "gone" / "whatever") == "whatever: no such file"


def test_a_folder_is_no_scenario(tmp_path: Path):
    assert "is a folder; name a scenario file in it" in error_of(tmp_path)


def test_a_file_that_is_too_long_or_never_ends_is_refused(tmp_path: Path):
    path = write(tmp_path, LEAST + "# a comment\n" * 40_000)
    assert "longer than 400,000 characters" in error_of(path)
    assert "longer than 400,000 characters" in error_of(
        write(tmp_path, LEAST), "description=" + "a" * 400_000
    )
    with pytest.raises(ScenarioError, match="/dev/zero"):
        load_scenario("/dev/zero")
