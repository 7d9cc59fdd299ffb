"""Defaults, immutability, and what must hold between keys."""

import pickle
import re
from typing import Any

import pytest
from pydantic import ValidationError

from edgesim.assembly.gossip import check_one_graph
from edgesim.errors import ScenarioError
from edgesim.scenario import Scenario
from edgesim.scenario.outline import SCENARIO, Slot


def least(**sections: Any) -> dict[str, Any]:
    """The least that a scenario must say, with some sections replaced."""
    return {
        "name": "least",
        "fleet": {"devices": 4},
        "topology": {"kind": "ring"},
        "data": {"partition": {"kind": "iid"}, "batch_size": 8},
        "model": {"name": "small_cnn"},
        "training": {"epochs": 1, "optimizer": {"lr": 0.1}},
        "gossip": {"algorithm": "choco", "averaging_rate": 1},
    } | sections


def problem_of(**sections: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Scenario.model_validate(least(**sections))
    (error,) = caught.value.errors()
    return error["msg"]


def test_defaults_are_the_documented_ones():
    scenario = Scenario.model_validate(least())
    assert scenario.seed == 1
    assert scenario.fleet.pace == "lockstep"
    assert scenario.fleet.devices_per_actor == 1
    assert scenario.data.source == "digits"
    assert scenario.data.augment == "none"
    assert (scenario.model.precision, scenario.model.norm_used) == ("fp32", "evonorm_s0")
    optimizer = scenario.training.optimizer
    assert (optimizer.momentum, optimizer.nesterov, optimizer.weight_decay) == (0.9, True, 0.0)
    assert optimizer.momentum_kind == "local"
    assert scenario.training.schedule.milestones == ()
    assert scenario.gossip.compressor.kind == "identity"
    assert scenario.gossip.compressor.values == "fp32"
    assert scenario.evaluation.every_epochs == 1
    assert scenario.evaluation.device_models == "final"


def test_a_scenario_is_frozen_hashable_and_pickles_to_an_equal_one():
    scenario = Scenario.model_validate(least())
    with pytest.raises(ScenarioError, match="seed: a scenario does not change"):
        scenario.seed = 2
    assert pickle.loads(pickle.dumps(scenario)) == scenario
    assert hash(scenario) == hash(Scenario.model_validate(least()))


def test_whole_numbers_are_accepted_as_fractions():
    rate = Scenario.model_validate(least()).gossip.averaging_rate
    assert (rate, type(rate)) == (1.0, float)


def test_an_interval_in_rounds_replaces_the_default_in_epochs():
    evaluation = Scenario.model_validate(least(evaluation={"every_rounds": 5})).evaluation
    assert (evaluation.every_rounds, evaluation.every_epochs) == (5, None)


def test_topologies_give_kind_and_options_as_their_builder_takes_them():
    torus = Scenario.model_validate(least(topology={"kind": "torus"})).topology
    assert torus.builder_options() == ("torus", {"weights": "column_stochastic"})
    section = {"kind": "cycle", "graphs": [{"kind": "ring"}, {"kind": "torus", "rows": 2}]}
    kind, options = Scenario.model_validate(least(topology=section)).topology.builder_options()
    assert (kind, options["hold"]) == ("cycle", 1)
    assert [graph["kind"] for graph in options["graphs"]] == ["ring", "torus"]
    assert options["graphs"][1]["rows"] == 2


@pytest.mark.parametrize(
    "topology",
    [
        {"kind": "ring"},
        {"kind": "torus"},
        {"kind": "chordal_grid"},
        {"kind": "complete"},
        {"kind": "random_regular", "degree": 3},
        {"kind": "star", "weights": "metropolis"},
        {"kind": "file", "path": "x.graphml", "weights": "metropolis"},
    ],
)
def test_dcd_accepts_fixed_symmetric_weights(topology: dict[str, Any]):
    check_one_graph(Scenario.model_validate(least(topology=topology, gossip={"algorithm": "dcd"})))


@pytest.mark.parametrize(
    ("topology", "key"),
    [
        ({"kind": "directed_ring"}, "topology.kind is directed_ring"),
        ({"kind": "exponential"}, "topology.kind is exponential"),
        ({"kind": "erdos_renyi", "probability": 0.5}, "topology.kind is erdos_renyi"),
        ({"kind": "one_peer_exponential"}, "topology.kind is one_peer_exponential"),
        ({"kind": "random_matching"}, "topology.kind is random_matching"),
        ({"kind": "cycle", "graphs": [{"kind": "ring"}]}, "topology.kind is cycle"),
        ({"kind": "star"}, "topology.weights is column_stochastic; must be metropolis"),
        ({"kind": "file", "path": "x.csv"}, "topology.weights is column_stochastic"),
    ],
)
def test_dcd_refuses_weights_that_do_not_average(topology: dict[str, Any], key: str):
    scenario = Scenario.model_validate(least(topology=topology, gossip={"algorithm": "dcd"}))
    with pytest.raises(ScenarioError, match=re.escape(key)):
        check_one_graph(scenario)


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"topology": {"kind": "rotating"}}, "fleet.devices is 4; must be 8"),
        (
            {"training": {"epochs": 1, "rounds": 2, "optimizer": {"lr": 1}}},
            "rounds is set beside epochs; give one of the two",
        ),
        ({"training": {"optimizer": {"lr": 1}}}, "epochs is missing; give epochs or rounds"),
        (
            {"training": {"epochs": 1, "optimizer": {"lr": 1, "momentum": 0}}},
            "nesterov is true, but momentum is 0; write nesterov: false",
        ),
        (
            {
                "training": {
                    "epochs": 1,
                    "optimizer": {"lr": 1, "momentum": 0, "momentum_kind": "quasi_global"},
                }
            },
            "momentum is 0, but momentum_kind: quasi_global needs it above 0",
        ),
        (
            {
                "training": {
                    "epochs": 9,
                    "optimizer": {"lr": 1},
                    "schedule": {"milestones": [4, 4]},
                }
            },
            "milestones has 4 after 4; must increase",
        ),
        (
            {"evaluation": {"every_epochs": 1, "every_rounds": 1}},
            "every_rounds is set beside every_epochs",
        ),
        (
            {"data": {"source": "parquet", "partition": {"kind": "iid"}, "batch_size": 8}},
            "path is missing; source: parquet reads the files there",
        ),
        (
            {"data": {"path": "x", "partition": {"kind": "iid"}, "batch_size": 8}},
            "path is set, but source: digits comes with the program",
        ),
        (
            {"data": {"download": True, "partition": {"kind": "iid"}, "batch_size": 8}},
            "download is true, but source: digits has no download",
        ),
        (
            {"data": {"train_samples": 3, "partition": {"kind": "iid"}, "batch_size": 8}},
            "data.train_samples is 3; must be at least fleet.devices, 4",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(sections: dict[str, Any], problem: str):
    assert problem in problem_of(**sections)


def all_fields(slot: Slot = SCENARIO, path: str = "") -> list[tuple[str, Any, Slot]]:
    """Every key of every section, found by walking the schema."""
    fields = []
    for section in slot.sections or (slot.item.sections if slot.item else ()):
        for name, field in section.model_fields.items():
            inner = Slot.of_key(section, name)
            assert inner
            fields.append((f"{path}.{name}", field, inner))
            fields += all_fields(inner, f"{path}.{name}")
    return fields


def test_every_key_says_what_it_means_and_what_it_must_be():
    fields = all_fields()
    assert len(fields) > 80
    undescribed = [
        path
        for path, field, slot in fields
        if not (field.description or slot.sections or path.endswith((".kind", ".algorithm")))
    ]
    assert undescribed == []
    assert all(slot.must_be for _, _, slot in fields)
