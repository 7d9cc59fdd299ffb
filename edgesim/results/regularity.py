"""Whether tables of a run have each row once: rounds of devices, and messages of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from edgesim.results.arrow_table import numbers_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from topologies import Presence

    _Table: TypeAlias = pa.Table | pd.DataFrame


def first_irregularity(
    rows: _Table, rounds_done: Mapping[int, int], presence: Presence
) -> str | None:
    """Description of the first missing or repeated row; empty if there is none.

    Args:
        rows: with columns device and round.
        rounds_done: of each device.
        presence: presence of devices by rounds; an absent device may have no row.
    """
    import numpy as np

    devices, rounds = (numbers_of(rows[name]) for name in ("device", "round"))
    order = np.lexsort((rounds, devices))
    devices, rounds = devices[order], rounds[order]
    for device, done in rounds_done.items():
        first, last = np.searchsorted(devices, [device, device + 1])
        own = rounds[first:last]
        expected = np.array([0, *(own + 1)])
        found = np.array([*own, max(done, expected[-1])])
        for place in np.flatnonzero(found != expected):
            if found[place] < expected[place]:
                return f"has round {found[place]} of device {device} twice"
            for missing in range(expected[place], found[place]):
                if presence.is_present(device, missing):
                    return f"lacks round {missing} of device {device}"
    return None


def first_miscount(rounds: _Table, messages: _Table) -> str | None:
    """Description of the first round with more or fewer messages than its row says; else empty.

    Args:
        rounds: with columns device, round and messages_sent; no round twice.
        messages: with columns device (which acted) and round.
    """
    import numpy as np

    devices, indices = (
        np.concatenate([numbers_of(rounds[name]), numbers_of(messages[name])]).astype(np.int64)
        for name in ("device", "round")
    )
    # One number for both: numbers are sorted ten times faster than pairs.
    first = indices.min(initial=0)
    span = int(indices.max(initial=0) - first) + 1
    keys = devices * span + (indices - first)
    said = numbers_of(rounds["messages_sent"])
    changes = np.ones(len(keys), np.int64)
    changes[: len(said)] = -said
    found, places = np.unique(keys, return_inverse=True)
    surplus = np.bincount(places, weights=changes, minlength=len(found))
    for place in np.flatnonzero(surplus)[:1]:
        device, round_index = int(found[place]) // span, int(found[place]) % span + int(first)
        kind = "too many" if surplus[place] > 0 else "missing"
        return (
            f"has {abs(int(surplus[place]))} messages {kind} of round {round_index} of device "
            f"{device}"
        )
    return None
