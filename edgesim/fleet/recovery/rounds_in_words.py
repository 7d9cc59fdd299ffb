"""Which rounds of a stopped run are kept, and from which ones it goes on; in words."""

from __future__ import annotations

import numpy as np

from edgesim.results.run_directory import RunDirectory


def rounds_kept(directory: RunDirectory, num_devices: int) -> str:
    """How many rounds of each device are in rounds.parquet.

    Args:
        directory: of a run whose rounds are joined.
        num_devices: of its fleet.
    """
    devices = directory.read_table("rounds.parquet", ["device"])["device"].to_numpy()
    counts = np.bincount(devices, minlength=num_devices)
    fewest, most = int(counts.min()), int(counts.max())
    if fewest < most:
        return f"{fewest:,} to {most:,} rounds of a device"
    return f"{most:,} {'round' if most == 1 else 'rounds'} of each device"


def starting_rounds(directory: RunDirectory, num_devices: int) -> str:
    """The rounds from which devices go on: those of their newest checkpoints."""
    newest = directory.newest_checkpoints(num_devices)
    first, last = min(newest), max(newest)
    if last == 0:
        return "round 0: no checkpoint is written yet; recovery.checkpoint_every_s says when"
    if first == last:
        return f"round {first}, that of the last checkpoints"
    return f"rounds {first} to {last}, each device from its last checkpoint"
