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


def test_lists_are_set_as_a_whole():
    message = error_of(CIFAR, "training.schedule.milestones.0=3")
    assert message.endswith(": milestones is a list; set it as a whole")
