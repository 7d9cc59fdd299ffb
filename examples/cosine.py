"""A learning-rate schedule of one's own: half a cosine (arXiv 1608.03983, without restarts)."""

from dataclasses import dataclass
from math import cos, pi


@dataclass(frozen=True, kw_only=True)
class Cosine:
    base: float  # training.optimizer.lr
    epochs: int
    least: float = 0.0

    def at(self, epoch):
        share = min(epoch / self.epochs, 1.0)
        return self.least + (self.base - self.least) * (1 + cos(pi * share)) / 2
