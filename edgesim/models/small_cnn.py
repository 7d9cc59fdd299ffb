"""A small convolutional network of about 25,000 parameters, for small devices and quick tests."""

from __future__ import annotations

from torch import nn

from edgesim.models.classifier import ImageClassifier
from edgesim.models.kind import ModelKind
from edgesim.models.layers import Layers
from edgesim.models.low_precision import initialize_last_layer_


def small_cnn(layers: Layers, in_channels: int, num_classes: int) -> ImageClassifier:
    """Three 3x3 convolutions of 16, 32 and 64 channels, with 2x2 poolings between them.

    With strides of 2 the cost would be the same, but the accuracy of the quickstart one point
    lower.
    """
    features = nn.Sequential(
        layers.conv(in_channels, 16, 3),
        layers.norm_act(16),
        layers.max_pool(2, stride=2, ceil_mode=True),
        layers.conv(16, 32, 3),
        layers.norm_act(32),
        layers.max_pool(2, stride=2, ceil_mode=True),
        layers.conv(32, 64, 3),
        layers.norm_act(64),
    )
    return ImageClassifier(features, layers.linear(64, num_classes))


SMALL_CNN = ModelKind(
    make=lambda layers, image, classes, _: small_cnn(layers, image[0], classes),
    min_side=4,
    last_norm_stride=4,
    initialize_low_precision_=initialize_last_layer_,
)
