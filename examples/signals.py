"""A network for signals: windows of an accelerometer, each worn by somebody of their own.

edgesim run examples/signals.yaml
"""

import numpy as np
import torch
from torch import Tensor, nn

AXES, LENGTH, ACTIVITIES = 3, 64, 4
_HERTZ = np.array([0.0, 1.0, 2.0, 3.0])  # resting, walking, running, shaking


class Windows:
    """Two seconds of each of many movements; wearers differ in speed, strength and habits."""

    num_classes = ACTIVITIES

    def __init__(self, wearers: int = 6, windows: int = 80) -> None:
        rng = np.random.default_rng(0)  # data are the same for all seeds of a scenario
        inputs, targets, names = [], [], []
        for wearer in range(wearers):
            habits = np.full(ACTIVITIES, 0.1)
            habits[wearer % ACTIVITIES] = 0.7
            activities = rng.choice(ACTIVITIES, size=windows, p=habits)
            speed, strength = rng.uniform(0.85, 1.15), rng.uniform(0.7, 1.3, size=(AXES, 1))
            cycles = 2 * speed * _HERTZ[activities][:, None, None] * np.linspace(0, 1, LENGTH)
            phases = rng.uniform(size=(windows, AXES, 1))
            noise = 0.3 * rng.normal(size=(windows, AXES, LENGTH))
            inputs.append(strength * np.sin(2 * np.pi * (cycles + phases)) + noise)
            targets.append(activities)
            names += [f"wearer-{wearer}"] * windows
        x, y, owned = np.concatenate(inputs), np.concatenate(targets), np.array(names)
        is_test = np.arange(len(y)) % 5 == 0
        self.train, self.test = (x[~is_test], y[~is_test]), (x[is_test], y[is_test])
        self.columns, self.test_columns = {"wearer": owned[~is_test]}, {"wearer": owned[is_test]}


class SignalNet(nn.Module):
    """Convolutions along time; in 8 bits all but the mean over time."""

    def __init__(self, input_shape: tuple[int, int], num_classes: int, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(input_shape[0], width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=4, dilation=4, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, num_classes)

    def forward(self, x_NCL: Tensor) -> Tensor:
        """Logits, shape (N, num_classes)."""
        return self.head(torch.mean(self.features(x_NCL), dim=2))
