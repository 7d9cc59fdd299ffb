"""What a flat model hands to functions that visit its modules."""

from __future__ import annotations

import torch
from torch import nn

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
