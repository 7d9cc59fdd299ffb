"""Least squares: times that are known come back."""

from __future__ import annotations

import numpy as np
import pytest

from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.fit import fit_times, least_squares
from edgesim.calibration.micro_networks import MicroNetwork
from edgesim.calibration.timing import TimedNetwork
from edgesim.calibration.turns import Turns
from edgesim.hardware.work import LayerTally, Work

SIZES = [(1, 0.0, 100.0, 0.0, 7.0), (1, 5e6, 3e3, 0.0, 50.0), (2, 9e7, 4e6, 2e5, 1e3)]
MORE = [(1, 2e8, 9e3, 0.0, 4e5), (3, 1e5, 6e6, 3e6, 10.0), (1, 8e6, 5e4, 0.0, 2e6)]
TRUE = np.array([3e-5, 2e-11, 4e-10, 5e-10, 6e-9])


def timed(kind, sizes, step_s, *others):
    calls, macs, entries, far, weights = sizes
    tally = LayerTally(
        kind=f"{kind}_fp32",
        calls=calls,
        macs=macs,
        entries=entries,
        far_entries=far,
        weights=weights,
        work=Work(),
    )
    return TimedNetwork(
        MicroNetwork(kind, lambda: None, ()), (*others, tally), [3 * step_s, step_s, 2 * step_s]
    )


def test_sizes_and_times_give_the_seconds_of_each_size():
    sizes = np.array([*SIZES, *MORE])
    assert least_squares(sizes, sizes @ TRUE) == pytest.approx(TRUE, rel=1e-6)


def test_no_size_takes_negative_time():
    """The second layer is larger and quicker."""
    found = least_squares(np.array([[1.0, 10.0], [1.0, 20.0]]), np.array([2.0, 1.0]))
    assert (found >= 0).all()


def test_a_size_that_no_layer_has_takes_no_time():
    found = least_squares(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([1.0, 2.0]))
    assert found == pytest.approx([1.0, 0.0])


def test_other_layers_of_a_network_are_taken_off_first():
    linear = [timed("linear", s, float(np.array(s) @ TRUE)) for s in [*SIZES, *MORE]]
    within = linear[0].layers[0]
    ends = timed("ends", (1, 0.0, 0.0, 0.0, 0.0), 1.0 + min(linear[0].steps_s), within)
    fits = fit_times([*linear, ends], Turns(1))
    assert [fit.time.kind for fit in fits] == ["linear_fp32", "ends_fp32"]
    assert fits[0].time.s_per_weight == pytest.approx(6e-9, rel=1e-6)
    assert fits[1].time.call_s == pytest.approx(1.0)
    assert (fits[0].num_networks, fits[0].worst) == (6, pytest.approx(0, abs=1e-6))


def test_of_several_steps_the_fastest_counts_or_the_median():
    steps = [timed("linear", s, float(np.array(s) @ TRUE)) for s in [*SIZES, *MORE]]
    for turns, factor in ((Turns(1), 1), (Turns(1, takes_median=True), 2)):
        assert fit_times(steps, turns)[0].time.s_per_weight == pytest.approx(factor * 6e-9)


def test_a_step_that_took_no_time_is_refused():
    with pytest.raises(CalibrationError, match="relu_fp32 took no time"):
        fit_times([timed("relu", SIZES[0], 0.0)], Turns(1))
