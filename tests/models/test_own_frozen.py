"""Layers of one's own models that are not trained: devices keep them, and nobody sends them."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from cost_models import int8
from small_fleets import train
from torch import nn
from torch.utils.checkpoint import checkpoint

import edgesim
from edgesim.costs.metered_model import MeteredModel
from edgesim.learning.flat_model import FlatModel
from edgesim.models.catalog import full_precision
from edgesim.models.errors import ModelError
from edgesim.models.own import OwnModelKind, build_own_model

SHAPE = (6,)
LAYERS = {"fp32": full_precision("evonorm_s0"), "int8": int8(norm="range_batch")}


class Backbone(nn.Module):
    """Two frozen layers and a head."""

    def __init__(self, *, no_grad=False, named=False):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
        for layer in (self.first, self.second):
            layer.requires_grad_(requires_grad=False)
        self.head, self.no_grad, self.named = nn.Linear(8, 3), no_grad, named

    def forward(self, x):
        with torch.set_grad_enabled(not self.no_grad):
            x = self.second(self.first(x).relu()).relu()
        return self.head(input=x) if self.named else self.head(x)


class Tied(nn.Module):
    """A frozen weight that two layers use."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.first.requires_grad_(requires_grad=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


class Statistic(nn.Module):
    """A parameter without a gradient that the forward pass changes: devices mix it."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(6), requires_grad=False)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        if self.training:
            self.mean.data.lerp_(x.detach().mean(0), 0.1)
        return self.head(x - self.mean)


def built(make, precision="fp32"):
    kind = OwnModelKind(name="mine", make=lambda shape, outputs: make())
    generator = torch.Generator().manual_seed(0)
    model = build_own_model(
        kind,
        input_shape=SHAPE,
        num_classes=3,
        layers=LAYERS[precision],
        seed=1,
        example=torch.randn(2, *SHAPE, generator=generator),
    )
    return FlatModel(model, around_step=model.around_step)


class Target(nn.Module):
    """A network that follows the trained one by moving averages, and begins as its copy."""

    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8))
        self.target = deepcopy(self.online).requires_grad_(requires_grad=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        if self.training:
            pairs = zip(self.target.parameters(), self.online.parameters(), strict=True)
            for kept, trained in pairs:
                kept.data.lerp_(trained.data, 0.01)
        return self.head(self.online(x) - self.target(x))


@pytest.mark.parametrize("precision", LAYERS)
def test_only_what_is_trained_is_in_the_vector(precision):
    flat = built(Backbone, precision)
    assert flat.layout.names == ("inner.head.weight", "inner.head.bias")
    inner = flat.model.inner
    assert len(list(inner.first.parameters())) == 2, "a part may look at its own"
    assert torch.equal(inner.first.weight, flat.model.make_plain().first.weight)


def test_a_frozen_weight_of_two_layers_stays_one_weight():
    flat = built(Tied)
    assert flat.model.inner.first.weight is flat.model.inner.second.weight
    assert flat.layout.names == ("inner.second.bias", "inner.head.weight", "inner.head.bias")


def test_a_network_that_follows_another_is_a_statistic_though_it_begins_as_its_copy():
    flat = built(Target)
    names = [name for name in flat.layout.names if ".target." in name]
    assert len(names) == 4
    assert flat.num_trainable == flat.layout.numel - (6 * 8 + 8 + 8 + 8)


class Late(nn.Module):
    """A frozen parameter that changes from the third step on."""

    def __init__(self):
        super().__init__()
        self.steps, self.kept = 0, nn.Parameter(torch.zeros(6), requires_grad=False)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        self.steps += self.training
        if self.steps > 2:
            self.kept.add_(1)
        return self.head(x + self.kept)


def test_a_frozen_parameter_that_changes_later_is_told():
    flat, x = built(Late), torch.ones(4, *SHAPE)
    targets = torch.arange(4) % 3
    flat.loss_and_gradient(x, targets)
    flat.loss_and_gradient(x, targets)
    with pytest.raises(
        ModelError, match="a step changed kept, a parameter without a gradient, but"
    ):
        flat.loss_and_gradient(x, targets)


def test_statistics_stay_in_the_vector_behind_what_is_trained():
    flat = built(Statistic)
    assert flat.layout.names[-1] == "inner.mean"
    assert flat.num_trainable == flat.layout.numel - 6


@pytest.mark.parametrize("precision", LAYERS)
@pytest.mark.parametrize("no_grad", [False, True])
def test_work_has_no_gradients_of_layers_that_are_not_trained(precision, no_grad):
    flat = built(lambda: Backbone(no_grad=no_grad), precision)
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(2))
    _, _, work = MeteredModel(flat).loss_and_gradient(x, torch.arange(4) % 3)
    forward = 4 * (6 * 8 + 8 * 8 + 8 * 3)
    assert work.macs == forward + 4 * 8 * 3, "and the weights of the head"


def test_layers_may_be_called_by_the_names_of_their_arguments():
    flat = built(lambda: Backbone(named=True))
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(2))
    _, _, work = MeteredModel(flat).loss_and_gradient(x, torch.arange(4) % 3)
    assert work.macs == 4 * (6 * 8 + 8 * 8 + 2 * 8 * 3)


MODEL = """
import torch
from torch import nn

def net(input_shape, num_classes):
    size = input_shape[0] * input_shape[1] * input_shape[2]
    frozen = nn.Linear(size, 16)
    frozen.requires_grad_(False)
    return nn.Sequential(nn.Flatten(), frozen, nn.ReLU(), nn.Linear(16, num_classes))
"""


@pytest.mark.parametrize(
    "compressor", ["{kind: random_k, keep: 0.2}", "{kind: qsgd, bits: 4, biased: true}"]
)
def test_lossy_gossip_leaves_frozen_layers_as_they_were(tmp_path, compressor):
    (tmp_path / "mine.py").write_text(MODEL)
    settings = (
        f"model={{name: '{tmp_path}/mine.py:net'}}",
        f"gossip={{algorithm: choco, averaging_rate: 0.1, compressor: {compressor}}}",
    )
    run = edgesim.load_run(train(tmp_path, "run", *settings, inline=True).path)
    assert run.summary["parameters"] == len(run.models[0].x) == 16 * 10 + 10


class Checkpointed(nn.Module):
    """A part that is computed again in the backward pass."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.use_reentrant = use_reentrant

    def part(self, x):
        return self.second(x).relu() @ torch.eye(8)

    def forward(self, x):
        x = checkpoint(self.part, self.first(x), use_reentrant=self.use_reentrant)
        return self.head(x)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_part_that_is_computed_again_counts_one_forward_pass_more(use_reentrant):
    flat = built(lambda: Checkpointed(use_reentrant))
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(2))
    _, _, work = MeteredModel(flat).loss_and_gradient(x, torch.arange(4) % 3)
    square = 4 * 8 * 8
    plain = 4 * (2 * 6 * 8 + 3 * 8 * 3) + 3 * square + 2 * square
    assert plain + square <= work.macs <= plain + 2 * square, "torch may stop before the last part"
