"""A model that was trained in 8 bits, in layers that compute in fp32 with the same values."""

from __future__ import annotations

import torch
from torch import nn

from edgesim.models.range_norms import RangeEvoNorm
from edgesim.quant.norms import QuantizedRangeBatchNorm, QuantizedRangeEvoNorm
from edgesim.scenario.schema import Scenario


def in_full_precision(scenario: Scenario) -> Scenario:
    """A scenario with the same model in fp32: its norm and gate are those of 8 bits.

    It begins with no values of a file, which may be those of 8-bit layers.
    """
    section = scenario.model
    changed = section.model_dump() | {"precision": "fp32", "quantization": None, "start_from": None}
    if isinstance(section.name, str):  # a model of one's own has norms of its own
        changed |= {"norm": section.norm_used, "gate": section.gate_used}
    return scenario.model_copy(update={"model": type(section)(**changed | {"name": section.name})})


@torch.no_grad()
def with_values(source: nn.Module, target: nn.Module) -> nn.Module:
    """A module in fp32 with the values of the same module in 8 bits.

    Ranges of activations have no counterpart. A Range BatchNorm that stands for a batch norm
    becomes one with the same output: its running scale is 1 / sqrt(variance + epsilon). A Range
    EvoNorm that stands for EvoNorm-S0, or for one with another gate, stays what it is.

    Args:
        source: with 8-bit layers.
        target: as its constructor gives it; it is changed.

    Raises:
        KeyError: a tensor of the target has no counterpart; the key is its name.
    """
    made: dict[nn.Module, nn.Module] = {}
    for name, layer in source.named_modules(remove_duplicate=False):
        if isinstance(layer, QuantizedRangeEvoNorm):
            if layer not in made:
                channels, groups = len(layer.gamma), layer.groups
                made[layer] = RangeEvoNorm(channels, groups=groups, gate="hard_sigmoid")
            target.set_submodule(name, made[layer])
    tensors = (
        *source.named_parameters(remove_duplicate=False),
        *source.named_buffers(remove_duplicate=False),
    )
    values, layers = dict(tensors), dict(source.named_modules(remove_duplicate=False))
    for name, module in target.named_modules():
        was = layers.get(name)
        if isinstance(was, QuantizedRangeBatchNorm) and isinstance(
            module, nn.BatchNorm1d | nn.BatchNorm2d
        ):
            assert module.running_mean is not None, "others stay in fp32"
            assert module.running_var is not None
            module.weight.copy_(was.gamma)
            module.bias.copy_(was.beta)
            module.running_mean.copy_(was.running_mean)
            module.running_var.copy_(was.running_scale**-2 - module.eps)
            continue
        for own in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
            for key, tensor in own:
                tensor.copy_(values[f"{name}.{key}" if name else key])
    return target
