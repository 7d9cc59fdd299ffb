"""Times of kinds of layers from those of small networks: least squares without negative parts.

Symbols:
    t: measured seconds of a step   A: sizes of the layers of a network (calls, MACs, entries, ...)
    c: seconds for each of them, at least 0. Minimal is sum(((A c - t) / t)^2): each network counts
    by its relative error, so that small layers count as much as large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.timing import TimedNetwork
from edgesim.calibration.turns import Turns
from edgesim.hardware.profiles import LayerTime
from edgesim.hardware.work import LayerTally

_SIZES = ("calls", "macs", "entries", "far_entries", "weights")


@dataclass(frozen=True, slots=True)
class Fit:
    """Time of a kind of layer, and how well it describes what was measured.

    Attributes:
        time: of the kind.
        num_networks: small networks that it was fitted to.
        worst: largest relative error of their steps.
    """

    time: LayerTime
    num_networks: int
    worst: float


def fit_times(networks: Sequence[TimedNetwork], turns: Turns) -> tuple[Fit, ...]:
    """Times of all kinds of layers in some networks, in the order of the networks.

    The other layers of a network, which must come in earlier networks, are taken off with the times
    that were found there.

    Args:
        networks: with the times of their steps.
        turns: which of these times counts.

    Raises:
        CalibrationError: a step took no time that the clock can tell.
    """
    fits: dict[str, Fit] = {}
    by_kind: dict[str, list[TimedNetwork]] = {}
    for network in networks:
        by_kind.setdefault(_own_kind(network), []).append(network)
    for kind, of_kind in by_kind.items():
        fits[kind] = _fit(kind, of_kind, turns, {known: fit.time for known, fit in fits.items()})
    return tuple(fits.values())


def _own_kind(network: TimedNetwork) -> str:
    """The kind of layer, with its precision, that a network is there for."""
    wanted = network.network.kind
    own = (tally for tally in network.layers if tally.calls)  # a fork's kind has no call
    return next(tally.kind for tally in own if tally.kind.startswith(f"{wanted}_"))


def _fit(
    kind: str,
    networks: Sequence[TimedNetwork],
    turns: Turns,
    known: Mapping[str, LayerTime],
) -> Fit:
    sizes = np.array([_row(network, kind) for network in networks])
    own_s = np.array(
        [turns.chosen(each.steps_s) - _others_s(each, kind, known) for each in networks]
    )
    if not (own_s > 0).all():
        raise CalibrationError(
            f"layers of kind {kind} took no time that this machine's clock can tell; "
            "calibrate again, with more --rounds"
        )
    seconds = least_squares(sizes, own_s)
    errors = np.abs(sizes @ seconds / own_s - 1)
    call, mac, entry, far, weight = (float(value) for value in seconds)
    time = LayerTime(
        kind=kind,
        call_s=call,
        s_per_mac=mac,
        s_per_entry=entry,
        s_per_far_entry=far,
        s_per_weight=weight,
    )
    return Fit(time, len(networks), float(errors.max()))


def _row(network: TimedNetwork, kind: str) -> list[float]:
    tally = next(tally for tally in network.layers if tally.kind == kind)
    return [float(getattr(tally, name)) for name in _SIZES]


def _others_s(network: TimedNetwork, kind: str, known: Mapping[str, LayerTime]) -> float:
    others: list[LayerTally] = [t for t in network.layers if t.kind != kind and t.kind in known]
    return sum(known[tally.kind].seconds(tally) for tally in others)


def least_squares(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds for each size, at least 0, with the least sum of squared relative errors.

    Args:
        sizes: shape (networks, sizes), at least 0.
        seconds: shape (networks,), above 0.
    """
    relative = sizes / seconds[:, None]
    scales = relative.max(axis=0)
    scales[scales == 0] = 1.0  # a size that no layer of the kind has
    solution, _ = nnls(relative / scales, np.ones(len(seconds)))
    found: NDArray[np.float64] = solution / scales
    return np.where(sizes.max(axis=0) > 0, found, 0.0)
