"""The models by the names of scenarios and `edgesim list`, and their construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import nn

from edgesim.models.errors import ModelError
from edgesim.models.initialization import construct, outline
from edgesim.models.layers import FullPrecision, Layers
from edgesim.models.low_precision import (
    initialize_mobilenet_,
    initialize_resnet_,
    initialize_vgg_,
)
from edgesim.models.mobilenet import LARGE_IMAGE_SIDE, mobilenet_v2
from edgesim.models.norms import NORMS, Norm
from edgesim.models.resnet import resnet18, small_image_resnet
from edgesim.models.small_cnn import small_cnn
from edgesim.models.vgg import vgg11
from edgesim.quant.arithmetic import Gate
from edgesim.quant.layers import name_layers_

ImageShape = tuple[int, int, int]  # channels, height, width
Initialization = Literal["full_precision", "low_precision"]


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Size of a model whose catalog entry leaves it free.

    Attributes:
        depth: layers of a ResNet; None: 20.
        width: channels of its first stage; None: 16.
    """

    depth: int | None = None
    width: int | None = None

    @property
    def depth_used(self) -> int:
        """Layers."""
        return 20 if self.depth is None else self.depth

    @property
    def width_used(self) -> int:
        """Channels of the first stage."""
        return 16 if self.width is None else self.width


FIXED_SIZE = ModelSize()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKind:
    """Constructor of a model, and the images that it accepts.

    Attributes:
        description: one line for people; parameter counts are those for 3 channels, 10 classes
            and norm evonorm_s0 (reference.md, section 5).
        make: constructs it from layers, image shape, number of classes and size.
        min_side: least height and width in pixels.
        last_norm_stride: stride of the input of the last norm relative to the image.
        initialize_low_precision_: changes the initialisation to that of the reference code's
            low-precision model.
    """

    description: str
    make: Callable[[Layers, ImageShape, int, ModelSize], nn.Module]
    min_side: int
    last_norm_stride: int
    initialize_low_precision_: Callable[[nn.Module, torch.Generator], None]


MODELS: dict[str, ModelKind] = {
    "resnet20": ModelKind(
        description="ResNet-20 for small images: 273,258 parameters, 40.8 M MAC at 32x32",
        make=lambda layers, image, classes, _: small_image_resnet(layers, 20, image[0], classes),
        min_side=4,
        last_norm_stride=4,
        initialize_low_precision_=initialize_resnet_,
    ),
    "resnet54": ModelKind(
        description='the paper\'s "ResNet-54", in truth 50 layers: 760,458 parameters',
        make=lambda layers, image, classes, _: small_image_resnet(layers, 54, image[0], classes),
        min_side=4,
        last_norm_stride=4,
        initialize_low_precision_=initialize_resnet_,
    ),
    "resnet18": ModelKind(
        description="ResNet-18 for large images: 11,186,442 parameters",
        make=lambda layers, image, classes, _: resnet18(layers, image[0], classes),
        min_side=32,
        last_norm_stride=32,
        initialize_low_precision_=initialize_resnet_,
    ),
    "vgg11": ModelKind(
        description="VGG-11 with norms, dropout and a 512-wide head: 9,496,522 parameters",
        make=lambda layers, image, classes, _: vgg11(layers, image[0], classes),
        min_side=32,
        last_norm_stride=16,
        initialize_low_precision_=initialize_vgg_,
    ),
    "mobilenet_v2": ModelKind(
        description=f"MobileNetV2, layout for large images from {LARGE_IMAGE_SIDE} pixels: "
        "2,314,466 parameters below",
        make=lambda layers, image, classes, _: mobilenet_v2(
            layers, image[0], classes, large_images=_is_large(image)
        ),
        min_side=8,
        last_norm_stride=8,
        initialize_low_precision_=initialize_mobilenet_,
    ),
    "small_cnn": ModelKind(
        description="three convolutions: 24,458 parameters, 2.8 M MAC at 32x32",
        make=lambda layers, image, classes, _: small_cnn(layers, image[0], classes),
        min_side=4,
        last_norm_stride=4,
        initialize_low_precision_=initialize_resnet_,
    ),
    "resnet": ModelKind(
        description="ResNet of any depth and width, by default as resnet20: 273,258 parameters",
        make=lambda layers, image, classes, size: small_image_resnet(
            layers, size.depth_used, image[0], classes, size.width_used
        ),
        min_side=4,
        last_norm_stride=4,
        initialize_low_precision_=initialize_resnet_,
    ),
}


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
    check_model(name, image_shape, layers, size)
    kind = MODELS[name]
    model = construct(lambda: kind.make(layers, image_shape, num_classes, size), generator)
    if initialization == "low_precision":
        kind.initialize_low_precision_(model, generator)
    name_layers_(model)
    return model


def check_model(
    name: str, image_shape: ImageShape, layers: Layers, size: ModelSize = FIXED_SIZE
) -> None:
    """Check that a model can be built and trained, without allocating it.

    Raises:
        ModelError: no such model, an image too small for the model, channels that don't fit
            the norm's groups, or a batch norm whose batch has a single value per channel.
    """
    if name not in MODELS:
        raise ModelError(f"no model is named {name!r}; there are {', '.join(MODELS)}")
    kind, (channels, height, width) = MODELS[name], image_shape
    if channels < 1:
        raise ModelError(f"images need at least one channel, got {channels}")
    if min(height, width) < kind.min_side:
        raise ModelError(
            f"{name} needs images of at least {kind.min_side}x{kind.min_side} pixels, these are "
            f"{height}x{width}; set data.image_size, or choose model small_cnn or resnet20"
        )
    last_map = ceil(height / kind.last_norm_stride), ceil(width / kind.last_norm_stride)
    if layers.norm in ("batch", "range_batch") and last_map == (1, 1):
        raise ModelError(
            f"{name} shrinks images of {height}x{width} to one pixel, which a batch norm can't "
            "take from a batch of one sample; use larger images (data.image_size) or norm: "
            "evonorm_s0"
        )
    outline(lambda: kind.make(layers, image_shape, 1, size))


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


def norm_named(name: str) -> Norm:
    """A key of `NORMS` from text.

    Raises:
        ModelError: there is none.
    """
    for norm in NORMS:
        if norm == name:
            return norm
    raise ModelError(f"no norm is named {name!r}; there are {', '.join(NORMS)}")


def _is_large(image: ImageShape) -> bool:
    return min(image[1:]) >= LARGE_IMAGE_SIDE
