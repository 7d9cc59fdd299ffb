"""Updates of optimizers, which are timed as parts of a round that are no layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from edgesim.calibration.micro_networks import Sizes
from edgesim.hardware.work import LayerTally
from edgesim.learning.adam import Adam, QuasiGlobalAdam
from edgesim.learning.optimizers import QuasiGlobalMomentum, Sgd

_OPTIMIZERS = {
    "sgd": Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4),
    "quasi_global_sgd": QuasiGlobalMomentum(momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adam": Adam(),
    "quasi_global_adam": QuasiGlobalAdam(),
}

# Entries of the flat vector. The longest takes some 200 MB, as `memory_gbytes_per_s` does: small
# boards have to bear it.
_LENGTHS = (3_000, 40_000, 120_000, 600_000, 4_000_000, 8_000_000)

_RATE = 1e-3
_RENEWED_EVERY = 8  # steps: an update may change the gradient in place, which must not grow


@dataclass(frozen=True, slots=True)
class MicroUpdate:
    """An update of a vector of Gaussian noise.

    Attributes:
        kind: name of the optimizer.
        length: of the vector.
    """

    kind: str
    length: int

    def made(self) -> tuple[Callable[[], None], tuple[LayerTally, ...]]:
        """A function that does an update, and its sizes."""
        optimizer: Any = _OPTIMIZERS[self.kind]
        generator, steps = torch.Generator().manual_seed(1), count()
        x, gradient = torch.randn(2, self.length, generator=generator)
        state, g = optimizer.init(x), gradient.clone()

        def step() -> None:
            if next(steps) % _RENEWED_EVERY == 0:  # a slower step, which does not count
                g.copy_(gradient)
            optimizer.step_(state, x, g, _RATE)
            optimizer.after_gossip_(state, x, 1.0, _RATE)

        return step, optimizer.work(self.length).layers


def micro_updates(sizes: Sizes) -> Iterator[MicroUpdate]:
    """Updates by all of edgesim's own optimizers."""
    for kind in _OPTIMIZERS:
        for length in _LENGTHS if sizes == "full" else (300, 900):
            yield MicroUpdate(kind, length)
