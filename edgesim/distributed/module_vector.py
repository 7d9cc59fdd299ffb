"""The trained parameters of a module as one flat vector on the CPU, copied out and in.

The module keeps its tensors, on any device: an optimizer and the caller may hold references to
them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from edgesim.distributed.agreement import DIGEST_BYTES, digest_of
from edgesim.distributed.errors import GossipError
from edgesim.learning.parameters import ParameterLayout

# The optimizer of each parameter with gossip around it; gossip is over when the optimizer is gone.
_taken = WeakTensorKeyDictionary()


class ModuleVector:
    """Copies between the trained parameters of a module and vectors of shape (D,), float32.

    Args:
        model: the module. What has no gradient at the start, and its buffers, have no part.

    Attributes:
        layout: of the vectors: that of the emulator, where all parameters have a gradient.
        parameters: those in the vectors.

    Raises:
        GossipError: the module has no such parameters, some of another type or without values, or
            is wrapped for another kind of training.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = _unwrapped(model)
        self._at_start = dict(self._model.named_parameters())
        for name, parameter in self._at_start.items():
            _check_parameter(name, parameter)
        named = [(name, p) for name, p in self._at_start.items() if p.requires_grad]
        if not named:
            raise GossipError(
                "the model has no parameters with a gradient; there is nothing to gossip about"
            )
        self.layout = ParameterLayout.of(named)
        self.parameters = [parameter for _, parameter in named]
        self._own = set(map(id, self.parameters))
        self._sizes = [p.numel() for p in self.parameters]
        self._places: list[tuple[torch.device, int, tuple[int, ...]]] = []  # when viewed
        self._views: list[Tensor] | None = None
        self._owner: ref[Optimizer] | None = None

    def take(self, optimizer: Optimizer) -> None:
        """Mark the parameters as those of one gossip, until `release` or the optimizer's end."""
        self._owner = ref(optimizer)
        for parameter in self.parameters:
            _taken[parameter] = self._owner

    def release(self) -> None:
        """Let another gossip have the parameters."""
        for parameter in self.parameters:
            if _taken.get(parameter) is self._owner:  # else another gossip has it by now
                _taken.pop(parameter, None)

    def digests(self) -> tuple[bytes, bytes]:
        """Digest of all parameters' names, shapes and `requires_grad`; and one of their values."""
        forms = [(name, tuple(p.shape), p.requires_grad) for name, p in self._at_start.items()]
        values = blake2b(digest_size=DIGEST_BYTES)
        for parameter in self._at_start.values():
            flat = parameter.detach().cpu().contiguous().reshape(-1)
            values.update(flat.view(torch.uint8).numpy().data)
        return digest_of(*forms), values.digest()

    def check_tensors(self, optimizer: Optimizer) -> None:
        """Refuse parameters that were replaced, added, removed or unfrozen since the start.

        Gossip would go on with the tensors that it began with.
        """
        _refuse_first(self._replaced())
        _refuse_first(self._unfrozen())
        if others := self.num_others(optimizer):
            raise _changed(f"the optimizer has {others} parameters that gossip did not begin with")

    def _replaced(self) -> Iterator[str]:
        now = dict(self._model.named_parameters())
        for name, parameter in now.items():
            if parameter is not self._at_start.get(name):
                yield (
                    f"parameter {name} of the model is not the tensor that gossip began with (a "
                    "layer was replaced or added)"
                )
        for name in self._at_start.keys() - now.keys():
            yield f"parameter {name} is no longer in the model"

    def _unfrozen(self) -> Iterator[str]:
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and id(parameter) not in self._own:
                yield f"parameter {name} of the model had no gradient when gossip began"

    def num_others(self, optimizer: Optimizer) -> int:
        """Parameters of an optimizer that were not in the module at the start."""
        known = set(map(id, self._at_start.values()))
        return sum(id(p) not in known for group in optimizer.param_groups for p in group["params"])

    def first_difference(self, one: Tensor, other: Tensor) -> str:
        """Name of the first parameter in which two vectors differ."""
        pairs = zip(
            self.layout.names, one.split(self._sizes), other.split(self._sizes), strict=True
        )
        return next(name for name, a, b in pairs if not torch.equal(a, b))

    def state_with(self, vector: Tensor) -> dict[str, Any]:
        """State of the module as `state_dict` gives it, but with the parameters of a vector.

        Tensors are copies on the CPU.

        Raises:
            GossipError: the module has other parameters than at the start.
        """
        _refuse_first(self._replaced())
        with self._holding(vector):
            return {name: _copied(value) for name, value in self._model.state_dict().items()}

    @contextmanager
    def _holding(self, vector: Tensor) -> Iterator[None]:
        """The module holds a vector: what it saves may be made of its parameters in any way."""
        before = self.read()
        try:
            self._put(vector)
            yield
        finally:
            self._put(before)

    def _put(self, vector: Tensor) -> None:
        """Copy a vector into the module for a while, which autograd need not know of."""
        for parameter, part in zip(self.parameters, vector.split(self._sizes), strict=True):
            parameter.data.copy_(part.view(parameter.shape))

    @torch.no_grad()
    def read(self) -> Tensor:
        """A new vector of the module's parameters."""
        views = self._flat_views()
        if views is None:
            return torch.cat([p.detach().reshape(-1).cpu() for p in self.parameters])
        return torch.cat(views).cpu()

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Copy a vector into the module."""
        parts, views = list(vector.split(self._sizes)), self._flat_views()
        if views is not None:
            torch._foreach_copy_(views, parts)
            return
        for parameter, part in zip(self.parameters, parts, strict=True):
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


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module itself, with its own names of parameters, where torch.compile has wrapped it."""
    if not isinstance(model, nn.Module):
        raise GossipError(
            f"the model is a {type(model).__name__}; must be a torch.nn.Module: gossip_around "
            "takes model, optimizer and scenario, in this order"
        )
    if isinstance(model, DistributedDataParallel):
        raise GossipError(
            "the model is a DistributedDataParallel, which averages the gradients of all "
            "processes; give gossip_around its .module, and train that"
        )
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    """Refuse a parameter that gossip can't compare or average."""
    if is_lazy(parameter):
        raise GossipError(
            f"parameter {name} of the model has no shape yet (a lazy layer); call the model on "
            "one batch before gossip_around"
        )
    if parameter.is_meta:
        raise GossipError(
            f"parameter {name} of the model is on the meta device and has no values; move the "
            "model with to_empty and give it values before gossip_around"
        )
    if parameter.layout != torch.strided:
        raise GossipError(
            f"parameter {name} of the model is {parameter.layout}; gossip compares and averages "
            "dense ones: call to_dense(), or make it a buffer if it is not trained"
        )
    if not parameter.requires_grad:
        return
    if parameter.dtype != torch.float32:
        raise GossipError(
            f"parameter {name} of the model is {parameter.dtype}; gossip works on "
            "torch.float32: keep the parameters in it, and compute in another type with "
            "torch.autocast"
        )
    if not parameter.numel():
        raise GossipError(f"parameter {name} of the model has no entries; remove or freeze it")
    if not parameter.isfinite().all():
        raise GossipError(
            f"parameter {name} of the model is not finite at the start; look at how the model is "
            "made or loaded"
        )
    if _is_taken(parameter):
        raise GossipError(
            f"gossip is already around parameter {name} of the model; a model has one gossip, and "
            "one optimizer with all its parameters; to begin anew call remove() of the other first"
        )


def _is_taken(parameter: nn.Parameter) -> bool:
    """Whether there is an optimizer with gossip around a parameter."""
    if _owner_of(parameter) is None:
        return False
    gc.collect()  # a scheduler makes a cycle of its optimizer, to which nothing else may refer
    return _owner_of(parameter) is not None


def _owner_of(parameter: nn.Parameter) -> Optimizer | None:
    owner: ref[Optimizer] | None = _taken.get(parameter)
    return None if owner is None else owner()


def _refuse_first(problems: Iterator[str]) -> None:
    for problem in problems:
        raise _changed(problem)


def _changed(problem: str) -> GossipError:
    return GossipError(
        f"{problem}; to change the model call gossip.remove(), give all processes equal "
        "parameters, and call gossip_around again"
    )


def _copied(value: object) -> object:
    """A copy on the CPU; what is no tensor, such as the extra state of a module, as it is."""
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value
