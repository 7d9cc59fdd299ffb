"""Initialisation of low-precision models in the reference code, which differs from its others.

Source: reference.md, sections 2 and 9.13.

If fp32 and 8-bit models have different initial values, their accuracies are hard to compare. So
both initialisations can be used in both precisions. Each function changes only the values that
differ from the initialisation of full precision.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn
from torch.nn import init

from edgesim.quant.norm_parameters import GatedNorm, NormByRange

_NORMS = (GatedNorm, NormByRange, nn.BatchNorm2d, nn.GroupNorm)


@torch.no_grad()
def initialize_last_layer_(model: nn.Module, generator: torch.Generator) -> None:
    """The last linear layer N(0, 0.01) with bias 0."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    init.normal_(last.weight, 0.0, 0.01, generator)
    init.zeros_(last.bias)


@torch.no_grad()
def initialize_vgg_(model: nn.Module, generator: torch.Generator) -> None:
    """Scales of norms U(0, 1)."""
    for module in model.modules():
        if isinstance(module, _NORMS):
            init.uniform_(scale_of(module), 0.0, 1.0, generator)


@torch.no_grad()
def initialize_mobilenet_(model: nn.Module, generator: torch.Generator) -> None:
    """Scales of norms U(0, 1); convolutions as torch makes them, U within 1 / sqrt(fan_in)."""
    initialize_vgg_(model, generator)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            bound = 1 / sqrt(module.weight[0].numel())
            init.uniform_(module.weight, -bound, bound, generator)


def scale_of(norm: nn.Module) -> torch.Tensor:
    """Gamma, which torch's own norms call weight."""
    scale = norm.weight if isinstance(norm, nn.BatchNorm2d | nn.GroupNorm) else norm.gamma
    assert isinstance(scale, torch.Tensor)
    return scale
