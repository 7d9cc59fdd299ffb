"""Statistics that travel with the parameters are refused where gossip would make them diverge."""

from __future__ import annotations

import pytest
from small_fleets import prepared

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.errors import ScenarioError
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.plan import FleetPlan

RING = "topology.kind=ring"
INT8 = "model={name: small_cnn, precision: int8, quantization: {backend: reference, ranges: "
EIGHT_BITS = "compressor: {kind: min_max_uint8}"
MIX_FIRST = {
    "dcd": (RING, f"gossip={{algorithm: dcd, {EIGHT_BITS}}}"),
    "beer": (f"gossip={{algorithm: beer, averaging_rate: 0.2, {EIGHT_BITS}}}",),
    "choco_iclr": (f"gossip={{algorithm: choco_iclr, averaging_rate: 0.2, {EIGHT_BITS}}}",),
    "momentum_tracking": ("gossip={algorithm: momentum_tracking}",),
    "bagua_low_precision": (RING, "gossip={algorithm: bagua_low_precision}"),
}
DO_NOT = {
    "choco": (f"gossip={{algorithm: choco, averaging_rate: 0.2, {EIGHT_BITS}}}",),
    "gradient_tracking": ("gossip={algorithm: gradient_tracking}",),
    "gut": (RING, "gossip={algorithm: gut}"),
    "bagua_decentralized": ("topology.kind=complete", "gossip={algorithm: bagua_decentralized}"),
}


@pytest.mark.parametrize("name", MIX_FIRST)
def test_gossiped_ranges_are_refused_where_models_are_mixed_first(tmp_path, name):
    prepared(tmp_path, *MIX_FIRST[name], INT8 + "local}}")
    wanted = rf"ranges is gossiped; gossip\.algorithm: {name} .* model\.quantization\.ranges: local"
    with pytest.raises(ScenarioError, match=wanted) as refused:
        prepared(tmp_path, *MIX_FIRST[name], INT8 + "gossiped}}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", DO_NOT)
def test_they_are_allowed_elsewhere(tmp_path, name):
    assert prepared(tmp_path, *DO_NOT[name], INT8 + "gossiped}}")


MODEL = """
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, input_shape, num_classes, moves=True):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.layer, self.moves = nn.Linear(input_shape[1] * input_shape[2], num_classes), moves

    def forward(self, x):
        if self.training and self.moves:
            self.mean.data.copy_(0.1 * self.mean + 0.9 * x.detach().mean())
        return self.layer(x.flatten(1) - self.mean)
"""


def own_model(folder, *, moves):
    (folder / "model.py").write_text(MODEL)
    return f"model={{name: {folder / 'model.py'}:Own, options: {{moves: {str(moves).lower()}}}}}"


@pytest.mark.parametrize("name", MIX_FIRST)
def test_so_are_statistics_of_ones_own_that_a_step_moves(tmp_path, name):
    prepared(tmp_path, *MIX_FIRST[name], own_model(tmp_path, moves=False))
    wanted = rf"model\.name: a step changes .*mean, .* gossip\.algorithm: {name} .* a buffer"
    with pytest.raises(ScenarioError, match=wanted) as refused:
        prepared(tmp_path, *MIX_FIRST[name], own_model(tmp_path, moves=True))
    assert "\n" not in str(refused.value)


def test_statistics_of_ones_own_are_allowed_elsewhere(tmp_path):
    assert prepared(tmp_path, *DO_NOT["gradient_tracking"], own_model(tmp_path, moves=True))


def test_algorithms_are_told_which_entries_are_statistics(tmp_path):
    """Those are not rescaled at a new learning rate."""
    ready = prepared(tmp_path, *DO_NOT["gradient_tracking"], own_model(tmp_path, moves=True))
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, tmp_path)
    initial = make_flat_model(ready.scenario, ready.data, PLAIN)
    for device in make_devices(plan, dict(enumerate(ready.shards())), initial):
        state = device.participant.gossip_state
        assert state.num_trained == initial.num_trainable == len(state.x) - 1
