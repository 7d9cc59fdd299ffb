"""Which algorithms keep statistics in x within bounds, that a step moves at any learning rate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fleet_of_algorithms import AlgorithmFleet

from edgesim.compression.compressors import Identity
from edgesim.gossip.bagua_decentralized import BaguaDecentralized
from edgesim.gossip.beer import Beer
from edgesim.gossip.choco_iclr import ChocoIclr
from edgesim.gossip.d2 import D2
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.global_update_tracking import GlobalUpdateTracking
from edgesim.gossip.gradient_push import GradientPush
from edgesim.gossip.gradient_tracking import GradientTracking
from edgesim.gossip.momentum_tracking import MomentumTracking
from edgesim.gossip.optional_members import mixes_first
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(1,)])
COMPLETE = np.full((8, 8), 1 / 8)


def ring(n):
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)) / 3


@pytest.mark.parametrize(
    ("kind", "W", "options"),
    [
        (Dcd, ring(8), {}),
        (ChocoIclr, ring(8), {"averaging_rate": 1.0}),
        (Beer, ring(8), {"averaging_rate": 1.0}),
        (MomentumTracking, ring(8), {}),
        (GlobalUpdateTracking, ring(8), {}),
        (GlobalUpdateTracking, ring(8), {"mu": 0.06, "momentum": 0.9}),
        (D2, ring(8), {"averaging_rate": 0.9}),
        (GradientTracking, ring(8), {}),
        (GradientPush, ring(8), {"averaging_rate": 1.0}),
        (BaguaDecentralized, COMPLETE, {"num_devices": 8}),
    ],
)
def test_those_that_mix_first_are_those_whose_statistics_grow(kind, W, options):
    """As a range does, a step replaces nine tenths of a statistic by that of the batch."""
    algorithm = kind(compressor=Identity("fp64"), layout=LAYOUT, **options)
    fleet = AlgorithmFleet(algorithm, np.ones((8, 1)), W, LAYOUT, num_trained=0)
    for t in range(200):
        for device, state in enumerate(fleet.states):
            batch = 1 + 0.1 * np.random.default_rng((t, device)).normal(size=1)
            state.x.copy_(0.1 * state.x + 0.9 * torch.from_numpy(batch))
            state.take_rate_(0.1)
        fleet.absorb(fleet.send(W))
    assert bool(np.abs(fleet.X).max() > 1e3) is mixes_first(kind)
