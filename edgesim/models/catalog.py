"""The models by the names of scenarios and `edgesim list`, and their construction."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Literal

import torch
from torch import nn

from edgesim.models.errors import ModelError
from edgesim.models.initialization import construct, outline
from edgesim.models.kind import FIXED_SIZE, ImageShape, ModelKind, ModelSize
from edgesim.models.layers import FullPrecision, Layers
from edgesim.models.norms import NORMS
from edgesim.quant.arithmetic import Gate
from edgesim.quant.layers import name_layers_
from edgesim.scenario import catalog

Initialization = Literal["full_precision", "low_precision"]

MODELS: Mapping[str, ModelKind] = catalog.MODELS


def build_model(
    name: str,
    *,
    image_shape: ImageShape,
    num_classes: int,
    layers: Layers,
    generator: torch.Generator,
    initialization: Initialization = "full_precision",
    size: ModelSize = FIXED_SIZE,
) -> nn.Module:
    """An initialised model with fp32 parameters, on the CPU, in training mode.

    Args:
        name: a key of `MODELS`.
        image_shape: channels, height and width of the images.
        num_classes: number of logits.
        layers: its arithmetic and its norm.
        generator: the same state gives the same bits; no other randomness is used.
        initialization: one of the two initialisations of the reference code.
        size: of a model that has no fixed one.

    Raises:
        ModelError: as `check_model` does, or there are no classes.
    """
    if num_classes < 1:
        raise ModelError(f"a model needs at least one class, got {num_classes}")
    kind = _kind_for(name, image_shape, layers)
    model = construct(lambda: kind.make(layers, image_shape, num_classes, size), generator)
    if initialization == "low_precision" and kind.initialize_low_precision_ is not None:
        kind.initialize_low_precision_(model, generator)
    name_layers_(model)
    return model


def check_model(
    name: str,
    image_shape: ImageShape,
    layers: Layers,
    size: ModelSize = FIXED_SIZE,
    *,
    can_resize: bool = True,
) -> None:
    """Check that a model can be built and trained, without allocating it.

    Args:
        name: a key of `MODELS`.
        image_shape: channels, height and width of the images.
        layers: its arithmetic and its norm.
        size: of a model that has no fixed one.
        can_resize: whether `data.image_size` may be set, for messages.

    Raises:
        ModelError: no such model, an image too small for the model, channels that don't fit
            the norm's groups, or a batch norm whose batch has a single value per channel.
    """
    kind = _kind_for(name, image_shape, layers, can_resize=can_resize)
    outline(lambda: kind.make(layers, image_shape, 1, size))


def _kind_for(
    name: str, image_shape: ImageShape, layers: Layers, *, can_resize: bool = True
) -> ModelKind:
    """The model of a name, if it takes images of this shape.

    Raises:
        ModelError: see `check_model`.
    """
    if name not in MODELS:
        raise ModelError(f"no model is named {name!r}; there are {', '.join(MODELS)}")
    kind, (channels, height, width) = MODELS[name], image_shape
    if channels < 1:
        raise ModelError(f"images need at least one channel, got {channels}")
    if min(height, width) < kind.min_side:
        raise ModelError(
            f"{name} needs images of at least {kind.min_side}x{kind.min_side} pixels, these are "
            f"{height}x{width}; {'set data.image_size, or ' if can_resize else ''}choose model "
            "small_cnn or resnet20"
        )
    last_map = ceil(height / kind.last_norm_stride), ceil(width / kind.last_norm_stride)
    if NORMS[layers.norm].is_over_batch and last_map == (1, 1):
        raise ModelError(
            f"{name} shrinks images of {height}x{width} to one pixel, which a batch norm can't "
            "take from a batch of one sample; use larger images"
            f"{' (data.image_size)' if can_resize else ''} or norm: evonorm_s0"
        )
    return kind


def full_precision(norm: str, gate: Gate = "sigmoid", *, conv_bias: bool = True) -> FullPrecision:
    """Layers in fp32.

    Args:
        norm: a key of `NORMS`.
        gate: of Range EvoNorm.
        conv_bias: whether convolutions have biases where the architecture has them.

    Raises:
        ModelError: no such norm.
    """
    return FullPrecision(norm_named(norm), gate, conv_bias)


def norm_named(name: str) -> str:
    """A key of `NORMS`.

    Raises:
        ModelError: the name is none.
    """
    if name not in NORMS:
        raise ModelError(f"no norm is named {name!r}; there are {', '.join(NORMS)}")
    return name
