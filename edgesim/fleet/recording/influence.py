"""How much the data of each device counted in the averaged model, from the rounds of a run.

A step of device i moves sum(x) by gamma u d where steps move the model, and by gamma d where they
move the numerator (docs/free-pace.md). Gossip moves nothing of it.

Symbols:
    gamma: learning rate   u: push weight at the step   d: the optimizer's direction
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgesim.results.arrow_table import numbers_of


def influence_of_devices(
    rounds: pa.Table, num_devices: int, *, steps_on_model: bool
) -> NDArray[np.float64]:
    """Influence of each device, shape (num_devices,); 1 is the mean of the fleet.

    Args:
        rounds: rows of rounds.parquet, in any order.
        num_devices: of the fleet.
        steps_on_model: whether a step moves z = x/u; else it moves x.

    Returns:
        The sum of gamma u, or of gamma, over all steps of a device, divided by its mean over
        devices. A device that took no step has 0; all have 0 if none took any.
    """
    rounds = rounds.select(["device", "round", "loss", "learning_rate", "push_weight"])
    rounds = rounds.sort_by([("device", "ascending"), ("round", "ascending")])
    device, loss, gamma, after = (
        numbers_of(rounds[name]) for name in ("device", "loss", "learning_rate", "push_weight")
    )
    moved = np.where(np.isnan(loss), 0.0, gamma)  # without a loss there was no step
    if steps_on_model:
        # A device's first step finds u = 1: one that joins takes none until it has mass.
        begins = np.diff(device, prepend=-1) != 0
        moved = moved * np.where(begins, 1.0, np.roll(after, 1))
    sums = np.zeros(num_devices)
    np.add.at(sums, device, moved)
    mean = sums.mean()
    return sums / mean if mean > 0 else sums
