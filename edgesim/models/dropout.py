"""Dropout whose masks come from a seed of the device's round, not from a global generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgesim.models.global_random import StepSeed


class SeededDropout(nn.Module):
    """Sets entries to zero with probability p in training and scales the others by 1 / (1 - p).

    Unbiased: the mean over masks is the input. Does nothing in evaluation.

    Args:
        p: in [0, 1).

    Raises:
        ValueError: p is out of range.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"the dropout probability is {p}; must be in [0, 1)")
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Masked activations, shape of the input.

        Raises:
            RuntimeError: in training, before `seed_dropout_`.
        """
        if not self.training or self.p == 0:
            return x
        if self.generator is None:
            raise RuntimeError("dropout has no seed; call seed_dropout_ before each training step")
        # Drawn on the CPU on every machine: the mask must not depend on where the model is.
        kept = torch.rand(x.shape, generator=self.generator) >= self.p
        return x * kept.to(x).div_(1 - self.p)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"p={self.p}"


def dropout_layers(model: nn.Module) -> nn.ModuleList:
    """The modules of a model that `seed_dropout_` changes; often there are none."""
    return nn.ModuleList(m for m in model.modules() if isinstance(m, (SeededDropout, StepSeed)))


def seed_dropout_(model: nn.Module, seed: int) -> None:
    """Seed the dropout of a model: its layers draw their next masks from one stream, in order.

    A model from outside gets the same seed for torch's global generator.

    Args:
        model: is changed only in its `SeededDropout` and `StepSeed` modules; may have none.
        seed: in [0, 2**63).
    """
    generator: torch.Generator | None = None
    for module in model.modules():
        if isinstance(module, SeededDropout):
            generator = generator or torch.Generator().manual_seed(seed)
            module.generator = generator
        elif isinstance(module, StepSeed):
            module.seed = seed
