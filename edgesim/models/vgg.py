"""VGG-11 with norms and a small head (arXiv 1409.1556, configuration A).

Source: reference.md, section 5.
"""

from __future__ import annotations

from torch import nn

from edgesim.models.classifier import ImageClassifier
from edgesim.models.dropout import SeededDropout
from edgesim.models.kind import ModelKind
from edgesim.models.layers import Layers
from edgesim.models.low_precision import initialize_vgg_

_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # widths; a 2x2 pooling ends each


def vgg11(layers: Layers, in_channels: int, num_classes: int) -> ImageClassifier:
    """Eight 3x3 convolutions with biases, then dropout and two linear layers."""
    features: list[nn.Module] = []
    for widths in _STAGES:
        for width in widths:
            features += [layers.conv(in_channels, width, 3, bias=True), layers.norm_act(width)]
            in_channels = width
        features.append(layers.max_pool(2, stride=2))
    head = nn.Sequential(
        SeededDropout(0.5), layers.linear(512, 512), nn.ReLU(), layers.linear(512, num_classes)
    )
    return ImageClassifier(nn.Sequential(*features), head)


VGG11 = ModelKind(
    make=lambda layers, image, classes, _: vgg11(layers, image[0], classes),
    min_side=32,
    last_norm_stride=16,
    initialize_low_precision_=initialize_vgg_,
)
