"""What is refused before gossip begins, in a process that is a group of its own."""

from __future__ import annotations

import re

import pytest
import torch
from small_fleets import small_scenario
from torch import distributed as dist
from torch import nn

import edgesim
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers

ALONE = {"topology": {"kind": "ring"}, "gossip": {"algorithm": "gradient_push"}}


@pytest.fixture(scope="module")
def group():
    """A group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def parts(lr=0.1):
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


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
    with pytest.raises(edgesim.GossipError, match="has no parameters"):
        ModuleVector(nn.ReLU())


def test_an_algorithm_that_follows_the_rate_needs_one_rate(group):
    model, _ = parts()
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
    scenario = ALONE | {"gossip": {"algorithm": "momentum_tracking"}}
    with pytest.raises(
        edgesim.GossipError, match=r"momentum_tracking .* the optimizer has 0.1, 0.2"
    ):
        edgesim.gossip_around(model, torch.optim.SGD(groups), scenario)


def test_a_backend_without_tensors_of_the_cpu_is_refused(group, monkeypatch):
    monkeypatch.setattr(dist, "get_backend_config", lambda _: "cuda:nccl")
    with pytest.raises(edgesim.GossipError, match="cuda:nccl, which sends no tensors of the CPU"):
        Peers(None)


def test_a_training_that_diverges_says_so(group):
    model, optimizer = parts()
    edgesim.gossip_around(model, optimizer, ALONE)
    model(torch.full((1, 3), torch.nan)).sum().backward()
    optimizer.step()  # alone a process sends nothing, so the next step notices
    with pytest.raises(edgesim.GossipError, match="process 0 diverged in round 1: a parameter"):
        optimizer.step()


def test_removed_hooks_leave_the_optimizer_as_it_was(group):
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    gossip.remove()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert gossip.rounds == 0


def test_entries_without_a_gradient_come_last_and_all_are_written_back():
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    model[0].weight.requires_grad_(False)
    vector = ModuleVector(model)
    assert vector.layout.names == ("0.bias", "1.weight", "1.bias", "0.weight")
    assert vector.num_trainable == 3
    vector.write(torch.arange(5.0))
    assert model[0].weight.tolist() == [[3.0, 4.0]]
    vector.write(torch.tensor([7.0, 8.0, 9.0]))
    assert vector.read().tolist() == [7.0, 8.0, 9.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(lambda p: p.clone(), id="elsewhere"),
        pytest.param(lambda p: p.clone(memory_format=torch.channels_last), id="in another order"),
        pytest.param(lambda p: p.transpose(0, 1), id="in place, in another order"),
    ],
)
def test_parameters_with_other_memory_than_before_are_read_and_written(moved):
    model = nn.Conv2d(2, 2, 2, bias=False)
    vector = ModuleVector(model)
    vector.write(torch.zeros(16))
    model.weight.data = moved(model.weight.data)
    wanted = torch.arange(16.0)
    vector.write(wanted)
    assert torch.equal(model.weight.detach().reshape(-1), wanted)
    assert torch.equal(vector.read(), wanted)
