"""A model whose steps take next to no time, and count as those of a model sixty times as heavy.

What faults do to a fleet does not depend on the model; one with a convolution, local statistics and
1,400 parameters has all that a checkpoint has to hold. Its work is multiplied, so that the clocks
of devices differ as they would with the small CNN.
"""

from __future__ import annotations

import torch
from torch import nn

from edgesim.costs.metered_model import MeteredModel
from edgesim.learning.flat_model import FlatModel
from edgesim.models.norms import BatchNormReLU

TIMES_HEAVIER = 60


class HeavyModel(MeteredModel):
    """A model whose steps are said to be more work than they are."""

    def loss_and_gradient(self, images_NCHW, labels_N):
        loss, gradient, work = super().loss_and_gradient(images_NCHW, labels_N)
        return loss, gradient, work * TIMES_HEAVIER


def tiny_model():
    """For grey images of 8x8 pixels and ten classes; always with the same initial values."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        BatchNormReLU(8),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 10),
    )
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
    return FlatModel(model)
