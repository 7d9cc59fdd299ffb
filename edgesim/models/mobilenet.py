"""MobileNetV2 (arXiv 1801.04381) in the reference code's form (reference.md, section 5).

It differs from the paper: the first block has an expansion too (by 1, to the same width), the
shortcut has a 1x1 convolution where the width changes at stride 1, and the projection is followed
by a nonlinearity, as every norm is.
"""

from __future__ import annotations

from torch import Tensor, nn

from edgesim.models.classifier import ImageClassifier
from edgesim.models.kind import ModelKind
from edgesim.models.layers import Layers
from edgesim.models.low_precision import initialize_mobilenet_

LARGE_IMAGE_SIDE = 96  # from here on the image is halved in the stem and the second stage too

# expansion, channels, blocks, stride for small images, stride for large ones
_STAGES = (
    (1, 16, 1, 1, 1),
    (6, 24, 2, 1, 2),
    (6, 32, 3, 2, 2),
    (6, 64, 4, 2, 2),
    (6, 96, 3, 1, 1),
    (6, 160, 3, 2, 2),
    (6, 320, 1, 1, 1),
)


def mobilenet_v2(
    layers: Layers, in_channels: int, num_classes: int, *, large_images: bool
) -> ImageClassifier:
    """MobileNetV2 with a stem of 32 and a last convolution of 1280 channels.

    Args:
        layers: makes the layers.
        in_channels: of the images.
        num_classes: number of logits.
        large_images: halve the image five times, not three, as the paper does for 224 pixels.
    """
    width = 32
    features = [
        layers.conv(in_channels, width, 3, stride=2 if large_images else 1),
        layers.norm_act(width),
    ]
    for expansion, channels, blocks, small_stride, large_stride in _STAGES:
        for block in range(blocks):
            first_stride = large_stride if large_images else small_stride
            stride = first_stride if block == 0 else 1
            features.append(InvertedResidual(layers, width, channels, expansion, stride))
            width = channels
    features += [layers.conv(width, 1280, 1), layers.norm_act(1280)]
    return ImageClassifier(nn.Sequential(*features), layers.linear(1280, num_classes))


class InvertedResidual(nn.Module):
    """Expansion (1x1), depthwise filter (3x3), projection (1x1); with a shortcut at stride 1."""

    def __init__(
        self, layers: Layers, in_channels: int, out_channels: int, expansion: int, stride: int
    ) -> None:
        super().__init__()
        width = expansion * in_channels
        self.branch = nn.Sequential(
            layers.conv(in_channels, width, 1),
            layers.norm_act(width),
            layers.conv(width, width, 3, stride=stride, groups=width),
            layers.norm_act(width),
            layers.conv(width, out_channels, 1),
            layers.norm_act(out_channels),
        )
        self.forks = stride == 1
        if not self.forks:
            return
        self.shortcut = nn.Sequential()
        if in_channels != out_channels:
            self.shortcut.append(layers.conv(in_channels, out_channels, 1))
            self.shortcut.append(layers.norm_act(out_channels))
        self.sum = layers.residual_sum()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Shape (N, out_channels, H / stride, W / stride), sides rounded up."""
        y_NCHW: Tensor = self.branch(x_NCHW)
        if self.forks:
            y_NCHW = self.sum(y_NCHW, self.shortcut(x_NCHW))
        return y_NCHW


MOBILENET_V2 = ModelKind(
    make=lambda layers, image, classes, _: mobilenet_v2(
        layers, image[0], classes, large_images=min(image[1:]) >= LARGE_IMAGE_SIDE
    ),
    min_side=8,
    last_norm_stride=8,
    initialize_low_precision_=initialize_mobilenet_,
)
