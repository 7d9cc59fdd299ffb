"""As many handwritten digits as a large fleet needs, made of the 1,442 that need no files."""

import numpy as np

from edgesim.data.digits import DIGITS

_SHIFTS = (-1, 0, 1)  # in pixels; borders become black


class ManyDigits:
    """Training images are digits drawn at random, each shifted by up to a pixel; tests are digits.

    Args:
        samples: number of training images.
    """

    num_classes = 10

    def __init__(self, samples: int = 160_000) -> None:
        digits = DIGITS.load(None, image_size=None, download=False)
        train, test = (split.take(np.arange(len(split))) for split in (digits.train, digits.test))
        rng = np.random.default_rng(0)  # data are the same for all seeds of a scenario
        chosen = rng.integers(len(train), size=samples)
        shifts = rng.choice(_SHIFTS, size=(samples, 2))
        height, width = train.images_NHWC.shape[1:3]
        padded = np.pad(train.images_NHWC, ((0, 0), (1, 1), (1, 1), (0, 0)))
        images = np.empty((samples, *train.images_NHWC.shape[1:]), np.uint8)
        for down in _SHIFTS:
            for right in _SHIFTS:
                here = (shifts == (down, right)).all(axis=1)
                shifted = padded[:, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
                images[here] = shifted[chosen[here]]
        self.train = images, train.labels[chosen]
        self.test = test.images_NHWC, test.labels
