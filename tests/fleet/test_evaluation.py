"""The consensus model is sum(x)/sum(u), whatever the push weights are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from edgesim.fleet.evaluation import consensus_of, debiased, distances_to
from edgesim.snapshot import Snapshot


def snapshot(device, x, u, buffers=()):
    return Snapshot(
        device, 7, 7, torch.tensor(x), u, torch.tensor(buffers, dtype=torch.float32), None
    )


SNAPSHOTS = [
    snapshot(1, [3.0, 0.0], 1.5, [4.0]),
    snapshot(0, [1.0, 2.0], 0.5, [2.0]),
]


def test_consensus_weighs_by_push_weight_and_averages_local_statistics():
    """(1 + 3) / 2 and (2 + 0) / 2; the mean of the devices' z would be (2 + 2) / 2, (4 + 0) / 2."""
    center = consensus_of(SNAPSHOTS)
    assert debiased(center).tolist() == [2.0, 1.0]
    assert center.buffers.tolist() == [3.0]
    assert center.round_index == 7


def test_distances_are_those_of_the_debiased_models():
    """z_1 = (2, 0) is 1 from (2, 1); z_0 = (2, 4) is 3 from it."""
    assert distances_to(consensus_of(SNAPSHOTS), SNAPSHOTS) == pytest.approx([1.0, 3.0])


def test_local_statistics_are_averaged_in_double_precision_and_rounds_are_whole():
    """In float32 the 1 is lost beside 1e8. The devices have done 7, 7 and 9 rounds: 23 // 3."""
    snapshots = [snapshot(i, [1.0], 1.0, [b]) for i, b in enumerate((1e8, 1.0, -1e8))]
    snapshots[2] = replace(snapshots[2], rounds_done=9)
    center = consensus_of(snapshots)
    assert center.buffers.tolist() == pytest.approx([1 / 3], rel=1e-6)
    assert center.rounds_done == 7


def test_the_order_of_arrival_does_not_matter():
    forward, backward = consensus_of(SNAPSHOTS), consensus_of(SNAPSHOTS[::-1])
    assert torch.equal(forward.x, backward.x)
