"""Initial parameters, all drawn from one explicit generator.

Source: reference.md, section 2, last paragraph: full precision.

Models are constructed without storage, so that torch's constructors draw nothing from its global
generator, and are then filled here, module by module in the order of `modules()`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import nn
from torch.nn import init

from edgesim.models.norms import Norm
from edgesim.quant.layers import InputQuantizer
from edgesim.quant.norm_parameters import GatedNorm, NormByRange


def construct(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """Build a model in CPU memory and initialise it; touches no global generator.

    Args:
        make: constructs the model.
        generator: on the CPU; the parameters depend on its state alone.
    """
    model = outline(make)
    _allocate_(model)
    initialize_(model, generator)
    return model


def outline(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with shapes but no storage and no values, on torch's meta device."""
    with torch.device("meta"):
        return make()


@torch.no_grad()
def initialize_(model: nn.Module, generator: torch.Generator) -> None:
    """Give every parameter and buffer its initial value.

    Convolutions: N(0, 2 / (k^2 C_out)), biases 0 (docs/reference.md leaves the biases open). Linear
    layers: torch's default, uniform within 1 / sqrt(fan_in). Norms: scale 1, shift 0, EvoNorm's
    slope 1.

    Raises:
        TypeError: a module with parameters of its own that has no rule here.
    """
    for module in model.modules():
        match module:
            case nn.Conv2d():
                _initialize_conv_(module, generator)
            case nn.Linear():
                _initialize_linear_(module, generator)
            case GatedNorm() | NormByRange() | nn.GroupNorm() | nn.BatchNorm2d() | Norm():
                module.reset_parameters()  # constants and, for batch norms, fresh statistics
            case InputQuantizer():
                module.reset_ranges()
            case _:
                if any(True for _ in module.parameters(recurse=False)):
                    raise TypeError(f"no initialisation rule for {type(module).__name__}")


def _allocate_(model: nn.Module) -> None:
    """Allocate uninitialised storage; torch's `to_empty` would import a compiler."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            empty = nn.Parameter(torch.empty(parameter.shape), parameter.requires_grad)
            module.register_parameter(name, empty)
        for name, buffer in module.named_buffers(recurse=False):
            module.register_buffer(name, torch.empty(buffer.shape, dtype=buffer.dtype))


def _initialize_conv_(conv: nn.Conv2d, generator: torch.Generator) -> None:
    height, width = conv.kernel_size
    init.normal_(conv.weight, 0.0, sqrt(2 / (height * width * conv.out_channels)), generator)
    if conv.bias is not None:
        init.zeros_(conv.bias)


def _initialize_linear_(linear: nn.Linear, generator: torch.Generator) -> None:
    bound = 1 / sqrt(linear.in_features)  # = kaiming_uniform with a = sqrt(5)
    init.uniform_(linear.weight, -bound, bound, generator)
    init.uniform_(linear.bias, -bound, bound, generator)
