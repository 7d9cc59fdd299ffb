"""Gradients and parameters of a flat model, and what it hands to functions that visit modules."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from edgesim.learning import flat_model
from edgesim.learning.flat_model import FlatModel
from edgesim.models import SeededDropout, seed_dropout_


def test_leaves_are_the_modules_without_children_in_the_order_of_the_model():
    first, second, third = nn.Linear(2, 2), nn.ReLU(), SeededDropout(0.5)
    model = FlatModel(nn.Sequential(first, nn.Sequential(second, nn.Sequential(third))))
    assert list(model.leaf_modules) == [first, second, third]


def test_seeding_the_leaves_draws_the_masks_of_seeding_the_model():
    module = nn.Sequential(SeededDropout(0.5), nn.Sequential(nn.Linear(8, 8), SeededDropout(0.5)))
    model, x, outputs = FlatModel(module), torch.ones(4, 8), []
    for seeded in (module, model.leaf_modules):
        seed_dropout_(seeded, 3)
        outputs.append(module(x))
    assert torch.equal(*outputs)


class Odd(nn.Module):
    """Tied weights, sparse gradients, an unused parameter, a statistic, recomputed parts."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(5, 6, sparse=True)
        self.square = nn.Linear(6, 6)
        self.unused = nn.Parameter(torch.ones(3))
        self.seen = nn.Parameter(torch.zeros(6), requires_grad=False)
        self.head = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, tokens):
        x = self.rows(tokens)
        self.seen.data.add_(x.detach().sum(0))
        self.mean.lerp_(x.detach().mean(0), 0.5)
        for _ in range(3):  # each with a backward pass of its own
            x = checkpoint(lambda x: self.square(x).tanh(), x, use_reentrant=True)
        return self.head(self.square(x))


def keeping(module):
    return FlatModel(module, keeps_parameters=True)


TOKENS, LABELS = torch.tensor([0, 1, 1, 4]), torch.arange(4)


def odd_model(seed):
    torch.manual_seed(seed)
    return Odd()


@pytest.fixture(params=["short", "long"])
def length(request, monkeypatch):
    monkeypatch.setattr(flat_model, "_LONG", 1 if request.param == "long" else 1 << 20)


@pytest.mark.usefixtures("length")
def test_gradients_are_those_of_autograd_alone():
    plain, model = odd_model(0), FlatModel(odd_model(0))
    for _ in range(2):  # the second finds what the first has left
        functional.cross_entropy(plain(TOKENS), LABELS).backward()
        _, gradient = model.loss_and_gradient(TOKENS, LABELS)
        views = dict(zip(model.layout.names, model.layout.unflatten(gradient), strict=True))
        for name, parameter in plain.named_parameters():
            due = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            assert torch.equal(views[name], due.to_dense()), name
        gradient.fill_(7)  # an optimizer may overwrite it
        plain.zero_grad()


@pytest.mark.usefixtures("length")
def test_a_failed_step_leaves_no_gradient_to_the_next():
    model, bad = FlatModel(odd_model(0)), torch.tensor([9, 9, 9, 9])
    _, due = FlatModel(odd_model(0)).loss_and_gradient(TOKENS, LABELS)
    broken = model.model.rows.weight.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # in the midst of the backward pass
        model.loss_and_gradient(TOKENS, LABELS)
    broken.remove()
    with pytest.raises(IndexError):  # before it
        model.loss_and_gradient(bad, LABELS)
    assert torch.equal(model.loss_and_gradient(TOKENS, LABELS)[1], due)


@pytest.mark.usefixtures("length")
def test_devices_in_turn_get_what_models_of_their_own_would_give():
    own, shared = [FlatModel(odd_model(seed)) for seed in (1, 2)], keeping(odd_model(0))
    states = [(model.parameters.clone(), model.buffers.clone()) for model in own]
    for turn in range(3):
        for model, (x, buffers) in zip(own, states, strict=True):
            before = x.clone()
            (shared.use_ if turn < 2 else shared.load_)(x, buffers)
            loss, gradient = shared.loss_and_gradient(TOKENS, LABELS)
            assert (loss, *gradient.tolist()) == step_of(model)
            assert torch.equal(x, before)  # statistics too
            trained = model.num_trainable
            assert torch.equal(shared.parameters[trained:], model.parameters[trained:])
            assert torch.equal(shared.buffers, model.buffers)
            x.copy_(model.parameters)
            x[:trained] -= 0.1 * gradient[:trained]
            model.parameters[:trained] = x[:trained]
            buffers.copy_(shared.buffers)


def step_of(model):
    loss, gradient = model.loss_and_gradient(TOKENS, LABELS)
    return loss, *gradient.tolist()


def is_in(weight, vector):
    first = vector.data_ptr()
    return first <= weight.data_ptr() < first + vector.nbytes


def test_long_vectors_are_used_where_they_are_in_the_next_step_alone(monkeypatch):
    monkeypatch.setattr(flat_model, "_LONG", 1)
    model = keeping(odd_model(0))
    x, weight = model.parameters.clone(), model.model.square.weight
    places = []
    model.model.square.register_forward_pre_hook(lambda *_: places.append(is_in(weight, x)))
    model.use_(x, model.buffers)
    model.loss_and_gradient(TOKENS, LABELS)
    assert places == [True] * len(places) != []
    assert is_in(weight, model.parameters)
    model.use_(x, model.buffers)
    with pytest.raises(IndexError):
        model.loss_and_gradient(torch.tensor([9, 9, 9, 9]), LABELS)
    assert is_in(weight, model.parameters)


def test_other_models_copy_what_they_use(monkeypatch):
    monkeypatch.setattr(flat_model, "_LONG", 1)
    model = FlatModel(odd_model(0))
    model.use_(model.parameters.clone(), model.buffers)
    assert is_in(model.model.square.weight, model.parameters)


@pytest.mark.usefixtures("length")
def test_a_model_that_nobody_holds_is_freed():
    model = FlatModel(odd_model(0))
    model.loss_and_gradient(TOKENS, LABELS)
    held = weakref.ref(model.parameters)
    del model
    gc.collect()
    assert held() is None


def test_a_copy_is_refused():
    with pytest.raises(TypeError, match="can't be copied"):
        copy.deepcopy(FlatModel(odd_model(0)))
