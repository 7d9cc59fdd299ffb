"""The structure of all image models: features, an average over the image, a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ImageClassifier(nn.Module):
    """Convolutional features, averaged over the image, then a head that gives one logit per class.

    The average makes a model independent of the image's size.

    Args:
        features: maps (N, C, H, W) to (N, F, H', W').
        head: maps (N, F) to (N, classes).
    """

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """Logits, shape (N, classes)."""
        features_NFHW = self.features(_channels_last(images_NCHW))
        logits: Tensor = self.head(features_NFHW.mean(dim=(2, 3)))
        return logits


def _channels_last(images_NCHW: Tensor) -> Tensor:
    """A copy with the strides of channels_last, with which all layers use their faster kernels.

    `Tensor.contiguous` would not do: grey images have one channel, so their memory fits both
    layouts. It would keep their strides, and the convolution would choose the slower kernel.
    A program of `torch.export` takes images as they are: its runtimes choose strides of their own.
    """
    if torch.compiler.is_exporting():
        return images_NCHW
    copy = torch.empty_like(images_NCHW, memory_format=torch.channels_last)
    return copy.copy_(images_NCHW)
