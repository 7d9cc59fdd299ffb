"""A model of one's own: a convolution and a linear layer with a layer of its own between them.

edgesim run examples/two_layers.yaml
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LearnedGate(nn.Module):
    """Lets a learned share of each channel through: y = x sigmoid(s x)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.slope * x)


class TwoLayers(nn.Module):
    """Two layers, between which some channels are left out at random."""

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, channels: int = 16
    ) -> None:
        super().__init__()
        colours, height, width = input_shape
        self.conv = nn.Conv2d(colours, channels, kernel_size=3, stride=2, padding=1)
        self.gate = LearnedGate(channels)
        self.head = nn.Linear(channels * ((height + 1) // 2) * ((width + 1) // 2), num_classes)

    def forward(self, images: Tensor) -> Tensor:
        channels = self.gate(self.conv(images))
        kept = functional.dropout2d(channels, 0.1, self.training)  # from torch's global generator
        return self.head(kept.flatten(1))
