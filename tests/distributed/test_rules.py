"""What processes compare before they begin."""

from __future__ import annotations

import pytest
from small_fleets import small_scenario

from edgesim.distributed.rules import read_rules
from edgesim.errors import ScenarioError
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(3, 2), (2,)])
RING = {"topology": {"kind": "ring"}, "gossip": {"algorithm": "gradient_push"}}


def digest(scenario, size=4, layout=LAYOUT, **overrides):
    return read_rules(scenario, overrides, layout, size).digest()


def graph_file(folder, edges):
    folder.mkdir()
    path = folder / "graph.csv"
    path.write_text("source,target\n" + "".join(f"{j},{i}\n" for j, i in edges))
    return RING | {"topology": {"kind": "file", "path": str(path)}}


def test_equal_files_in_other_folders_are_the_same(tmp_path):
    """Machines keep their files where they like; what is in them must be the same."""
    one_way = [(0, 1), (1, 2), (2, 3), (3, 0)]
    here, there = (graph_file(tmp_path / name, one_way) for name in ("here", "there"))
    other = graph_file(tmp_path / "other", [*one_way, (0, 2)])
    assert digest(here) == digest(there) != digest(other)


def test_graphs_of_equal_code_in_other_folders_are_the_same(tmp_path):
    codes = {"here": "cycle", "there": "cycle", "other": "complete"}
    for name, kind in codes.items():
        (tmp_path / name).mkdir()
        text = f"import networkx as nx\ndef graph(num_devices):\n    return nx.{kind}_graph(4)\n"
        (tmp_path / name / "mine.py").write_text(text)
    here, there, other = (
        digest(RING | {"topology": {"kind": f"{tmp_path / name}/mine.py:graph"}}) for name in codes
    )
    assert here == there != other


CHANGES = {
    "seed": ("seed", 2),
    "graph": ("topology.kind", "complete"),
    "rate": ("gossip.averaging_rate", 0.5),
    "local steps": ("gossip.local_steps", 2),
    "streams": ("training.device_seeds", "shared"),
    "step on": ("training.optimizer.step_on", "model"),
    "precision": ("model.precision", "int8"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_the_result_is_seen_by_its_key(what):
    scenario, (key, value) = small_scenario(), CHANGES[what]
    assert digest(scenario) == digest(scenario) != digest(scenario, **{key: value})
    before, after = (
        read_rules(scenario, changes, LAYOUT, 4).digests() for changes in ({}, {key: value})
    )
    (differing,) = (name for name in before if before[name] != after[name])
    assert key.startswith(differing)


def test_another_size_or_another_model_is_seen():
    assert digest(RING) != digest(RING, size=5)
    assert digest(RING) != digest(RING, layout=ParameterLayout.from_shapes([(2, 3), (2,)]))


def test_a_mapping_needs_those_keys_alone_that_have_a_part():
    """What it lacks within a section is added, as are sections that it lacks."""
    steps = RING | {"training": {"optimizer": {"step_on": "model"}}}
    assert read_rules(steps, {}, LAYOUT, 4).steps_on_model
    shared = RING | {"training": {"device_seeds": "shared", "rounds": 5}}
    training = read_rules(shared, {}, LAYOUT, 4).scenario.training
    assert (training.device_seeds, training.rounds, training.epochs) == ("shared", 5, None)
    paced = RING | {"fleet": {"pace": "lockstep"}}
    assert read_rules(paced, {}, LAYOUT, 4).scenario.fleet.num_devices == 4


@pytest.mark.parametrize("given", [None, 3])
def test_what_is_no_scenario_is_refused(given):
    with pytest.raises(ScenarioError, match=f"the scenario is {given}; must be a file"):
        digest(given)


def test_what_is_of_the_callers_training_is_not_compared():
    scenario = small_scenario()
    assert digest(scenario) == digest(scenario, training__rounds=9, data__batch_size=8)
