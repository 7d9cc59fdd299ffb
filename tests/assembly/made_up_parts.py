"""Parts that are in no catalog: a norm, an architecture and a source of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from edgesim.data.images import LabelledImages, Splits
from edgesim.models.classifier import ImageClassifier
from edgesim.models.kind import ModelKind
from edgesim.models.norms import NormKind


class InstanceNormReLU(nn.Module):
    counts_as = "group_norm"

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        y_NCHW = nn.functional.instance_norm(x_NCHW)
        return nn.functional.relu(y_NCHW * self.scale[:, None, None])


INSTANCE = NormKind(
    make=lambda channels, _: InstanceNormReLU(channels),
)


class Block(nn.Module):
    forks = True

    def __init__(self, layers, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(layers.conv(channels, channels, 3), layers.norm_act(channels))
        self.sum = layers.residual_sum()

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return self.sum(self.branch(x_NCHW), x_NCHW)


def _one_block(layers, image, num_classes, _size):
    features = nn.Sequential(layers.conv(image[0], 8, 3), layers.norm_act(8), Block(layers, 8))
    return ImageClassifier(features, layers.linear(8, num_classes))


ONE_BLOCK = ModelKind(make=_one_block, min_side=4, last_norm_stride=1)


@dataclass(frozen=True)
class Stripes:
    description: str = "images of stripes, upright or lying"
    statistics: None = None
    published_shape: None = None
    sizes_differ: bool = False

    def load(self, path, *, image_size, download):
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, 96)
        images = rng.integers(0, 99, (96, 8, 8, 1), np.uint8)
        images[labels == 0, ::2] += 99
        images[labels == 1, :, ::2] += 99
        train, test = (LabelledImages(images[i], labels[i]) for i in (slice(64), slice(64, 96)))
        return Splits(train, test, ("lying", "upright"))


STRIPES = Stripes()
