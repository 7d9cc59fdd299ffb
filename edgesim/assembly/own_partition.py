"""Own partitions: a function from a file or package deals samples to devices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.own_parts import make_part
from edgesim.errors import ScenarioError
from edgesim.scenario.data import OwnPartition


def own_partition(
    section: OwnPartition,
    labels: NDArray[Any],
    num_devices: int,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Positions of each device's samples, as a function of one's own deals them.

    Raises:
        ScenarioError: it can't be called, or what it returns is no partition.
    """
    key = "data.partition.kind"
    dealt = make_part(
        section.kind, key, section.options, labels=labels, num_devices=num_devices, rng=rng
    )
    said = f"{key}: {section.kind} gives"
    if not isinstance(dealt, list | tuple):
        kind = type(dealt).__name__
        raise ScenarioError(f"{said} {kind}; must be a list of positions for each device")
    if len(dealt) != num_devices:
        raise ScenarioError(f"{said} {len(dealt)} devices samples; there are {num_devices}")
    parts = [np.asarray(part) for part in dealt]
    for device, part in enumerate(parts):
        if not len(part):
            raise ScenarioError(f"{said} device {device} no sample")
        if not np.issubdtype(part.dtype, np.integer) or part.ndim != 1:
            raise ScenarioError(f"{said} device {device} {part.dtype}; positions are whole numbers")
        if part.min() < 0 or part.max() >= len(labels):
            last = len(labels) - 1
            raise ScenarioError(f"{said} device {device} a position that is none of 0 to {last}")
    whole = np.concatenate(parts)
    if len(np.unique(whole)) < len(whole):
        raise ScenarioError(f"{said} a sample to two devices, or twice to one")
    return [part.astype(np.int64) for part in parts]
