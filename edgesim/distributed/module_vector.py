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
        self._sizes = [p.numel() for p in self.parameters]
        self._trainable_sizes = [p.numel() for p in self.parameters if p.requires_grad]
        self._places: list[tuple[torch.device, int, tuple[int, ...]]] = []  # when viewed
        self._views: list[Tensor] | None = None

    @torch.no_grad()
    def read(self) -> Tensor:
        """A new vector of the module's parameters."""
        views = self._flat_views()
        if views is None:
            return torch.cat([p.detach().reshape(-1).cpu() for p in self.parameters])
        return torch.cat(views).cpu()

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Copy a vector, or one of the trainable entries alone, into the module."""
        sizes = self._sizes if len(vector) == self.layout.numel else self._trainable_sizes
        parts, views = list(vector.split(sizes)), self._flat_views()
        if views is not None:
            torch._foreach_copy_(views[: len(sizes)], parts)
            return
        for parameter, part in zip(self.parameters, parts, strict=False):
            parameter.copy_(part.view(parameter.shape))

    def _flat_views(self) -> list[Tensor] | None:
        """The parameters as flat tensors that share their memory; None: there are no such.

        They are made once, and anew when a caller has given a parameter other memory, as
        `model.to(device)` does.
        """
        places = [(p.device, p.data_ptr(), p.stride()) for p in self.parameters]
        if places != self._places:
            on_one_device = len({p.device for p in self.parameters}) == 1
            whole = on_one_device and all(p.is_contiguous() for p in self.parameters)
            self._views = [p.detach().view(-1) for p in self.parameters] if whole else None
            self._places = places
        return self._views
