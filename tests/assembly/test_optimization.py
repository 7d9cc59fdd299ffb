"""Optimizers and learning rates that an algorithm, or momentum, can't do with are refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from small_fleets import prepared, train

from edgesim.assembly.parts.own_calls import flat_vectors
from edgesim.assembly.rehearsal import rehearsal_of_optimizer
from edgesim.device.trainer import ZeroRateError
from edgesim.errors import ScenarioError

RATES = """
class Rates:
    def __init__(self, base, zeros=()):
        self.base, self.zeros = base, zeros

    def at(self, epoch):
        is_zero = epoch % 2 if self.zeros == "odd" else epoch in self.zeros
        return 0.0 if is_zero else self.base
"""
RING = "topology.kind=ring"
NEED_RATES = {
    "beer": ("gossip={algorithm: beer, averaging_rate: 0.2}",),
    "d2": (RING, "gossip={algorithm: d2, averaging_rate: 0.9}"),
    "gradient_tracking": ("gossip={algorithm: gradient_tracking}",),
    "momentum_tracking": ("gossip={algorithm: momentum_tracking}",),
    "gut": (RING, "gossip={algorithm: gut}"),
    "quasi-global momentum": ("training.optimizer.momentum_kind=quasi_global",),
}
DO_NOT = {
    "gradient_push": ("gossip={algorithm: gradient_push}",),
    "relay_sgd": ("topology={kind: chain}", "gossip={algorithm: relay_sgd}"),
    "quasi-global Adam": ("training.optimizer={kind: quasi_global_adam, lr: 0.002}",),
}


@pytest.fixture
def rates(tmp_path):
    """Setting of a schedule whose rate is 0 in the given epochs."""
    (tmp_path / "rates.py").write_text(RATES)
    place = f"{tmp_path / 'rates.py'}:Rates"
    return lambda zeros: f"training.schedule={{kind: {place}, options: {{zeros: {zeros}}}}}"


@pytest.mark.parametrize("name", NEED_RATES)
def test_a_rate_of_0_is_refused_where_steps_are_kept_or_divided_by_it(tmp_path, rates, name):
    prepared(tmp_path, *NEED_RATES[name], "training.epochs=3", rates("[7]"))
    wanted = r"training\.schedule\.kind: the learning rate of epoch 2 is 0, but .* above 0"
    with pytest.raises(ScenarioError, match=wanted) as refused:
        prepared(tmp_path, *NEED_RATES[name], "training.epochs=3", rates("[2]"))
    assert "\n" not in str(refused.value)
    assert name in str(refused.value)


@pytest.mark.parametrize("name", DO_NOT)
def test_a_rate_of_0_is_allowed_elsewhere(tmp_path, rates, name):
    settings = (*DO_NOT[name], "training.epochs=3", rates("[1]"))
    assert train(tmp_path, "run", *settings, inline=True).summary["rounds"]


@pytest.mark.parametrize("name", ["gradient_tracking", "quasi-global momentum"])
def test_a_rate_of_0_that_was_not_looked_at_is_told_when_it_comes(
    tmp_path, rates, name, monkeypatch
):
    """Of 2,000 epochs every other rate is asked for before the run."""
    monkeypatch.setattr(rehearsal_of_optimizer, "MOST_EPOCHS", 1000)
    settings = (*NEED_RATES[name], "training.epochs=2000", rates("odd"))
    settings += (
        "evaluation.every_epochs=2000",
        "data.train_samples=16",
        "data.partition={kind: iid}",
    )
    with pytest.raises(ZeroRateError, match="kind: the learning rate of epoch 1 is 0, but"):
        train(tmp_path, "run", *settings, inline=True)


OWN_OPTIMIZER = """
from edgesim.learning.adam import QuasiGlobalAdam

class Own(QuasiGlobalAdam):
    pass
"""
SEVERAL_ROUNDS = {
    "all_reduce": ("gossip={algorithm: all_reduce}",),
    "fedavg": ("topology={kind: star}", "gossip={algorithm: fedavg}"),
    "sites": ("topology={kind: complete}", "gossip={algorithm: bagua_decentralized, sites: 2}"),
}


@pytest.mark.parametrize("name", SEVERAL_ROUNDS)
@pytest.mark.parametrize("kind", ["quasi_global_adam", "own"])
def test_optimizers_that_follow_gossip_are_refused_where_averages_take_several_rounds(
    tmp_path, name, kind
):
    """Within an average x holds sums, which such an optimizer would take for models."""
    (tmp_path / "own.py").write_text(OWN_OPTIMIZER)
    kind = f"{tmp_path / 'own.py'}:Own" if kind == "own" else kind
    settings = (
        "training.rounds=12",
        "evaluation={every_rounds: 6, samples: 50}",
        *SEVERAL_ROUNDS[name],
    )
    prepared(tmp_path, *settings, "training.optimizer={kind: adam, lr: 0.002}")
    wanted = r"training\.optimizer\.kind is .*, which follows"
    with pytest.raises(ScenarioError, match=wanted) as said:
        prepared(tmp_path, *settings, f"training.optimizer={{kind: {kind}, lr: 0.002}}")
    assert "choose one without, such as adam" in str(said.value)
    assert "\n" not in str(said.value)


@dataclass
class State:
    """A vector in pieces, as of one tensor for each layer, and what counts."""

    pieces: list
    steps: torch.Tensor


def test_a_vector_that_is_kept_in_pieces_is_one():
    state = State(list(torch.zeros(1000).split(40)), torch.zeros(8))
    assert flat_vectors(state, 1000) == 1
