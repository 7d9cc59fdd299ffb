"""What is refused before gossip begins, in a process that is a group of its own."""

from __future__ import annotations

import gc
import re
import weakref
from contextlib import suppress
from copy import deepcopy
from unittest.mock import Mock

import pytest
import torch
from small_fleets import small_scenario
from torch import distributed as dist
from torch import nn

import edgesim
from edgesim.distributed import around
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers, Transfer

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


def stepped(model, optimizer):
    """One step of a caller."""
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


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


def with_nan(model):
    model.weight.data[1, 2] = torch.nan
    return model


def with_frozen_sparse(model):
    model.graph = nn.Parameter(torch.eye(3).to_sparse(), requires_grad=False)
    return model


UNUSABLE = {
    "lazy": (lambda: nn.LazyLinear(2), "weight of the model has no shape yet"),
    "meta": (lambda: nn.Linear(3, 2, device="meta"), "weight of the model is on the meta device"),
    "empty": (lambda: nn.Linear(3, 0), "weight of the model has no entries"),
    "nan": (lambda: with_nan(nn.Linear(3, 2)), "weight of the model is not finite at the start"),
    "sparse": (
        lambda: with_frozen_sparse(nn.Linear(3, 2)),
        r"graph of the model is torch\.sparse_coo; gossip compares .* to_dense\(\)",
    ),
    "no module": (lambda: [nn.Linear(3, 2)], "the model is a list; must be a torch.nn.Module"),
}


@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("what", UNUSABLE)
def test_models_without_values_are_refused(what):
    make, message = UNUSABLE[what]
    model = make()
    with pytest.raises(edgesim.GossipError, match=message):
        ModuleVector(model)


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


def test_one_model_has_one_gossip_until_it_is_removed(group):
    model, optimizer = parts()
    first = edgesim.gossip_around(model, optimizer, ALONE)
    other = torch.optim.SGD([model.bias], lr=0.1)
    for again in (optimizer, other):
        with pytest.raises(edgesim.GossipError, match="already around parameter weight"):
            edgesim.gossip_around(model, again, ALONE)
    first.remove()
    second = edgesim.gossip_around(model, optimizer, ALONE)
    first.remove()  # again, which must not free what is the second's
    with pytest.raises(edgesim.GossipError, match="already around"):
        edgesim.gossip_around(model, other, ALONE)
    stepped(model, optimizer)
    assert (first.rounds, second.rounds) == (0, 1)


@pytest.mark.parametrize("has_scheduler", [False, True])
def test_a_model_whose_optimizer_is_gone_may_have_another_gossip(has_scheduler, group):
    """A scheduler makes a cycle of its optimizer, which lives until Python looks for cycles."""
    model, _ = parts()

    def trained():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if has_scheduler:
            torch.optim.lr_scheduler.StepLR(optimizer, 1)
        gossip = edgesim.gossip_around(model, optimizer, ALONE)
        stepped(model, optimizer)
        return gossip

    first = trained()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    second = edgesim.gossip_around(model, optimizer, ALONE)
    first.remove()  # which must not free what is the second's
    with pytest.raises(edgesim.GossipError, match="already around"):
        edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    assert (first.rounds, second.rounds) == (1, 1)


def test_an_optimizer_with_gossip_ends_with_its_last_reference(group):
    model, optimizer = parts()
    edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


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


def test_frozen_parameters_have_no_part():
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1).half())
    model[1].requires_grad_(False)
    model[0].weight.requires_grad_(False)
    vector = ModuleVector(model)
    assert vector.layout.names == ("0.bias",)
    weight = model[0].weight.clone()
    vector.write(torch.tensor([7.0]))
    assert model[0].bias.item() == 7
    assert torch.equal(model[0].weight, weight)
    form, values = vector.digests()
    model[1].bias.add_(1)
    assert vector.digests()[0] == form
    assert vector.digests()[1] != values, "processes with other frozen values differ"


def test_the_average_loads_into_a_copy_of_the_model(group):
    """Buffers and frozen parameters are those of the process; tied ones have both names."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[2].requires_grad_(False)
    model[3].weight = model[0].weight
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    compiled = torch.compile(model, backend="eager")
    gossip = edgesim.gossip_around(compiled, optimizer, ALONE)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    averaged = deepcopy(model)
    for tensor in (*averaged.parameters(), *averaged.buffers()):
        tensor.data.zero_()
    averaged.load_state_dict(gossip.average())
    for name, tensor in model.state_dict().items():
        assert torch.equal(averaged.state_dict()[name], tensor)
    assert averaged[1].num_batches_tracked == 1


class Cloning(nn.Linear):
    """Saves copies of its parameters, as modules do that save them in another form."""

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in ("weight", "bias"):
            destination[prefix + name] = destination[prefix + name].clone()


def halved(module, state, prefix, metadata):
    """A hook that casts what is saved."""
    for name, value in state.items():
        state[name] = value.half()


def failing(module, state, prefix, metadata):
    raise MemoryError


def linear(hook=None):
    """Two layers, of which the first has a hook of its own."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    if hook:
        model[0].register_state_dict_post_hook(hook)
    return model


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(nn.Sequential(Cloning(3, 2), nn.Linear(2, 1)), id="cloned"),
        pytest.param(linear(halved), id="cast"),
    ],
)
def test_the_average_is_what_the_module_saves_of_it(model):
    """And the module has its own parameters again; a graph of autograd does not notice."""
    vector, wanted = ModuleVector(model), torch.arange(11.0)
    before = vector.read()
    loss = model(torch.ones(1, 3)).square().sum()
    state = vector.state_with(wanted)
    assert torch.equal(torch.cat([value.float().reshape(-1) for value in state.values()]), wanted)
    assert state["0.weight"].dtype == model.state_dict()["0.weight"].dtype
    assert torch.equal(vector.read(), before)
    loss.backward()


def test_a_module_that_cannot_be_saved_keeps_its_parameters():
    vector = ModuleVector(linear(failing))
    before = vector.read()
    with pytest.raises(MemoryError):
        vector.state_with(torch.arange(11.0))
    assert torch.equal(vector.read(), before)


def test_an_average_is_refused_where_a_layer_was_replaced(group):
    """The average is not in that layer; the call has told the others their part."""
    model = linear()
    gossip = edgesim.gossip_around(model, torch.optim.SGD(model.parameters(), lr=0.1), ALONE)
    model[1] = nn.Linear(2, 1)
    with pytest.raises(edgesim.GossipError, match=r"parameter 1\.weight .* not the tensor"):
        gossip.average()


REPLACED = {
    "replaced": (
        lambda model, _: setattr(model[1], "weight", nn.Parameter(torch.ones(2, 3))),
        "parameter 1.weight of the model is not the tensor that gossip began with",
    ),
    "added": (
        lambda model, _: model.append(nn.Linear(2, 2)),
        "parameter 2.weight of the model is not the tensor that gossip began with",
    ),
    "left out": (lambda model, _: model.pop(1), "parameter 1.(weight|bias) is no longer in the"),
    "unfrozen": (
        lambda model, _: model[0].bias.requires_grad_(True),
        "parameter 0.bias of the model had no gradient when gossip began",
    ),
    "of the optimizer": (
        lambda _, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
        "the optimizer has 1 parameters that gossip did not begin with",
    ),
}


@pytest.mark.parametrize("what", REPLACED)
def test_tensors_that_gossip_did_not_begin_with_are_refused(what, group):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    change, message = REPLACED[what]
    change(model, optimizer)
    with pytest.raises(edgesim.GossipError, match=f"{message}.*; to change the model call gossip"):
        stepped(model, optimizer)
    gossip.remove()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    again = edgesim.gossip_around(model, optimizer, ALONE)
    stepped(model, optimizer)
    assert (gossip.steps, again.steps) == (1, 1)


def test_a_rate_of_zero_is_refused_before_the_step_and_harms_nothing(group):
    """Schedules without eta_min have it at their end."""
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE | {"gossip": {"algorithm": "gut"}})
    stepped(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(edgesim.GossipError, match=r"gut keeps .* above 0; .* has 0: .*eta_min"):
        stepped(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.05
    stepped(model, optimizer)
    assert gossip.rounds == 2


@pytest.mark.parametrize("u", [1.0, 0.5])
def test_a_step_whose_closure_raises_may_be_taken_again(u, group):
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    state = gossip._member.state
    state.x.mul_(u)
    state.u = u
    before = model.weight.clone()

    def closure():
        assert torch.equal(model.weight, before)
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            optimizer.step(closure)
        assert torch.equal(model.weight, before)
    gossip.state_dict()
    stepped(model, optimizer)
    assert gossip.rounds == 1


class Swallowing(torch.optim.Optimizer):
    """Goes on where its closure raises an error."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure):
        with suppress(ValueError):
            closure()
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad)


@pytest.mark.parametrize("u", [1.0, 0.5])
def test_a_step_that_goes_on_after_an_error_of_its_closure_is_refused(u, group):
    """The module holds z by then, which would be taken for the x of the step."""
    model = nn.Linear(3, 2)
    optimizer = Swallowing(model.parameters())
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    state = gossip._member.state
    state.x.mul_(u)
    state.u = u
    before = model.weight.clone()
    model(torch.ones(1, 3)).sum().backward()

    def closure():
        raise ValueError

    for _ in range(2):
        with pytest.raises(edgesim.GossipError, match="the optimizer went on after an error of"):
            optimizer.step(closure)
        assert torch.equal(model.weight, before)
    assert gossip.rounds == 0
    optimizer.step(lambda: model(torch.ones(1, 3)).sum())
    assert gossip.rounds == 1


def test_an_error_in_the_callers_step_says_how_to_go_on(group):
    model, optimizer = parts()
    gossip = edgesim.gossip_around(model, optimizer, ALONE)
    before = model.weight.clone()

    def fail(*_):
        model.weight.data.add_(1)
        raise MemoryError

    failing = optimizer.register_step_pre_hook(fail)
    with pytest.raises(MemoryError):
        stepped(model, optimizer)
    failing.remove()
    with pytest.raises(
        edgesim.GossipError, match=r"ended optimizer\.step\(\) in its middle, before"
    ):
        stepped(model, optimizer)
    gossip.load_state_dict(gossip.state_dict())
    assert torch.equal(model.weight, before)
    stepped(model, optimizer)
    assert gossip.rounds == 1


NO_STATES = {
    "none": (None, "it is a NoneType"),
    "all of a checkpoint": ({"model": {}, "gossip": {}}, "it has no key digest"),
    "a changed round": ({"round_index": -1}, "its round_index is -1, where no step begins"),
    "no round": ({"round_index": "3"}, "its round_index is '3', where no step begins"),
}


@pytest.mark.parametrize("what", NO_STATES)
def test_what_is_no_state_of_gossip_is_refused(what, group):
    gossip = edgesim.gossip_around(*parts(), ALONE)
    given, message = NO_STATES[what]
    if "round" in what:
        given = gossip.state_dict() | given
    with pytest.raises(edgesim.GossipError, match=f"this is no state of gossip: {message}; give"):
        gossip.load_state_dict(given)


def test_who_sent_nothing_in_time_is_named(group, monkeypatch):
    peers, text = Peers(None), "[pair.cc:1] Timed out waiting 1500ms for recv operation"
    work = Mock(wait=Mock(side_effect=RuntimeError(text)))
    monkeypatch.setattr(peers, "_receive", lambda *_: Transfer(work, torch.zeros(1)))
    said = "process 0 of 1 waits in round 5 for process 3: nothing came within 1.5 s; process 3 is "
    with pytest.raises(edgesim.GossipError, match=f"^{said}slower, has ended, or is in average"):
        peers.exchange({}, [3], 5, longest_bytes=100)


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
