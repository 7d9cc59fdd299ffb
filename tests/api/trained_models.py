"""Fleets whose trained models are tried, and models of one's own."""

from __future__ import annotations

SMALL = {
    "fleet__devices": 3,
    "training__rounds": 4,
    "data__train_samples": 120,
    "evaluation": {"every_rounds": 2, "samples": 40, "batch_size": 16},
}
GOSSIPED = {
    "zero_point": "integer",
    "activation_rounding": "stochastic",
    "evaluation_rounding": "stochastic",
    "ranges": "gossiped",
}
MODELS = {
    "evonorm_s0": {"name": "small_cnn"},
    "range_evonorm": {"name": "small_cnn", "norm": "range_evonorm"},
    "batch": {"name": "small_cnn", "norm": "batch"},
    "int8": {"name": "small_cnn", "precision": "int8", "norm": "range_evonorm"},
    "int8, random": {"name": "small_cnn", "precision": "int8", "quantization": GOSSIPED},
}
OWN = """
import torch
from torch import nn
from edgesim.models import BatchNormReLU, EvoNormS0, RangeEvoNorm

class Net(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.frozen = nn.Linear(64, 32).requires_grad_(False)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, num_classes)

        self.register_buffer("shift", torch.ones(32), persistent=False)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.frozen(x.flatten(1)))) + self.shift)

def signals(input_shape, num_classes):
    return nn.Sequential(
        nn.Flatten(2), nn.Conv1d(1, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(),
        nn.MaxPool1d(2), nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, num_classes),
    )

def norms(input_shape, num_classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), EvoNormS0(8, groups=4),
        nn.Conv2d(8, 8, 3, padding=1), RangeEvoNorm(8, groups=4, gate="sigmoid"),
        nn.Conv2d(8, 8, 3, stride=2, padding=1), BatchNormReLU(8),
        nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, num_classes),
    )

class Large(nn.Sequential):
    def __init__(self, input_shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 16_384), nn.ReLU(), nn.Linear(16_384, 10))
"""


OWN_NAMES = {"large": "Large", "signals": "signals", "norms": "norms"}
