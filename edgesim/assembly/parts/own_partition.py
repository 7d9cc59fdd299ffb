"""Own partitions: what the function of a file or package returns is checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.parts.own_calls import shown
from edgesim.errors import ScenarioError
from edgesim.scenario.own_parts import OwnPart

Shards = list[NDArray[np.int64]]

_SPLITS = {"train", "test"}
_MOST_KEYS = 5  # of a dict that is no partition, in a message


def checked_partition(
    dealt: object, part: OwnPart, sizes: tuple[int, int], num_devices: int
) -> tuple[Shards, Shards | None]:
    """Positions of each device's samples, as a function of one's own deals them.

    Args:
        dealt: a list for the training samples, or a dict with one for `train` and one for `test`.
        part: the function.
        sizes: numbers of the training samples that are dealt, and of the test samples.
        num_devices: of the fleet.

    Returns:
        positions of training samples; of test samples, None if nothing is said of these.

    Raises:
        ScenarioError: what it returns is no partition.
    """
    said = f"data.partition.kind: {part} gives"
    if not isinstance(dealt, Mapping):
        return _checked(dealt, said, sizes[0], num_devices), None
    if set(dealt) != _SPLITS:
        keys = ", ".join(map(str, islice(dealt, _MOST_KEYS))) + (
            ", ..." * (len(dealt) > _MOST_KEYS)
        )
        raise ScenarioError(
            f"{said} a dict of {keys}; must be a list of positions for each device, or a dict of "
            "two such lists, train and test"
        )
    train = _checked(dealt["train"], said, sizes[0], num_devices)
    return train, _checked(dealt["test"], said, sizes[1], num_devices, is_test=True)


def _checked(
    dealt: object, said: str, num_samples: int, num_devices: int, *, is_test: bool = False
) -> Shards:
    """Positions of one split; a device may lack test samples, and share them with others."""
    kind = "test sample" if is_test else "sample"
    if not isinstance(dealt, list | tuple):
        found = type(dealt).__name__
        raise ScenarioError(f"{said} {found}; must be a list of positions for each device")
    if len(dealt) != num_devices:
        raise ScenarioError(f"{said} {len(dealt)} devices {kind}s; there are {num_devices}")
    parts = [np.asarray(own) for own in dealt]
    for device, own in enumerate(parts):
        if own.ndim != 1:
            found = f"an array of shape {own.shape}" if own.ndim else shown(dealt[device])
            raise ScenarioError(
                f"{said} device {device} {found}; must be a list of positions, or an array of one "
                "axis"
            )
        if not len(own):
            if is_test:
                parts[device] = np.empty(0, np.int64)
                continue
            raise ScenarioError(f"{said} device {device} no sample")
        if not np.issubdtype(own.dtype, np.integer):
            raise ScenarioError(f"{said} device {device} {own.dtype}; positions are whole numbers")
        if own.min() < 0 or own.max() >= num_samples:
            last = num_samples - 1
            where = f"a position{' of a test sample' if is_test else ''}"
            raise ScenarioError(f"{said} device {device} {where} that is none of 0 to {last}")
        if is_test and len(np.unique(own)) < len(own):
            raise ScenarioError(f"{said} device {device} a {kind} twice")
    whole = np.concatenate(parts)
    if not is_test and len(np.unique(whole)) < len(whole):
        raise ScenarioError(f"{said} a sample to two devices, or twice to one")
    return [own.astype(np.int64) for own in parts]
