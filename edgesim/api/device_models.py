"""The model that a finished run has of a device, found by the device's number or name."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgesim.errors import EdgesimError, device_label, did_you_mean
from edgesim.results.models import DeviceModel
from edgesim.results.run import Run


class NoModelError(EdgesimError, ValueError):
    """A run has no model of the device that was asked for."""


def model_of(run: Run, device: int | np.integer[Any] | str | None) -> DeviceModel:
    """What the run has of a device, or of the averaged model.

    Raises:
        NoModelError: the run has no model of it.
        RunDirectoryError: a model is missing.
    """
    if not run.is_finished:
        raise NoModelError(
            f"{run.place}: this run is not finished, so it has no trained model yet; go on with it "
            "first: `edgesim resume`, in Python `edgesim.resume`"
        )
    run.models.check_whole()
    if device is None:
        return run.models.consensus
    device = _number_of(run, device)
    if device not in run.models:
        raise NoModelError(
            f"{run.place}: has no device {device}; its devices are {min(run.models)} to "
            f"{max(run.models)}"
        )
    values = run.models[device]
    if not values.u > 0:
        why = "took no part in the last average"
        if str(device) in run.summary.get("left_after_round", {}):
            why = "left and handed its model over"
        elif device in run.summary.get("without_model", ()):
            why = "joined and was sent no model"
        label = device_label(device, run.summary.get("device_names", ()))
        raise NoModelError(f"{run.place}: {label} has no model: it {why}")
    return values


def _number_of(run: Run, device: int | np.integer[Any] | str) -> int:
    """Number of a device that is given by its number or name.

    Raises:
        NoModelError: there is none.
    """
    if isinstance(device, int | np.integer) and not isinstance(device, bool):
        return int(device)
    column = "name"  # there if devices have names
    names = run.devices[column].tolist() if column in run.devices else []
    if device in names:
        return names.index(device)
    if isinstance(device, str) and device.isdecimal():
        return int(device)
    remedy = f"its devices are {', '.join(names)}" if names else "give its number, from 0"
    raise NoModelError(
        f"{run.place}: has no device {device}; {did_you_mean(str(device), names, remedy)}"
    )
