"""A task of one's own: a regression whose loss forgives outliers, with a measure of its own.

edgesim run examples/power.yaml
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn
from torch.nn import functional


class Huber:
    """Huber loss: quadratic in small errors, linear in large ones."""

    metrics: Mapping[str, str] = {
        "worst_share": "share of test samples with an error above `delta`"
    }

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = delta

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean over the batch; the gradient of training."""
        return functional.huber_loss(outputs[:, 0], targets, delta=self.delta)

    def sums(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Measures of an evaluation, summed over the samples of a batch."""
        errors = (outputs[:, 0] - targets).abs()
        return {
            "loss": float(self.loss(outputs, targets)) * len(targets),
            "worst_share": int((errors > self.delta).sum()),
        }

    def summary(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Figures of an evaluation; `means` are the sums divided by the number of samples."""
        return means


class Power:
    """Electric power of a building by hour, temperature and wind; some readings are wrong."""

    def __init__(self, samples: int = 400) -> None:
        rng = np.random.default_rng(0)
        hour, warmth, wind = rng.uniform(-1, 1, size=(3, samples))
        power = np.sin(3 * hour) - warmth + 0.3 * wind * warmth
        power += np.where(rng.random(samples) < 0.02, 5.0, 0.0)
        inputs, is_test = np.stack([hour, warmth, wind], axis=1), np.arange(samples) % 5 == 0
        self.train, self.test = (
            (inputs[~is_test], power[~is_test]),
            (inputs[is_test], power[is_test]),
        )


def perceptron(input_shape: tuple[int], num_classes: int) -> nn.Module:
    """A model with `num_classes` outputs: here one, as a target is one number."""
    return nn.Sequential(nn.Linear(*input_shape, 32), nn.ReLU(), nn.Linear(32, num_classes))
