"""The block `sweep`: which cells it makes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.cli.key_tables import keys_table
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.scenario.cell_settings import columns_of
from edgesim.scenario.shipped import shipped_scenarios
from edgesim.scenario.strict_yaml import ONLY_ARGUMENT
from edgesim.scenario.sweep import SweepSection, chosen, parse_sweep, scaled_sweep
from edgesim.sweeps.run import default_place, read_sweep

QUICKSTART = shipped_scenarios()["quickstart"]


LISTED = """{grid: {seed: [1, 2]}, list: [
  {gossip.compressor: {kind: identity}, model.precision: int8},
  {gossip.compressor: {kind: top_k, keep: 0.01}}]}"""


def chosen_names(*only, block=LISTED):
    planned = parse_sweep(f"{QUICKSTART.read_text()}\nsweep: {block}\n", "x.yaml", Path())
    found = chosen(planned, only, "x.yaml")
    assert found.cells == planned.cells
    return [cell.name for cell in found.wanted]


def sweep_of(block, *overrides, folder=Path()):
    text = QUICKSTART.read_text() + f"\nsweep: {block}\n"
    return parse_sweep(text, "x.yaml", folder, overrides)


def cells_of(block, *overrides, folder=Path()):
    return sweep_of(block, *overrides, folder=folder).cells


def test_a_grid_has_every_combination_in_the_order_of_the_file():
    cells = cells_of("{grid: {gossip.averaging_rate: [0.1, 0.2], seed: [1, 2, 3]}}")
    assert [cell.name for cell in cells][:4] == [
        "averaging_rate=0.1,seed=1",
        "averaging_rate=0.1,seed=2",
        "averaging_rate=0.1,seed=3",
        "averaging_rate=0.2,seed=1",
    ]
    assert len(cells) == 6
    for cell in cells:
        expected = [f"{key}={value}" for key, value in cell.settings.items()]
        assert cell.scenario == load_scenario(QUICKSTART, expected)


def test_zip_pairs_and_list_names_single_cells_and_parts_are_combined():
    block = (
        "{grid: {seed: [1, 2]}, zip: {fleet.devices: [4, 8], data.batch_size: [32, 16]},"
        " list: [{training.epochs: 1}, {training.rounds: 7, model.norm: group}]}"
    )
    cells = cells_of(block)
    assert len(cells) == 2 * 2 * 2
    pairs = {(cell.scenario.fleet.devices, cell.scenario.data.batch_size) for cell in cells}
    assert pairs == {(4, 32), (8, 16)}
    assert {(c.scenario.training.epochs, c.scenario.training.rounds) for c in cells} == {
        (1, None),
        (None, 7),
    }


def test_overrides_hold_in_all_cells_beneath_the_settings():
    cells = cells_of("{list: [{seed: 1}, {model.width: null}]}", "seed=9", "training.epochs=3")
    assert [cell.scenario.seed for cell in cells] == [1, 9]
    assert {cell.scenario.training.epochs for cell in cells} == {3}


def test_a_value_may_be_a_section_and_a_kind_drops_keys_of_the_other():
    block = "{grid: {gossip.compressor: [{kind: identity}, {kind: top_k, keep: 0.2}]}}"
    first, second = cells_of(block)
    assert first.scenario.gossip.compressor.kind == "identity"
    assert second.name == "compressor=kind-top_k-keep-0.2"
    assert second.settings == {"gossip.compressor.kind": "top_k", "gossip.compressor.keep": 0.2}
    kinds = cells_of("{grid: {topology.kind: [directed_ring, complete]}}")
    assert [cell.scenario.topology.kind for cell in kinds] == ["directed_ring", "complete"]


def test_sections_have_a_column_for_each_key_that_any_of_them_gives():
    """So that tables can be grouped by `gossip.algorithm` where each algorithm has own keys."""
    swept = sweep_of(
        "{zip: {gossip: [{algorithm: choco, averaging_rate: 0.2, compressor: {kind: identity}},"
        " {algorithm: gradient_push}], topology: [{kind: ring}, {kind: directed_ring}]}}"
    )
    assert swept.keys == (
        "gossip.algorithm",
        "gossip.averaging_rate",
        "gossip.compressor.kind",
        "topology.kind",
    )
    assert [cell.name for cell in swept.cells][1] == (
        "gossip=algorithm-gradient_push,topology=kind-directed_ring"
    )
    assert swept.cells[1].settings == {
        "gossip.algorithm": "gradient_push",
        "topology.kind": "directed_ring",
    }


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ([{"a": {"b": 1}}, {"a": None}], [{"a": "{b: 1}"}, {"a": None}]),
        ([{"a": {"b": 1}}, {"a": {}}], [{"a": "{b: 1}"}, {"a": "{}"}]),
        ([{"a": {"b": {"c": 1}}}, {"a": {"b": 2}}], [{"a.b": "{c: 1}"}, {"a.b": 2}]),
        ([{"a": {"x.y": 1}}], [{"a": "{x.y: 1}"}]),
        ([{"a": {1: 2}}], [{"a": "{1: 2}"}]),
        ([{"a": [1, 2]}, {}], [{"a": "[1, 2]"}, {}]),
        ([{"a": {"b": 1}, "a.b": 3}], [{"a.b": 3}]),
    ],
)
def test_a_section_stays_whole_where_its_keys_would_not_say_it(given, columns):
    assert columns_of(given) == columns


def test_paths_are_relative_to_the_file(tmp_path):
    (cell,) = cells_of("{grid: {data.path: [images]}}", "data.source=image_folder", folder=tmp_path)
    assert cell.scenario.data.path == str(tmp_path / "images")
    block = "{grid: {data.partition.path: [a.csv], data.partition.test_path: [b.csv]}}"
    (cell,) = cells_of(block, "data.partition={kind: file, path: x.csv}", folder=tmp_path)
    assert cell.scenario.data.partition.path == str(tmp_path / "a.csv")
    assert cell.scenario.data.partition.test_path == str(tmp_path / "b.csv")


def test_names_tell_long_and_like_settings_apart():
    block = "{grid: {data.batch_size: [4], evaluation.batch_size: [4, 5]}}"
    assert cells_of(block)[0].name == "data.batch_size=4,evaluation.batch_size=4"
    names = [c.name for c in cells_of("{grid: {description: ['a b', 'a/b']}}")]
    assert len(set(names)) == 2
    texts = ["x" * 300 + end for end in "12"]
    long = [c.name for c in cells_of(f"{{grid: {{description: {texts}}}}}")]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 120


REFUSED = {
    "misspelt key": ("{grid: {gossip.averging_rate: [1]}}", "did you mean gossip.averaging_rate"),
    "misspelt part": ("{grod: {seed: [1]}}", "sweep.grod is an unknown key; did you mean grid"),
    "no list": ("{grid: {seed: 3}}", "sweep.grid must be a mapping from keys to lists"),
    "no mapping": ("[1, 2]", "sweep must be a mapping with the keys grid, zip, list"),
    "nothing": ("{}", "names no key"),
    "empty list": ("{grid: {seed: []}}", "sweep.grid must be"),
    "unequal zip": ("{zip: {seed: [1, 2], training.epochs: [1]}}", "seed has 2, training.epochs"),
    "key twice": ("{grid: {seed: [1]}, zip: {seed: [2]}}", "seed is given twice"),
    "cell twice": ("{grid: {seed: [1, 1]}}", "the cell seed=1 is there twice"),
    "bad value": ("{grid: {seed: [1, -2]}}", "x.yaml: cell seed=-2: sweep seed=-2: seed is -2"),
    "of another kind": (
        "{grid: {gossip.compressor.keep: [0.1], gossip.compressor.kind: [identity]}}",
        "gossip.compressor.keep is an unknown key of kind: identity",
    ),
    "too many": (
        f"{{grid: {{seed: {list(range(200))}, data.batch_size: {list(range(1, 99))}}}}}",
        "19,600 cells; must be at most 10,000",
    ),
}


@pytest.mark.parametrize(("block", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cant_be_swept_is_refused_in_a_line(block, said):
    with pytest.raises(ScenarioError) as refused:
        cells_of(block)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_sweep_is_no_single_scenario_and_the_other_way_round():
    name = "sweeps/digits_comparison"
    with pytest.raises(ScenarioError, match=r"digits_comparison.yaml:\d+: sweep makes this a file"):
        load_scenario(name)
    with pytest.raises(ScenarioError, match="has no sweep; add the block"):
        parse_sweep(QUICKSTART.read_text(), "x.yaml", Path())


def test_list_keys_knows_the_block():
    rows = keys_table("sweep").rows
    assert [row[0] for row in rows] == [f"sweep.{name}" for name in SweepSection.model_fields]


def test_cells_are_chosen_by_any_key_of_their_scenarios(caplog):
    caplog.set_level("INFO")
    every = chosen_names("fleet.devices=8")
    assert len(every) == 4
    assert chosen_names("seed=2") == every[2:]
    assert chosen_names("gossip.compressor.kind=identity") == every[::2]
    assert chosen_names("model.precision=int8", "seed=1") == every[:1]
    assert chosen_names("gossip.compressor.keep=0.01", "seed=2") == every[3:]
    assert chosen_names("gossip.compressor={kind: top_k, keep: 0.01}") == every[1::2]
    planned = parse_sweep(f"{QUICKSTART.read_text()}\nsweep: {LISTED}\n", "x.yaml", Path())
    by_python = chosen(planned, ["gossip.compressor.kind=identity"], "x", origin=ONLY_ARGUMENT)
    assert [cell.name for cell in by_python.wanted] == every[::2]
    assert not caplog.messages  # a choice drops no key


@pytest.mark.parametrize(
    ("only", "said"),
    [
        (["seed=7"], "--only seed=7: no cell of x.yaml has this; `edgesim validate x.yaml` has a"),
        (["seed=1", "seed=2"], "--only seed=1 --only seed=2: no cell"),
        (["sed=1"], "--only sed=1: sed is an unknown key; did you mean seed?"),
        (["seed"], "--only seed: write it as key.path=value, for example --only training.epochs"),
        (
            ["model.precision=int9"],
            "--only model.precision=int9: model.precision is the text 'int9'; must be one",
        ),
    ],
)
def test_a_choice_that_no_cell_can_meet_is_refused(only, said):
    with pytest.raises(ScenarioError) as refused:
        chosen_names(*only)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("block", "override"),
    [
        ("{grid: {seed: [1, 2]}}", "seed=5"),
        ("{list: [{seed: 1}, {seed: 2, training.epochs: 3}]}", "seed=5"),
        ("{grid: {gossip.compressor: [{kind: identity}]}}", "gossip.compressor.kind=top_k"),
        ("{grid: {fleet.devices: [8, 16]}}", "fleet.devices[0].count=3"),
        ("{grid: {training.epochs: [8, 16]}}", "training.rounds=3"),  # an alternative
    ],
)
def test_an_override_that_every_cell_overrides_is_refused(block, override):
    with pytest.raises(ScenarioError) as caught:
        cells_of(block, override)
    assert str(caught.value).startswith(f"--set {override}: has no effect, since the sweep sets ")


def test_an_override_that_some_cells_override_is_of_the_others():
    cells = cells_of("{list: [{}, {seed: 2}]}", "seed=5")
    assert [(cell.name, cell.scenario.seed) for cell in cells] == [("base", 5), ("seed=2", 2)]


@pytest.mark.parametrize(
    ("block", "undone", "by"),
    [
        (
            "{grid: {gossip.compressor.keep: [0.5]}, zip: {gossip.compressor: [{kind: top_k}]}}",
            "gossip.compressor.keep",
            "gossip.compressor",
        ),
        (
            "{list: [{seed: 1}, {gossip.averaging_rate: 0.1, gossip: {algorithm: choco}}]}",
            "gossip.averaging_rate",
            "gossip",
        ),
        (
            "{grid: {training.epochs: [1, 2]}, list: [{training.rounds: 3}]}",
            "training.epochs",
            "training.rounds",
        ),
    ],
)
def test_a_setting_that_a_later_one_undoes_is_refused(block, undone, by):
    """A table would have its value in a column, and all its rows would be of the same run."""
    with pytest.raises(
        ScenarioError, match=rf"{undone} has no effect in a cell that sets {by} aft"
    ):
        cells_of(block)


def test_a_section_may_come_before_a_key_in_it():
    (cell,) = cells_of("{list: [{gossip.compressor: {kind: top_k}, gossip.compressor.keep: 0.3}]}")
    assert cell.scenario.gossip.compressor.keep == 0.3


@pytest.mark.parametrize(
    "block",
    [
        "{list: [{}, {model.precision: fp32}]}",
        "{list: [{seed: 1, gossip.averaging_rate: 0.2}, {gossip.averaging_rate: 0.2, seed: 1}]}",
    ],
    ids=["a default", "another order"],
)
def test_two_spellings_of_one_scenario_are_no_two_repetitions(block):
    with pytest.raises(ScenarioError, match=r"the cells .* and .* are the same scenario"):
        cells_of(block)


def test_cells_that_a_scale_makes_equal_are_refused():
    planned = read_sweep("quickstart", {"grid": {"training.epochs": [10, 11]}})
    with pytest.raises(ScenarioError, match=r"--scale 0\.1: .* the same scenario, by this scale"):
        scaled_sweep(planned, 0.1)
    one = chosen(planned, ["training.epochs=10"], "quickstart")
    assert [cell.scenario.training.epochs for cell in scaled_sweep(one, 0.1).wanted] == [1]


def test_a_shorter_sweep_has_a_folder_of_its_own():
    """So the same file at another scale need not be given another folder by hand."""
    planned = read_sweep("quickstart", {"grid": {"seed": [1, 2]}})
    places = [default_place(planned), *(default_place(scaled_sweep(planned, s)) for s in (1, 0.25))]
    assert [place.as_posix() for place in places] == [
        *("runs/quickstart", "runs/quickstart"),
        "runs/quickstart-scale-0.25",
    ]


def test_an_error_of_a_cell_is_shown_once_unless_the_chained_one_says_more():
    with pytest.raises(ScenarioError, match="cell averaging_rate=-1: ") as caught:
        cells_of("{grid: {gossip.averaging_rate: [-1]}}")
    assert not isinstance(caught.value.__cause__, ScenarioError)
    with pytest.raises(ScenarioError, match=r" \(and 1 more\)$") as caught:
        cells_of("{list: [{gossip.averaging_rate: -1, data.batch_size: -1}]}")
    assert str(caught.value.__cause__).count("must be") == 2
