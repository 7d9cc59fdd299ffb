"""The parameters of a module as one flat vector on the CPU, copied out of it and into it.

The module keeps its tensors, on any device: an optimizer and the caller may hold references to
them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgesim.distributed.errors import GossipError
from edgesim.learning.parameters import ParameterLayout, trainable_first


class ModuleVector:
    """Copies between the parameters of a module and vectors of shape (D,), float32.

    Args:
        model: the module, whose parameters are all float32; its buffers have no part in gossip.

    Attributes:
        layout: of the vectors: the same as in the emulator.
        num_trainable: entries with a gradient, at the start of the vectors.

    Raises:
        GossipError: the module has no parameters, or some of another type.
    """

    def __init__(self, model: nn.Module) -> None:
        named = trainable_first(model)
        if not named:
            raise GossipError("the model has no parameters; there is nothing to gossip about")
        for name, parameter in named:
            if parameter.dtype != torch.float32:
                raise GossipError(
                    f"parameter {name} of the model is {parameter.dtype}; gossip works on "
                    "torch.float32: keep the parameters in it, and compute in another type with "
                    "torch.autocast"
                )
        self.layout = ParameterLayout.of(named)
        self.num_trainable = sum(p.numel() for _, p in named if p.requires_grad)
        self.parameters = [parameter for _, parameter in named]

    @torch.no_grad()
    def read(self) -> Tensor:
        """A new vector of the module's parameters."""
        return torch.cat([p.detach().reshape(-1).cpu() for p in self.parameters])

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Copy a vector, or one of the trainable entries alone, into the module."""
        start = 0
        for parameter in self.parameters:
            if start == len(vector):
                break
            part = vector[start : start + parameter.numel()]
            parameter.copy_(part.view(parameter.shape))
            start += parameter.numel()
