"""Sequences of one's own, and a model for them: each writer counts in steps of its own.

edgesim run examples/counting.yaml
"""

import numpy as np
from torch import Tensor, nn

WORDS = 12


class Counting:
    """Sequences of whole numbers; the targets are the numbers that follow, for `next_token`.

    Samples for training and for testing have a column that names their writer.
    """

    num_classes = WORDS

    def __init__(self, writers: int = 4, samples: int = 60, length: int = 9) -> None:
        rng = np.random.default_rng(0)
        writer = np.repeat(np.arange(writers), samples)
        first, step = rng.integers(0, WORDS, len(writer)), writer % 3 + 1
        words = (first[:, None] + step[:, None] * np.arange(length)) % WORDS
        is_test = np.arange(len(writer)) % 5 == 0
        self.train = words[~is_test, :-1], words[~is_test, 1:]
        self.test = words[is_test, :-1], words[is_test, 1:]
        self.columns, self.test_columns = {"writer": writer[~is_test]}, {"writer": writer[is_test]}


class TwoWords(nn.Module):
    """Says which word follows from the last two; outputs have shape (samples, places, words)."""

    def __init__(self, input_shape: tuple[int], num_classes: int, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, width)
        self.mix = nn.Conv1d(width, width, kernel_size=2, padding=1)
        self.head = nn.Linear(width, num_classes)

    def forward(self, words: Tensor) -> Tensor:
        channels = self.embedding(words).transpose(1, 2)
        mixed = self.mix(channels)[:, :, :-1].relu()  # no place sees the word that it has to say
        return self.head(mixed.transpose(1, 2))
