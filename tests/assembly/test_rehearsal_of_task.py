"""What the trial of a task of one's own says, and what it leaves unsaid."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgesim.assembly.rehearsal.rehearsal_of_task import rehearse_task
from edgesim.learning.flat_model import FlatModel
from edgesim.models.dropout import SeededDropout


class Plain:
    """As the classification of the catalog; `sign` and `shift` are of what it reports."""

    metrics: ClassVar = {}
    sign, shift = 1, 0.0

    def loss(self, outputs, targets):
        return functional.cross_entropy(outputs, targets) - self.shift

    def sums(self, outputs, targets):
        losses = functional.cross_entropy(outputs, targets, reduction="none") - self.shift
        return {"loss": self.sign * float(losses.sum())}

    def summary(self, means):
        return means


class Reversed(Plain):
    sign = -1


class Guess(Plain):
    """Less the loss of a guess: single losses have either sign."""

    sign, shift = 1, 1.4


class Weighted(Guess):
    """It reports the same with weights, so that near 0 the sign may be another."""

    def sums(self, outputs, targets):
        losses = functional.cross_entropy(outputs, targets, reduction="none") - self.shift
        return {"loss": float((losses * torch.tensor([1.0, 1.0, 1.0, 3.0])[targets]).sum())}


class Bfloat16(nn.Module):
    def forward(self, x):
        return x.bfloat16()


def told(task, *layers):
    torch.manual_seed(0)
    flat = FlatModel(nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 4)))
    return of_flat(task, flat)


def of_flat(task, flat):
    torch.manual_seed(0)
    return rehearse_task(task, flat, torch.randn(4, 6), torch.tensor([0, 1, 2, 3]))


def test_a_model_with_dropout_has_masks_of_a_known_seed():
    assert told(Plain, SeededDropout(0.5)) == ()


class Doubled(nn.Module):
    """Outputs of an evaluation are far from those of training, as of deep nets with batch norms."""

    def forward(self, x):
        return x if self.training else 1000 * x


def test_loss_and_reported_loss_are_compared_for_the_same_outputs():
    torch.manual_seed(0)
    flat = FlatModel(nn.Sequential(nn.Linear(6, 4), Doubled()))
    assert of_flat(Plain, flat) == ()
    (said,) = of_flat(Reversed, flat)
    assert "training goes by the first, evaluations report the second" in said


class Fixed(nn.Module):
    """Outputs of which the losses are about 1.4, two above and two below."""

    def __init__(self):
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        outputs = torch.diag(torch.tensor([0.3, -0.3, 0.2, -0.15]))
        return outputs + self.zero


@pytest.mark.parametrize(("task", "num_told"), [(Guess, 0), (Weighted, 0), (Reversed, 1)])
def test_losses_of_either_sign_that_cancel_say_nothing(task, num_told):
    assert len(of_flat(task, FlatModel(Fixed()))) == num_told


def test_sums_of_outputs_of_few_bits_are_sums():
    torch.manual_seed(0)
    flat = FlatModel(nn.Sequential(nn.Linear(6, 4), Bfloat16()))
    assert of_flat(Plain, flat) == ()
