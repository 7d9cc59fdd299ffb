"""What algorithms of the catalog do when they are tried as one's own are."""

from __future__ import annotations

import pytest
import torch

from edgesim.assembly.build import name_devices
from edgesim.assembly.gossip import make_algorithm
from edgesim.assembly.rehearsal_of_gossip import rehearse_algorithm
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario import load_scenario

LAYOUT = ParameterLayout.from_shapes([(30, 20), (20,)])
TOP_K = "compressor: {kind: top_k, keep: 0.1}"


def tried(gossip, topology="ring"):
    overrides = [f"gossip={{{gossip}}}", f"topology={{kind: {topology}}}"]
    scenario, schedule = name_devices(load_scenario("scenarios/quickstart.yaml", overrides))
    algorithm = make_algorithm(scenario, LAYOUT, schedule)
    x = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0)) / 10
    return rehearse_algorithm(algorithm, x, schedule)


@pytest.mark.parametrize(
    "gossip",
    [
        f"algorithm: choco, averaging_rate: 0.3, {TOP_K}",
        f"algorithm: choco_numerator, averaging_rate: 0.3, {TOP_K}",
        f"algorithm: deepsqueeze, averaging_rate: 0.3, {TOP_K}",
        "algorithm: gradient_push",
        "algorithm: d2, averaging_rate: 0.9",
        "algorithm: gut",
        "algorithm: gradient_tracking",
        "algorithm: momentum_tracking",
    ],
)
def test_those_that_keep_the_sums_keep_them(gossip):
    """On a ring each of three devices has two neighbours; trackers send two vectors at once."""
    assert tried(gossip) is None


def test_a_device_with_one_neighbour_is_tried_with_one():
    assert tried(f"algorithm: choco, averaging_rate: 0.3, {TOP_K}", "directed_ring") is None


def test_one_that_moves_the_average_is_told_of():
    """DCD loses at the sender what its compressor leaves out."""
    assert "changes the sum of x" in tried(f"algorithm: dcd, {TOP_K}")
