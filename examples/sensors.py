"""A tabular dataset of one's own: readings of sensors, with the owner of each sample.

edgesim run examples/sensors.yaml
"""

import numpy as np
from numpy.typing import NDArray
from torch import nn

FEATURES, CLASSES = 6, 3


class Readings:
    """Readings of sensors; each sensor has its own drift and its own most frequent class.

    A dataset has `train` and `test`: inputs and targets, a row a sample. `columns` name the owners
    of training samples, `test_columns` those of test samples.
    """

    num_classes = CLASSES

    def __init__(self, owners: int = 6, samples: int = 60) -> None:
        rng = np.random.default_rng(0)  # data are the same for all seeds of a scenario
        centers = rng.normal(size=(CLASSES, FEATURES))
        inputs, targets, names = [], [], []
        for owner in range(owners):
            shares = np.full(CLASSES, 0.15)
            shares[owner % CLASSES] = 0.7
            classes = rng.choice(CLASSES, size=samples, p=shares)
            drift = 0.2 * rng.normal(size=FEATURES)
            inputs.append(centers[classes] + drift + 0.5 * rng.normal(size=(samples, FEATURES)))
            targets.append(classes)
            names += [f"sensor-{owner}"] * samples
        x, y, owned = np.concatenate(inputs), np.concatenate(targets), np.array(names)
        is_test = np.arange(len(y)) % 5 == 0
        self.train, self.test = (x[~is_test], y[~is_test]), (x[is_test], y[is_test])
        self.columns, self.test_columns = {"sensor": owned[~is_test]}, {"sensor": owned[is_test]}

    @staticmethod
    def transform(inputs: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Noise on each batch of training."""
        return inputs + 0.05 * rng.standard_normal(inputs.shape, dtype=np.float32)


def perceptron(input_shape: tuple[int], num_classes: int, hidden: int = 16) -> nn.Module:
    """A model for feature vectors."""
    return nn.Sequential(nn.Linear(*input_shape, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))
