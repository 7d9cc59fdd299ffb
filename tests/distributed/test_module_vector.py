"""A module's parameters as a vector: read, written, averaged, refused."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from process_alone import ALONE
from torch import nn

import edgesim
from edgesim.distributed.module_vector import ModuleVector


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
