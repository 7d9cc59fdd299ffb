"""A network of one's own: a convolution and a linear layer."""

from torch import nn


def network(input_shape: tuple[int, int, int], num_classes: int, channels: int = 8) -> nn.Module:
    """A module for images of a shape (colours, height, width)."""
    colours, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(colours, channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(channels * (height // 2) * (width // 2), num_classes),
    )
