"""What is refused before gossip begins, in a process that is a group of its own."""

from __future__ import annotations

import re
from unittest.mock import Mock

import pytest
import torch
from process_alone import ALONE, parts
from small_fleets import small_scenario
from torch import distributed as dist
from torch import nn

import edgesim
from edgesim.distributed import around
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers


def scenario(**changes):
    """A whole scenario of one device."""
    return small_scenario(**{"fleet": {"devices": 1}, "topology": {"kind": "ring"}} | changes)


def test_a_process_that_has_joined_no_group_is_told_to():
    with pytest.raises(edgesim.GossipError, match=r"call torch.distributed.init_process_group\("):
        edgesim.gossip_around(*parts(), ALONE)


def test_alone_a_process_trains_as_without_gossip(group):
    torch.manual_seed(1)
    (model, optimizer), x = parts(), torch.randn(5, 3)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    for each, steps in ((model, optimizer), (twin, other)):
        each(x).square().sum().backward()
        steps.step()
    assert torch.equal(model.weight, twin.weight)
    assert (gossip.rounds, gossip.sent.total, gossip.received_bytes) == (1, 0, 0)


REFUSED = {
    "free pace": ({"fleet": {"devices": 1, "pace": "free", "profile": "raspberry-pi-4b"}}, "pace"),
    "churn": (
        {"fleet": {"devices": 1, "churn": {"random": {"absence_probability": 0.1}}}},
        "churn",
    ),
    "battery": (
        {"fleet": {"devices": [{"profile": "raspberry-pi-4b", "battery_wh": 1}]}},
        "battery",
    ),
    "auto": ({"gossip": {"averaging_rate": "auto"}}, "gossip.averaging_rate is auto"),
    "devices": ({"fleet": {"devices": 4}}, "fleet.devices is 4, but the group has 1 processes"),
    "quasi-global": (
        {"training": {"rounds": 6, "optimizer": {"lr": 0.05, "momentum_kind": "quasi_global"}}},
        "training.optimizer follows how gossip moves the model",
    ),
    "participation": (
        {
            "topology": {"kind": "star"},
            "gossip": {
                "algorithm": "fedavg",
                "participation": 0.5,
                "averaging_rate": None,
                "compressor": None,
            },
        },
        "gossip.participation is 0.5",
    ),
    "graph": (
        {
            "topology": {"kind": "directed_ring"},
            "gossip": {"algorithm": "gut", "averaging_rate": None, "compressor": None},
        },
        "topology.kind is directed_ring; gossip.algorithm: gut needs a fixed graph",
    ),
    "nodes": (
        {
            "fleet": {"devices": 1, "placement": "by_node"},
            "topology": {"kind": "complete"},
            "gossip": {
                "algorithm": "bagua_low_precision",
                "sites": "nodes",
                "averaging_rate": None,
                "compressor": None,
            },
        },
        "gossip.sites is nodes",
    ),
    "name": ({"gossip": {"algorithm": "chocco"}}, "did you mean choco"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_scenario_that_processes_cannot_follow_is_refused_by_its_key(what, group):
    changes, message = REFUSED[what]
    with pytest.raises(edgesim.ScenarioError, match=re.escape(message)):
        edgesim.gossip_around(*parts(), scenario(**changes))


def test_a_misspelt_argument_is_told_from_a_key(group):
    with pytest.raises(edgesim.ScenarioError, match="num_samples"):
        edgesim.gossip_around(*parts(), ALONE, num_sample=3)


def test_overrides_change_keys_as_in_a_run(group):
    with pytest.raises(edgesim.ScenarioError, match=r"gossip\.averaging_rate"):
        edgesim.gossip_around(*parts(), ALONE, gossip__averaging_rate=2)


def test_models_and_optimizers_that_gossip_cannot_see_are_refused(group):
    model, _ = parts()
    others = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(2))], lr=0.1)
    with pytest.raises(edgesim.GossipError, match="trains 1 parameters that are not in the model"):
        edgesim.gossip_around(model, others, ALONE)
    with pytest.raises(edgesim.GossipError, match=r"must be a torch\.optim\.Optimizer"):
        edgesim.gossip_around(model, model, ALONE)
    half = nn.Linear(3, 2).double()
    with pytest.raises(edgesim.GossipError, match=r"weight of the model is torch\.float64"):
        edgesim.gossip_around(half, torch.optim.SGD(half.parameters(), lr=0.1), ALONE)
    frozen = nn.Linear(3, 2).requires_grad_(False)
    for nothing in (nn.ReLU(), frozen):
        with pytest.raises(edgesim.GossipError, match="has no parameters with a gradient"):
            ModuleVector(nothing)


@pytest.mark.parametrize("changes", [{"num_samples": "a"}, {"num_samples": 1.5}, {"group": [0]}])
def test_arguments_of_a_wrong_type_are_refused_by_name(group, changes):
    (name,) = changes
    with pytest.raises(edgesim.GossipError, match=f"^{name} is "):
        edgesim.gossip_around(*parts(), ALONE, **changes)


def test_the_others_are_told_of_an_error_while_parameters_are_compared(group, monkeypatch):
    """They wait for this process, whatever it can't do."""
    told, error = [], RuntimeError("no such layout")
    monkeypatch.setattr(ModuleVector, "digests", Mock(side_effect=error))
    monkeypatch.setattr(around, "agree", lambda _, own: told.append(own))
    with pytest.raises(RuntimeError, match="no such layout"):
        edgesim.gossip_around(*parts(), ALONE)
    assert told == [error]


def test_model_and_optimizer_in_the_wrong_order_are_refused(group):
    model, optimizer = parts()
    with pytest.raises(edgesim.GossipError, match="takes model, optimizer and scenario"):
        edgesim.gossip_around(optimizer, model, ALONE)


def test_a_model_that_averages_gradients_is_refused(group):
    model, optimizer = parts()
    wrapped = nn.parallel.DistributedDataParallel(model)
    with pytest.raises(edgesim.GossipError, match=r"give gossip_around its \.module"):
        edgesim.gossip_around(wrapped, optimizer, ALONE)


@pytest.mark.parametrize("algorithm", ["momentum_tracking", "gradient_tracking"])
def test_an_algorithm_that_follows_the_rate_needs_one_rate(group, algorithm):
    model, _ = parts()
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
    scenario = ALONE | {"gossip": {"algorithm": algorithm}}
    with pytest.raises(edgesim.GossipError, match=rf"{algorithm} .* the optimizer has 0.1, 0.2"):
        edgesim.gossip_around(model, torch.optim.SGD(groups), scenario)


def test_a_backend_without_tensors_of_the_cpu_is_refused(group, monkeypatch):
    monkeypatch.setattr(dist, "get_backend_config", lambda _: "cuda:nccl")
    with pytest.raises(edgesim.GossipError, match="cuda:nccl, which sends no tensors of the CPU"):
        Peers(None)
