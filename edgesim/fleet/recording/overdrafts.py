"""Devices that spent more energy than their battery held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from edgesim.errors import device_label
from edgesim.results.arrow_table import numbers_of

_NAMED = 4


def overdraft_warning(rounds: pa.Table, names: Sequence[str]) -> str | None:
    """What to say of batteries that ended below 0; None if none did.

    A device looks at its battery between two rounds. So the round under way, and at free pace the
    wait after the last step, may take more than is left.

    Args:
        rounds: rows of rounds.parquet, in the order of rounds.
        names: of the devices; empty if they have none.
    """
    if "charge_left_j" not in rounds.column_names:
        return None
    devices, left_j = (numbers_of(rounds[name]) for name in ("device", "charge_left_j"))
    last_j = np.full(devices.max() + 1, np.nan)
    last_j[devices] = left_j  # of each device the last row counts
    below = np.flatnonzero(last_j < 0)
    if not len(below):
        return None
    worst = below[np.argsort(last_j[below], kind="stable")][:_NAMED].tolist()
    said = ", ".join(
        f"{device_label(device, names)} by {-last_j[device]:,.4g} J" for device in worst
    )
    more = f", and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
    return (
        f"{said}{more} spent more than the battery held; a real device would have ended sooner: "
        "raise battery_wh"
    )
