"""Which form of CHOCO a scenario gets, and what the two forms do in real fleets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from fleet_of_algorithms import AlgorithmFleet
from rich.console import Console
from small_fleets import small_scenario, write_scenario

from edgesim.assembly.build import PLAIN, make_flat_model, make_schedule
from edgesim.assembly.gossip import make_algorithm
from edgesim.assembly.preparation import prepare
from edgesim.compression.compressors import Identity
from edgesim.device.trainer import Trainer
from edgesim.fleet.run import run_scenario
from edgesim.gossip.algorithm import GossipState
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import QuasiGlobalMomentum
from edgesim.learning.parameters import ParameterLayout
from edgesim.scenario import load_scenario

SCENARIO = small_scenario(
    name="forms",
    fleet={"devices": 5},
    data={"train_samples": 100, "batch_size": 4},
    training={"rounds": 30},
    evaluation={"every_rounds": 30, "samples": 10},
)
PUBLISHED = (
    "gossip={algorithm: choco_numerator, averaging_rate: 0.2, compressor: {kind: top_k, keep: 0.2}}"
)
FREE = (  # steps that take longer than messages
    "fleet={pace: free, devices: [{profile: arduino-portenta-h7, fp32_gmacs_per_s: 0.04, count: 3},"
    " {profile: arduino-portenta-h7, fp32_gmacs_per_s: 0.08}, "
    "{profile: arduino-portenta-h7, fp32_gmacs_per_s: 0.02}]}"
)
STAR = "topology={kind: star}"
RANDOM = "topology={kind: erdos_renyi, probability: 0.4}"
STILL = ("training={rounds: 150, optimizer: {lr: 1.0e-30}}", "model.norm=group")
QUICK = "compressor: {kind: top_k, keep: 0.3}, averaging_rate: 0.5"


def scenario(folder, *settings):
    return load_scenario(write_scenario(folder, SCENARIO), settings)


def train(folder, *settings):
    with (folder / "log").open("w") as log:
        ready = prepare(scenario(folder, *settings))
        run = run_scenario(ready, folder / "run", inline=True, console=Console(file=log))
    ends = [dict(np.load(path)) for path in sorted((run.path / "models").glob("*.npz"))]
    x_0 = make_flat_model(ready.scenario, ready.data, PLAIN).parameters.double().numpy()
    return run, ends, x_0


@pytest.mark.parametrize(
    ("settings", "ours", "published"),
    [
        ((), FixedGraphChoco, FixedGraphChoco),
        (("gossip.local_steps=3",), FixedGraphChoco, FixedGraphChoco),
        (("topology={kind: exponential}",), FixedGraphChoco, FixedGraphChoco),
        ((STAR,), Choco, FixedGraphChoco),
        (("topology={kind: star, weights: metropolis}",), FixedGraphChoco, FixedGraphChoco),
        ((RANDOM,), Choco, FixedGraphChoco),
        (("topology={kind: one_peer_exponential}",), Choco, ChocoNumerator),
        ((FREE,), Choco, ChocoNumerator),
        (("fleet.churn={leaves: [{device: 2, round: 9}]}",), Choco, ChocoNumerator),
        (("fleet.churn={joins: [{device: 2, round: 9}]}",), Choco, ChocoNumerator),
        (
            ("fleet={devices: [{profile: raspberry-pi-5, count: 5, battery_wh: 10}]}",),
            Choco,
            ChocoNumerator,
        ),
    ],
    ids=str,
)
def test_choco_tracks_the_model_wherever_push_weights_can_move(tmp_path, settings, ours, published):
    layout = ParameterLayout.from_shapes([(3, 2)])
    kinds = []
    for gossip in ((), (PUBLISHED,)):
        chosen = scenario(tmp_path, *gossip, *settings)
        kinds.append(type(make_algorithm(chosen, layout, make_schedule(chosen))))
    assert kinds == [ours, published]


@pytest.mark.parametrize("settings", [(FREE,), (RANDOM,)], ids=str)
def test_both_forms_send_the_same_bytes(tmp_path, settings):
    """Of as many entries; indices may take some bytes more or less."""
    parts = []
    for name, gossip in (("ours", ()), ("published", (PUBLISHED,))):
        (tmp_path / name).mkdir()
        run, _, _ = train(tmp_path / name, *gossip, *settings, "training.rounds=12")
        rounds = pd.read_parquet(run.path / "rounds.parquet")
        parts.append(
            rounds[["sent_value_bytes", "sent_overhead_bytes", "messages_sent"]].sum().tolist()
        )
    assert parts[0] == parts[1]


def away_from_start(folder, algorithm, *settings):
    """Distances of models that learn nothing from where they began, of its norm."""
    gossip = f"gossip={{algorithm: {algorithm}, {QUICK}}}"
    _, ends, x_0 = train(folder, RANDOM, *STILL, gossip, *settings)
    total = sum(end["x"].astype(np.float64) for end in ends)
    np.testing.assert_allclose(total, 5 * x_0, atol=1e-4)
    assert sum(float(end["u"]) for end in ends) == pytest.approx(5, abs=1e-10)
    return [np.linalg.norm(end["x"] / end["u"] - x_0) / np.linalg.norm(x_0) for end in ends]


@pytest.mark.parametrize("settings", [(FREE,), ("training.rounds=40",)], ids=["free", "lockstep"])
def test_models_that_learn_nothing_come_back_to_where_they_began(tmp_path, settings):
    """On an irregular digraph, from equal starts, with a learning rate of 1e-30, in float32."""
    assert max(away_from_start(tmp_path, "choco", *settings)) < 2e-5


def test_in_the_published_form_models_that_learn_nothing_drift_away(tmp_path):
    distances = away_from_start(tmp_path, "choco_numerator", FREE, "training.rounds=30")
    assert max(distances) > 0.5


class FixedBatch:
    """A batch stream of one batch."""

    def batch(self, round_index):
        return None, torch.zeros(1)

    def size(self, round_index):
        return 1


class FixedModel:
    """A model whose gradient has the same entries everywhere."""

    dropout_layers = rounding_layers = ()

    def __init__(self, x, gradient=1.0):
        self.flat, self.gradient = self, gradient
        self.parameters, self.buffers = x.clone(), torch.zeros(0)

    def load_(self, parameters, buffers):
        self.parameters.copy_(parameters)

    use_ = load_

    def loss_and_gradient(self, images, labels):
        return 0.0, torch.full_like(self.parameters, self.gradient), Work()


def quasi_global_trainer(x, *, steps_on_model, rate=0.1):
    return Trainer(
        device=0,
        seed=0,
        batches=FixedBatch(),
        optimizer=QuasiGlobalMomentum(momentum=0.9, nesterov=True, weight_decay=0.0),
        learning_rates=type("Rates", (), {"at": lambda self, epoch: rate})(),
        rounds_per_epoch=1,
        x=x,
        num_trainable=len(x),
        buffers=torch.zeros(0),
        steps_on_model=steps_on_model,
    )


@pytest.mark.parametrize("steps_on_model", [False, True])
def test_quasi_global_momentum_takes_no_change_of_mass_for_a_movement(steps_on_model):
    """Gossip that halves x and u leaves z where the step had put it."""
    x = torch.randn(10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    trainer = quasi_global_trainer(x, steps_on_model=steps_on_model)
    state = GossipState(x.clone(), 0.8)
    trainer.step_(state, FixedModel(x), 0)
    before = trainer._optimizer_state.momentum.clone()
    state.x, state.u = state.x / 2, state.u / 2
    trainer.after_gossip_(state, 0)
    torch.testing.assert_close(trainer._optimizer_state.momentum, before, rtol=0, atol=1e-12)


def settled_fleet(eta, entries=2):
    """Gradient push on the irregular digraph of docs/reference.md, section 9.3, and its W."""
    A = np.eye(8) + np.roll(np.eye(8), 1, axis=0)
    A[3, 0] = A[5, 0] = A[6, 1] = 1
    W, layout = A / A.sum(0), ParameterLayout.from_shapes([(entries,)])
    algorithm = GradientPush(averaging_rate=eta, compressor=Identity("fp64"), layout=layout)
    fleet = AlgorithmFleet(algorithm, np.zeros((8, entries)), W, layout)
    for _ in range(int(300 / eta)):
        fleet.absorb(fleet.send(W))  # push weights come to rest
    assert np.ptp(fleet.u) > 1
    return fleet, W


def train_quasi_global(fleet, W, gradients, rounds, *, steps_on_model=False):
    """Each device's own trainer on a constant gradient of its own; the trainers."""
    trainers = [
        quasi_global_trainer(state.x, steps_on_model=steps_on_model, rate=0.01)
        for state in fleet.states
    ]
    models = [FixedModel(state.x, g) for state, g in zip(fleet.states, gradients, strict=True)]
    for t in range(rounds):
        for trainer, state, model in zip(trainers, fleet.states, models, strict=True):
            trainer.step_(state, model, t)
        fleet.absorb(fleet.send(W))
        for trainer, state in zip(trainers, fleet.states, strict=True):
            trainer.after_gossip_(state, t)
    return trainers


@pytest.mark.parametrize("eta", [1.0, 0.2])
def test_quasi_global_momentum_counts_the_gradients_of_all_devices_equally(eta):
    """On an irregular digraph sum(x) moves as it does by momentum of the mean gradient.

    Steps are g + beta (beta m + g) with m = beta m + (1 - beta) (x - x+) / gamma. Exchanges keep
    sum(x), so sums over devices obey the same formula without gossip.
    """
    fleet, W = settled_fleet(eta)
    gradients = np.random.default_rng(0).normal(size=8)
    trainers = train_quasi_global(fleet, W, gradients, 60)
    m = moved = 0.0
    for _ in range(60):
        d = 1.9 * gradients.sum() + 0.81 * m
        m = 0.9 * m + 0.1 * d
        moved -= 0.01 * d
    np.testing.assert_allclose(fleet.X.sum(0), moved, rtol=1e-9)
    total = sum(float(trainer._optimizer_state.momentum[0]) for trainer in trainers)
    assert total == pytest.approx(m, rel=1e-9)


@pytest.mark.parametrize("steps_on_model", [False, True])
def test_quasi_global_momentum_keeps_devices_together_whatever_their_push_weights(steps_on_model):
    """A constant gradient of 1 everywhere: all models move by 10 gamma a round in the end.

    m = (1 + beta) / (1 - beta^2) = 10 where a step moves z, and u times it where a step moves x.
    """
    fleet, W = settled_fleet(1.0)
    trainers = train_quasi_global(fleet, W, np.ones(8), 600, steps_on_model=steps_on_model)
    expected = np.full(8, 10.0) * (1 if steps_on_model else fleet.u)
    found = [float(trainer._optimizer_state.momentum[0]) for trainer in trainers]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
