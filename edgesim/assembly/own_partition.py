"""Own partitions: what the function of a file or package returns is checked before it is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgesim.errors import ScenarioError
from edgesim.scenario.own_parts import OwnPart


def checked_partition(
    dealt: object, part: OwnPart, num_samples: int, num_devices: int
) -> list[NDArray[np.int64]]:
    """Positions of each device's samples, as a function of one's own deals them.

    Raises:
        ScenarioError: what it returns is no partition.
    """
    said = f"data.partition.kind: {part} gives"
    if not isinstance(dealt, list | tuple):
        kind = type(dealt).__name__
        raise ScenarioError(f"{said} {kind}; must be a list of positions for each device")
    if len(dealt) != num_devices:
        raise ScenarioError(f"{said} {len(dealt)} devices samples; there are {num_devices}")
    parts = [np.asarray(own) for own in dealt]
    for device, own in enumerate(parts):
        if not len(own):
            raise ScenarioError(f"{said} device {device} no sample")
        if not np.issubdtype(own.dtype, np.integer) or own.ndim != 1:
            raise ScenarioError(f"{said} device {device} {own.dtype}; positions are whole numbers")
        if own.min() < 0 or own.max() >= num_samples:
            last = num_samples - 1
            raise ScenarioError(f"{said} device {device} a position that is none of 0 to {last}")
    whole = np.concatenate(parts)
    if len(np.unique(whole)) < len(whole):
        raise ScenarioError(f"{said} a sample to two devices, or twice to one")
    return [own.astype(np.int64) for own in parts]
