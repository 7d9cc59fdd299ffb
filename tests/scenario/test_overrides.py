"""`--set key.path=value`."""

import logging
from pathlib import Path

import pytest
from test_scenario_files import LEAST, ROOT, error_of, write

from edgesim.scenario import Scenario, load_scenario

CIFAR = ROOT / "scenarios" / "cifar10_ring8.yaml"


def with_set(*overrides: str) -> Scenario:
    return load_scenario(CIFAR, overrides)


def test_overrides_replace_values_and_the_last_one_wins():
    scenario = with_set("seed=2", "seed=3", "training.schedule.milestones=[6,9]")
    assert scenario.seed == 3
    assert scenario.training.schedule.milestones == (6, 9)


def test_the_documented_uncompressed_run_needs_no_other_keys_removed(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    scenario = with_set(
        "data.path=images",
        "training.epochs=10",
        "training.schedule.milestones=[6,9]",
        "data.partition.skew=0",
        "gossip.averaging_rate=1",
        "gossip.compressor.kind=identity",
    )
    assert scenario.gossip.compressor.kind == "identity"
    assert scenario.data.partition.skew == 0
    assert caplog.messages == ["--set gossip.compressor.kind=identity drops keep"]


def test_a_new_algorithm_drops_what_it_does_not_know():
    assert with_set("gossip.algorithm=gradient_push").gossip.averaging_rate == 0.01
    dcd = with_set("gossip.algorithm=dcd", "topology.kind=ring").gossip
    assert dcd.compressor.keep == 0.01


@pytest.mark.parametrize("is_kind_first", [True, False])
def test_a_key_set_by_hand_is_never_dropped(is_kind_first: bool):
    overrides = ["gossip.compressor.kind=identity", "gossip.compressor.keep=0.5"]
    message = error_of(CIFAR, *(overrides if is_kind_first else overrides[::-1]))
    assert "gossip.compressor.keep is an unknown key of kind: identity" in message


@pytest.mark.parametrize("is_kind_first", [True, False])
def test_a_section_with_a_key_set_by_hand_is_never_dropped(is_kind_first: bool):
    overrides = ["gossip.algorithm=gradient_push", "gossip.compressor.keep=0.5"]
    message = error_of(CIFAR, *(overrides if is_kind_first else overrides[::-1]))
    assert "gossip.compressor is an unknown key of algorithm: gradient_push" in message


def test_keys_that_the_new_kind_shares_are_kept():
    compressor = with_set("gossip.compressor.kind=random_k").gossip.compressor
    assert (compressor.kind, compressor.keep) == ("random_k", 0.01)


def test_an_alternative_replaces_the_other():
    training = with_set("training.rounds=20").training
    assert (training.rounds, training.epochs) == (20, None)
    evaluation = with_set("evaluation.every_rounds=5").evaluation
    assert (evaluation.every_rounds, evaluation.every_epochs) == (5, None)
    assert with_set("training.rounds=null").training.epochs == 200


def test_both_alternatives_by_hand_are_refused():
    message = error_of(CIFAR, "training.rounds=20", "training.epochs=3")
    assert "training.rounds is set beside epochs" in message


def test_missing_and_empty_sections_are_created(tmp_path: Path):
    path = write(tmp_path, LEAST)
    assert load_scenario(path, ["evaluation.samples=10"]).evaluation.samples == 10
    path = write(tmp_path, LEAST + "evaluation:\n")
    assert load_scenario(path, ["evaluation.samples=10"]).evaluation.samples == 10
    schedule = load_scenario(path, ["evaluation={}", "training.schedule.factor=0.5"])
    assert schedule.training.schedule.factor == 0.5


def test_a_whole_section_can_be_set():
    assert with_set("topology={kind: torus, rows: 2}").topology.rows == 2


def test_a_value_may_contain_an_equals_sign():
    assert with_set("description=a=b").description == "a=b"


def test_an_override_of_one_alias_leaves_the_other(tmp_path: Path):
    text = LEAST.replace("epochs: 1", "epochs: 1\n  schedule: &shared {}")
    path = write(tmp_path, text + "evaluation: *shared\n")
    scenario = load_scenario(path, ["evaluation.samples=9"])
    assert scenario.evaluation.samples == 9
    assert scenario.training.schedule.milestones == ()


LISTS = """
fleet:
  devices:
    - {profile: raspberry-pi-4b, count: 2}
    - {profile: jetson-nano}
  churn:
    leaves: [{device: 0, round: 3}, {device: 1, round: 5}]
topology:
  kind: cycle
  graphs: [{kind: torus, rows: 1}, {kind: ring}]
"""


def with_lists(folder: Path) -> Path:
    lines = LEAST.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("fleet:", "topology:"))]
    return write(folder, "".join(kept) + LISTS)


@pytest.mark.parametrize("written", ["fleet.devices.0.profile", "fleet.devices[0].profile"])
def test_one_item_of_a_list_can_be_changed(tmp_path: Path, written: str):
    path = with_lists(tmp_path)
    scenario = load_scenario(path, [f"{written}=raspberry-pi-5", "fleet.churn.leaves.1.round=7"])
    first, second = scenario.fleet.groups
    assert (first.profile, first.count) == ("raspberry-pi-5", 2)
    assert second.profile == "jetson-nano"
    assert [leave.round for leave in scenario.fleet.churn.leaves] == [3, 7]


def test_an_item_can_be_replaced_as_a_whole(tmp_path: Path):
    path = with_lists(tmp_path)
    first, second = load_scenario(
        path, ["fleet.devices.1={profile: esp32-s3, count: 3}"]
    ).fleet.groups
    assert (first.count, second.count, second.profile) == (2, 3, "esp32-s3")
    schedule = with_set("training.schedule.milestones=[3,6]", "training.schedule.milestones.1=9")
    assert schedule.training.schedule.milestones == (3, 9)


def test_a_new_kind_of_an_item_drops_what_it_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    scenario = load_scenario(with_lists(tmp_path), ["topology.graphs.0.kind=star"])
    assert [graph.kind for graph in scenario.topology.graphs] == ["star", "ring"]
    assert caplog.messages == ["--set topology.graphs.0.kind=star drops rows"]


def test_a_list_with_an_item_set_by_hand_is_never_dropped(tmp_path: Path):
    message = error_of(with_lists(tmp_path), "topology.graphs.0.rows=2", "topology.kind=ring")
    assert "topology.graphs is an unknown key of kind: ring" in message


@pytest.mark.parametrize("position", ["2", "-1", "first", "99999999999999999999"])
def test_a_position_that_the_list_lacks_is_refused(tmp_path: Path, position: str):
    message = error_of(with_lists(tmp_path), f"fleet.devices.{position}.count=3")
    assert message.endswith(
        ": devices is a list of 2; name an item by its position, 0 to 1, or set the list as a whole"
    )
    inner = error_of(with_lists(tmp_path), "fleet.churn.leaves.5.round=3")
    assert "leaves is a list of 2" in inner


def test_a_wrong_value_of_an_item_is_named_with_its_position(tmp_path: Path):
    message = error_of(with_lists(tmp_path), "fleet.devices.1.count=0")
    assert message.startswith("--set fleet.devices.1.count=0: fleet.devices[1].count is 0")
