"""Devices that spent more energy than their battery held."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from edgesim.errors import device_label

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
    devices, left_j = rounds["device"].to_pylist(), rounds["charge_left_j"].to_pylist()
    last_j = dict(zip(devices, left_j, strict=True))  # of each device that of its last row
    below = sorted((joules, device) for device, joules in last_j.items() if joules < 0)
    if not below:
        return None
    said = ", ".join(
        f"{device_label(device, names)} by {-joules:,.4g} J" for joules, device in below[:_NAMED]
    )
    more = f", and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
    return (
        f"{said}{more} spent more than the battery held; a real device would have ended sooner: "
        "raise battery_wh"
    )
