"""Metrics of a run for TensorBoard; needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgesim.fleet.recording.fleet_state import FleetState, Sink
from edgesim.program import pip_install
from edgesim.sinks.steps import MissingPackageError, evaluation_values, state_values, summary_values


class TensorBoard(Sink):
    """A sink that writes event files; steps are rounds of the slowest device.

    Args:
        folder: of the event files; `tensorboard --logdir FOLDER` shows them.
        most_devices: a larger fleet has no curves of single devices, only those of the fleet.

    Raises:
        MissingPackageError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path | str, most_devices: int = 100) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError(
                f"TensorBoard can't be imported ({error}); install it: {pip_install('tensorboard')}"
            ) from error
        self._writer: Any = SummaryWriter(str(folder))  # untyped by torch
        self._most_devices = most_devices

    def update(self, fleet: FleetState) -> None:
        """Write the newest values."""
        if fleet.slowest_round is None:
            return
        for name, value in state_values(fleet, self._most_devices).items():
            self._writer.add_scalar(name, value, fleet.slowest_round)

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write what an evaluation found of the averaged model."""
        step, values = evaluation_values(rows)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Write the totals of a run that came to its end."""
        step, values = summary_values(summary)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the event files."""
        self._writer.close()
