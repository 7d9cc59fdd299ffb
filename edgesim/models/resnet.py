"""Residual networks: the 6n+2 family for small images and ResNet-18 (arXiv 1512.03385).

Source: reference.md, section 5.

As in the reference code, a norm with its nonlinearity follows every convolution, also on the
shortcut, and nothing follows the sum of the branches. This holds for all norms.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import init

from edgesim.models.classifier import ImageClassifier
from edgesim.models.kind import ModelKind
from edgesim.models.layers import Layers
from edgesim.models.low_precision import initialize_last_layer_, scale_of


def small_image_resnet(
    layers: Layers, depth: int, in_channels: int, num_classes: int, width: int = 16
) -> ImageClassifier:
    """ResNet with three stages of n = (depth - 2) // 6 blocks, `width` channels in the first.

    The second and the third stage have twice and four times as many.

    The "ResNet-54" of docs/reference.md has depth 54; by the rounding of n it has 50 layers, as in
    the reference code.
    """
    blocks = (depth - 2) // 6
    stem = [layers.conv(in_channels, width, 3), layers.norm_act(width)]
    stages = _stages(layers, width, widths=(width, 2 * width, 4 * width), blocks=blocks)
    return ImageClassifier(nn.Sequential(*stem, *stages), layers.linear(4 * width, num_classes))


def resnet18(layers: Layers, in_channels: int, num_classes: int) -> ImageClassifier:
    """ResNet-18 with its stem for large images: a 7x7 convolution and pooling, stride 2 each."""
    stem = [
        layers.conv(in_channels, 64, 7, stride=2),
        layers.norm_act(64),
        layers.max_pool(3, stride=2, padding=1),
    ]
    stages = _stages(layers, 64, widths=(64, 128, 256, 512), blocks=2)
    return ImageClassifier(nn.Sequential(*stem, *stages), layers.linear(512, num_classes))


def _stages(
    layers: Layers, in_channels: int, *, widths: Sequence[int], blocks: int
) -> list[nn.Module]:
    """Stages of equal blocks; all but the first stage begin by halving the image."""
    stages: list[nn.Module] = []
    for stage, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            stages.append(BasicBlock(layers, in_channels, width, stride))
            in_channels = width
    return stages


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    forks = True

    def __init__(self, layers: Layers, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            layers.conv(in_channels, out_channels, 3, stride=stride),
            layers.norm_act(out_channels),
            layers.conv(out_channels, out_channels, 3),
            layers.norm_act(out_channels),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut.append(layers.conv(in_channels, out_channels, 1, stride=stride))
            self.shortcut.append(layers.norm_act(out_channels))
        self.sum = layers.residual_sum()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Shape (N, out_channels, H / stride, W / stride), sides rounded up."""
        y_NCHW: Tensor = self.sum(self.branch(x_NCHW), self.shortcut(x_NCHW))
        return y_NCHW


@torch.no_grad()
def initialize_resnet_(model: nn.Module, generator: torch.Generator) -> None:
    """Scale 0 for the last norm of each residual branch; the last layer as the reference code's.

    Blocks begin as their shortcuts.
    """
    for module in model.modules():
        if isinstance(module, BasicBlock):
            init.zeros_(scale_of(module.branch[-1]))
    initialize_last_layer_(model, generator)


RESNET20 = ModelKind(
    make=lambda layers, image, classes, _: small_image_resnet(layers, 20, image[0], classes),
    min_side=4,
    last_norm_stride=4,
    initialize_low_precision_=initialize_resnet_,
)

RESNET54 = ModelKind(
    make=lambda layers, image, classes, _: small_image_resnet(layers, 54, image[0], classes),
    min_side=4,
    last_norm_stride=4,
    initialize_low_precision_=initialize_resnet_,
)

RESNET18 = ModelKind(
    make=lambda layers, image, classes, _: resnet18(layers, image[0], classes),
    min_side=32,
    last_norm_stride=32,
    initialize_low_precision_=initialize_resnet_,
)

RESNET = ModelKind(
    make=lambda layers, image, classes, size: small_image_resnet(
        layers, size.depth_used, image[0], classes, size.width_used
    ),
    min_side=4,
    last_norm_stride=4,
    initialize_low_precision_=initialize_resnet_,
)
