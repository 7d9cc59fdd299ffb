"""The layers of a training step, found by a forward pass that computes shapes alone.

The model is on torch's meta device, without storage. The forward methods of its layers are
replaced: each returns an empty meta tensor of the right shape. Torch's own meta operations are not
used, since loading them takes a second.
"""

from __future__ import annotations

from functools import partial
from math import ceil, floor

import torch
from torch import Tensor, nn

from edgesim.costs.describe import is_layer, modules_to_hook
from edgesim.costs.layer import Layer
from edgesim.costs.work_meter import hook
from edgesim.models.classifier import ImageClassifier
from edgesim.quant.compact_max_pool import CompactMaxPool2d


def layers_of_step(model: nn.Module, images_shape: tuple[int, ...]) -> tuple[Layer, ...]:
    """Layers of a step, in the order of the forward pass.

    Args:
        model: an outline, on the meta device; its layers can't be run afterwards.
        images_shape: of the batch.

    Raises:
        CostError: the model has a module whose work is unknown.
    """
    layers: list[Layer] = []
    for hooked in modules_to_hook(model):
        hook(hooked, layers)
    for module in model.modules():
        if isinstance(module, ImageClassifier):
            module.forward = partial(_classify, module)  # type: ignore[method-assign]
        elif is_layer(module):
            module.forward = partial(_output_of, module)
    model(torch.empty(images_shape, device="meta"))
    return tuple(layers)


def _classify(model: ImageClassifier, images_NCHW: Tensor) -> Tensor:
    features_NFHW: Tensor = model.features(images_NCHW)
    logits: Tensor = model.head(_empty(features_NFHW, features_NFHW.shape[:2]))
    return logits


def _output_of(layer: nn.Module, x: Tensor, *_: Tensor) -> Tensor:
    """An output of the right shape: that of the (first) input, except for the kinds listed here."""
    N, C, *sides = x.shape
    match layer:
        case nn.Conv2d():
            p, k, s = int(layer.padding[0]), layer.kernel_size[0], layer.stride[0]
            shape = (N, layer.out_channels, *((side + 2 * p - k) // s + 1 for side in sides))
        case nn.Linear():
            shape = (N, layer.out_features)
        case CompactMaxPool2d():
            p, k, s = layer.padding, layer.kernel_size, layer.stride
            rounded = ceil if layer.ceil_mode else floor
            shape = (N, C, *(rounded((side + 2 * p - k) / s) + 1 for side in sides))
        case _:
            shape = tuple(x.shape)
    return _empty(x, shape, is_trained=any(p.requires_grad for p in layer.parameters()))


def _empty(x: Tensor, shape: tuple[int, ...], *, is_trained: bool = False) -> Tensor:
    """An empty tensor that depends on x, and on parameters if `is_trained`."""
    return x.new_empty(shape).requires_grad_(x.requires_grad or is_trained)
