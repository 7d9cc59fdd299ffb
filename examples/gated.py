"""A model of one's own for feature vectors: two linear layers, between them a layer of its own.

examples/all_own.yaml names it beside an algorithm, a compressor and a dataset of one's own.
"""

import torch
from torch import Tensor, nn


class LearnedGate(nn.Module):
    """Lets a learned share of each feature through: y = x sigmoid(s x)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.slope * x)


class GatedPerceptron(nn.Module):
    """Two layers; in 8 bits they become integer layers, and the gate stays in fp32."""

    def __init__(self, input_shape: tuple[int], num_classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(*input_shape, hidden)
        self.gate = LearnedGate(hidden)
        self.second = nn.Linear(hidden, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.gate(self.first(inputs)))
