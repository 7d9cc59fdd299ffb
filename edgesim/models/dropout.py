"""Dropout whose masks come from a seed of the device's round, not from a global generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgesim.models.errors import ModelError
from edgesim.models.global_random import StepSeed
from edgesim.quant.backward_pass import in_backward_pass

_OTHER_STREAM = 0x9E3779B97F4A7C15  # odd, so that no two seeds become one


class SeededDropout(nn.Module):
    """Sets entries to zero with probability p in training and scales the others by 1 / (1 - p).

    Unbiased: the mean over masks is the input. Does nothing in evaluation.

    Args:
        p: in [0, 1).
        inplace: change the input itself, as `nn.Dropout` does.

    Raises:
        ValueError: p is out of range.
    """

    def __init__(self, p: float, *, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"the dropout probability is {p}; must be in [0, 1)")
        self.p, self.inplace = p, inplace
        self.generator: torch.Generator | None = None
        self.calls, self.before = 0, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """Masked activations, shape of the input.

        Raises:
            RuntimeError: in training, before `seed_dropout_`.
            ModelError: a backward pass computes again what called this layer several times.
        """
        if not self.training or self.p == 0:
            return x
        # Drawn on the CPU on every machine: the mask must not depend on where the model is.
        mask = (torch.rand(x.shape, generator=self._drawn_from()) >= self.p).to(x).div_(1 - self.p)
        return x.mul_(mask) if self.inplace else x * mask

    def _drawn_from(self) -> torch.Generator:
        """The generator of the next mask; in a backward pass, that of the mask of the forward pass.

        `torch.utils.checkpoint` computes a part of the forward pass again in the backward pass.
        """
        if self.generator is None:
            raise RuntimeError("dropout has no seed; call seed_dropout_ before each training step")
        if not in_backward_pass():
            self.calls, self.before = self.calls + 1, self.generator.get_state()
            return self.generator
        if self.calls != 1:
            raise ModelError(
                "torch.utils.checkpoint around a part that calls one nn.Dropout several times: "
                "give each call a layer of its own"
            )
        again = torch.Generator()
        again.set_state(self.before)
        return again

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"p={self.p}"


def dropout_layers(model: nn.Module) -> nn.ModuleList:
    """The modules of a model that `seed_dropout_` changes; often there are none."""
    return nn.ModuleList(m for m in model.modules() if isinstance(m, (SeededDropout, StepSeed)))


def seed_dropout_(model: nn.Module, seed: int) -> None:
    """Seed the dropout of a model: its layers draw their next masks from one stream, in order.

    A model from outside gets another seed for torch's global generator.

    Args:
        model: is changed only in its `SeededDropout` and `StepSeed` modules; may have none.
        seed: in [0, 2**63).
    """
    generator: torch.Generator | None = None
    for module in model.modules():
        if isinstance(module, SeededDropout):
            generator = generator or torch.Generator().manual_seed(seed)
            module.generator, module.calls = generator, 0
        elif isinstance(module, StepSeed):
            module.seed = (seed * _OTHER_STREAM) % 2**63
