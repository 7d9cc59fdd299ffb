"""Corrections are sums over all rounds: their rounding errors must not add up to a drift."""

from __future__ import annotations

import numpy as np
import pytest
from fleet_of_algorithms import AlgorithmFleet

from edgesim.compression.compressors import Identity, TopK
from edgesim.gossip.beer import Beer
from edgesim.gossip.d2 import D2
from edgesim.gossip.gradient_tracking import GradientTracking
from edgesim.gossip.momentum_tracking import MomentumTracking
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(6,)])
IDENTITY = Identity(values="fp32")
RING = sum(np.roll(np.eye(5), shift, axis=0) for shift in (-1, 0, 1)) / 3  # 3 fl(1/3) is not 1
OPTIMUM = np.array([1.0, 2.0, 3.0, 4.0, -5.0, 0.1])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (D2, {}),
        (GradientTracking, {}),
        (MomentumTracking, {}),
        (Beer, {"averaging_rate": 0.5}),
        (Beer, {"averaging_rate": 0.3, "compressor": TopK(keep=0.5, values="fp32")}),
    ],
)
def test_devices_with_unlike_data_stay_at_the_optimum_at_a_small_rate(kind, options):
    """Losses |x - b k|^2 / 2 with k from 0 to 2, so that the mean's optimum is b; float32."""
    scales = np.linspace(0, 2, 5)[:, None]
    start = np.repeat(OPTIMUM[None], 5, axis=0).astype(np.float32)
    algorithm = kind(**{"compressor": IDENTITY, "layout": LAYOUT, **options})
    fleet = AlgorithmFleet(algorithm, start, RING, LAYOUT)
    for _ in range(2000):
        fleet.step(lambda Z: (Z - OPTIMUM * scales).astype(np.float32), np.float32(0.001))
        fleet.absorb(fleet.send(RING))
    mean = fleet.X.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(mean, OPTIMUM, rtol=5e-6)
