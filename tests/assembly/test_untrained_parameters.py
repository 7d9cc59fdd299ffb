"""A model of one's own with parameters that no gradient reaches is told of before a run."""

from __future__ import annotations

import pytest
from small_fleets import prepared

MODEL = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Own(nn.Module):
    def __init__(self, input_shape, num_classes, way):
        super().__init__()
        self.c, self.a = nn.Conv2d(input_shape[0], 4, 3), nn.Linear(4, num_classes)
        self.way = way
        if way == "frozen":
            self.c.requires_grad_(False)
        if way == "zero head":
            nn.init.zeros_(self.a.weight)
        if way == "dead":
            nn.init.constant_(self.c.bias, -100)

    def forward(self, x):
        if self.way == "unused":
            return self.a(x.flatten(2)[:, :1, :4].flatten(1))
        if self.way == "skipped" and torch.rand(()) < 0.5:
            return self.a(x.new_ones(len(x), 4))
        if self.way == "checkpoint":
            features = checkpoint(self.c, x.requires_grad_(), use_reentrant=True)
        else:
            features = self.c(x)
        ways = {
            "detached": torch.Tensor.detach,
            "round": torch.round,
            "sign": torch.sign,
            "dead": torch.relu,
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
    "way", ["tanh", "frozen", "zero head", "dead", "skipped", "checkpoint", "straight-through"]
)
def test_nothing_is_said_of_gradients_that_a_trial_alone_may_lack(tmp_path, way):
    assert told(tmp_path, way) == ()
