"""A model of one's own with parameters that no gradient reaches is told of before a run."""

from __future__ import annotations

import pytest
import torch
from small_fleets import prepared
from torch import nn

from edgesim.assembly.parts.model_gradients import notices_of_gradients
from edgesim.learning.flat_model import FlatModel

MODEL = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Own(nn.Module):
    def __init__(self, input_shape, num_classes, way):
        super().__init__()
        self.c, self.a = nn.Conv2d(input_shape[0], 4, 3), nn.Linear(4, num_classes)
        self.way = way
        if way == "frozen":
            self.c.requires_grad_(False)
        if way in ("zero head", "own round", "checkpoint and zero head"):
            nn.init.zeros_(self.a.weight)
        if way == "dead":
            nn.init.constant_(self.c.bias, -100)

    def forward(self, x):
        if self.way == "unused":
            return self.a(x.flatten(2)[:, :1, :4].flatten(1))
        if self.way == "skipped" and torch.rand(()) < 0.5:
            return self.a(x.new_ones(len(x), 4))
        if self.way.startswith("checkpoint"):
            features = checkpoint(self.c, x.requires_grad_(), use_reentrant=True)
        else:
            features = self.c(x)
        ways = {
            "detached": torch.Tensor.detach,
            "round": torch.round,
            "sign": torch.sign,
            "dead": torch.relu,
            "own round": Round.apply,
            "straight-through": lambda f: f + (f.round() - f).detach(),
        }
        return self.a(ways.get(self.way, torch.tanh)(features).mean((2, 3)))
"""


def told(folder, way):
    (folder / "model.py").write_text(MODEL)
    name = folder / "model.py"
    return prepared(folder, f"model={{name: {name}:Own, options: {{way: {way}}}}}").own_notices


@pytest.mark.parametrize("way", ["unused", "detached", "round", "sign"])
def test_parameters_that_no_gradient_reaches_are_named_with_the_remedy(tmp_path, way):
    (notice,) = told(tmp_path, way)
    assert notice.startswith("model.name: ")
    assert ":Own: no gradient reaches c.weight, c.bias (" in notice
    assert "requires_grad_(False)" in notice
    assert "\n" not in notice


@pytest.mark.parametrize(
    "way",
    [
        *("tanh", "frozen", "zero head", "dead", "skipped", "checkpoint", "straight-through"),
        *("own round", "checkpoint and zero head"),
    ],
)
def test_nothing_is_said_of_gradients_that_a_trial_alone_may_lack(tmp_path, way):
    assert told(tmp_path, way) == ()


class Routed(nn.Module):
    """Token 45 leads to the second layer."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 3)
        self.one, self.two = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        way = self.two if (x == 45).any() else self.one
        return way(self.tokens(x).mean(1))


def test_nothing_is_said_of_layers_that_depend_on_tokens():
    flat = FlatModel(Routed())
    tokens = torch.arange(8).reshape(2, 4)
    _, gradient = flat.loss_and_gradient(tokens, torch.tensor([0, 1]))
    assert notices_of_gradients("Routed", flat, tokens, gradient) == ()


class Particular(nn.Module):
    """Fails on most inputs."""

    def __init__(self):
        super().__init__()
        self.unused, self.used = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        if x.any():
            raise ValueError("takes zeros alone")
        return self.used(x)


def test_nothing_is_said_of_a_model_that_fails_on_the_inputs_of_a_trial():
    flat, zeros = FlatModel(Particular()), torch.zeros(2, 3)
    _, gradient = flat.loss_and_gradient(zeros, torch.tensor([0, 1]))
    assert notices_of_gradients("Particular", flat, zeros, gradient) == ()
