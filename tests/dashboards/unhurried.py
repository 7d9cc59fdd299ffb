"""A model that takes its time, for a fleet that is watched while it trains."""

from __future__ import annotations

import math
import time

from torch import Tensor, nn


class Unhurried(nn.Sequential):
    """A linear model; its process sleeps before each training step."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))

    def forward(self, images_NCHW: Tensor) -> Tensor:
        if self.training:
            time.sleep(0.05)
        return super().forward(images_NCHW)
