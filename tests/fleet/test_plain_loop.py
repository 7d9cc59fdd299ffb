"""The fleet equals a plain single-process loop of the same algorithm, round by round.

The loop below knows nothing of devices, edges, messages or flat models: one module, torch
for the gradients, and a dense mixing matrix (docs/reference.md, sections 3.2, 3.3 and 3.5). Both
sides run in double precision, so that equal means equal and not close.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from loopback import run_in_one_host
from small_fleets import prepared
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.compression.compressors import Identity, TopK
from edgesim.costs.metered_model import MeteredModel
from edgesim.data.batches import BatchStream
from edgesim.fleet.host.devices import make_devices
from edgesim.fleet.plan import FleetPlan
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.learning.flat_model import FlatModel
from edgesim.models.catalog import build_model, full_precision
from edgesim.streams import StreamPurpose, torch_seed

MOMENTUM, DECAY = 0.9, 0.01


class DoubleBatches:
    """The batches of a stream in double precision."""

    def __init__(self, stream):
        self._stream = stream

    def batch(self, round_index):
        images, labels = self._stream.batch(round_index)
        return images.double(), labels


class Losses:
    """An archive that keeps the rounds in memory."""

    def __init__(self):
        self.rows = []

    def write_rounds(self, device, reports):
        self.rows += [(r.round.round, r.round.device, r.round.loss) for r in reports]

    def write_snapshot(self, snapshot):
        raise AssertionError("no snapshot is due")

    def table(self):
        return [loss for _, _, loss in sorted(self.rows)]


def make_module(ready):
    """The common initial model."""
    generator = torch.Generator().manual_seed(torch_seed(ready.scenario.seed, StreamPurpose.INIT))
    return build_model(
        ready.scenario.model.name,
        image_shape=ready.data.image_shape,
        num_classes=ready.data.num_classes,
        layers=full_precision(ready.scenario.model.norm_used),
        generator=generator,
    ).double()


def streams(ready):
    data, scenario = ready.data, ready.scenario
    return [
        DoubleBatches(
            BatchStream(
                shard,
                scenario.data.batch_size,
                scenario.data.augment,
                data.mean,
                data.std,
                scenario.seed,
                device,
            )
        )
        for device, shard in enumerate(ready.shards())
    ]


def plain_loop(ready, W, rates, eta, keep, *, quasi_global=False, local_steps=1):
    """Losses of every round and device, final numerators and push weights."""
    n = len(W)
    L = torch.from_numpy(W - np.eye(n))
    module, batches = make_module(ready), streams(ready)
    sizes = [p.numel() for p in module.parameters()]
    X = parameters_to_vector(module.parameters()).detach().repeat(n, 1)
    u, X_hat, M = torch.ones(n, dtype=torch.float64), torch.zeros_like(X), torch.zeros_like(X)
    losses = []
    for round_index, gamma in enumerate(rates):
        half, before, u_before = torch.empty_like(X), X, u
        for i in range(n):
            vector_to_parameters(X[i] / u[i], module.parameters())
            images, labels = batches[i].batch(round_index)
            loss = cross_entropy(module(images), labels)
            gradient = torch.autograd.grad(loss, list(module.parameters()))
            a = torch.cat([part.reshape(-1) for part in gradient]) + DECAY * X[i]
            m = MOMENTUM * M[i] + a
            if not quasi_global:
                M[i] = m
            half[i] = X[i] - gamma * (a + MOMENTUM * m)
            losses.append(float(loss.detach()))
        is_exchange = (round_index + 1) % local_steps == 0
        X = half.clone()
        if is_exchange:
            X_hat = X_hat + torch.stack([top_k(row, sizes, keep) for row in half - X_hat])
            X += eta * L @ X_hat
        if is_exchange:
            u = u + eta * L @ u
        if quasi_global:  # how far models moved, as movements of x at the push weight of the step
            moved = before - X * (u_before / u)[:, None]
            M = MOMENTUM * M + (1 - MOMENTUM) * moved / gamma
    return losses, X, u


def top_k(v, sizes, keep):
    if keep is None:
        return v
    parts = []
    for part in v.split(sizes):
        kept = part.abs().topk(max(1, int(len(part) * (1 - (1 - keep))))).indices
        parts.append(torch.zeros_like(part).index_copy(0, kept, part[kept]))
    return torch.cat(parts)


def fleet_in_double(ready, folder, eta, keep):
    """The same by devices and a host."""
    plan = FleetPlan(ready.scenario, ready.schedule, ready.data, ready.training, PLAIN, folder)
    initial = make_flat_model(ready.scenario, ready.data, PLAIN)
    devices = make_devices(plan, dict(enumerate(ready.shards())), initial)
    model = FlatModel(make_module(ready))
    compressor = Identity("fp64") if keep is None else TopK(keep, "fp64")
    algorithm = FixedGraphChoco(averaging_rate=eta, compressor=compressor, layout=initial.layout)
    for device, stream in zip(devices, streams(ready), strict=True):
        device.participant.trainer._batches = stream
        device.participant.algorithm = algorithm
        device.participant.gossip_state = algorithm.init(model.parameters.clone(), {})
        trainer = device.participant.trainer
        trainer._optimizer_state = trainer._optimizer.init(model.parameters)
        trainer.buffers = model.buffers.clone()
    archive = Losses()

    run_in_one_host(devices, MeteredModel(model), archive, ready.training.num_rounds)
    ends = [device.snapshot() for device in devices]
    return archive.table(), torch.stack([end.x for end in ends]), [end.u for end in ends]


def directed_ring(n):
    return (np.eye(n) + np.roll(np.eye(n), 1, axis=0)) / 2


def irregular():
    """W and the edges j -> i of the digraph of docs/reference.md, sections 9.3 and 11."""
    A = np.eye(8) + np.roll(np.eye(8), 1, axis=0)
    A[3, 0] = A[5, 0] = A[6, 1] = 1
    graph = nx.DiGraph([(j, i) for i, j in zip(*np.nonzero(A), strict=True) if i != j])
    return A / A.sum(axis=0), graph


def on_irregular_digraph(folder, momentum_kind):
    """Its W, and the settings of a scenario on it."""
    W, graph = irregular()
    nx.write_edgelist(graph, folder / "graph.edgelist", data=False)
    return W, (
        "fleet.devices=8",
        f"topology={{kind: file, path: {folder / 'graph.edgelist'}}}",
        f"training.optimizer.weight_decay={DECAY}",
        f"training.optimizer.momentum_kind={momentum_kind}",
    )


@pytest.mark.parametrize(("eta", "keep"), [(1.0, None), (0.1, 0.1)])
def test_rounds_on_a_ring_equal_those_of_a_plain_loop(tmp_path, eta, keep):
    ready = prepared(tmp_path, f"training.optimizer.weight_decay={DECAY}", "training.rounds=12")
    ours, X, _ = fleet_in_double(ready, tmp_path, eta, keep)
    expected, X_expected, _ = plain_loop(ready, directed_ring(4), [0.05] * 12, eta, keep)
    np.testing.assert_allclose(ours, expected, rtol=1e-10)
    torch.testing.assert_close(X, X_expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("momentum_kind", ["local", "quasi_global"])
def test_rounds_on_an_irregular_digraph_equal_those_of_a_plain_loop(tmp_path, momentum_kind):
    """With push weights, weight decay, warm-up, a milestone, augmentation and either momentum."""
    W, settings = on_irregular_digraph(tmp_path, momentum_kind)
    ready = prepared(
        tmp_path,
        *settings,
        "data.augment=flip",
        "training.epochs=6",  # 200 samples on 8 devices in batches of 16: two rounds an epoch
        "training.schedule={milestones: [3], warmup_epochs: 1}",
    )
    assert ready.training.rounds_per_epoch == 2
    rates = [0.005] * 2 + [0.05] * 4 + [0.005] * 6
    ours, X, u = fleet_in_double(ready, tmp_path, 0.3, 0.3)
    expected, X_expected, u_expected = plain_loop(
        ready, W, rates, 0.3, 0.3, quasi_global=momentum_kind == "quasi_global"
    )
    assert np.ptp(u) > 0.1, "the case is about push weights that differ"
    np.testing.assert_allclose(u, u_expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
    torch.testing.assert_close(X, X_expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("momentum_kind", ["local", "quasi_global"])
def test_local_steps_between_exchanges_equal_those_of_a_plain_loop(tmp_path, momentum_kind):
    W, settings = on_irregular_digraph(tmp_path, momentum_kind)
    ready = prepared(
        tmp_path,
        *settings,
        "training.rounds=11",  # the last two are local steps
        "gossip.local_steps=3",
    )
    ours, X, u = fleet_in_double(ready, tmp_path, 0.3, 0.3)
    is_quasi_global = momentum_kind == "quasi_global"
    expected, X_expected, u_expected = plain_loop(
        ready, W, [0.05] * 11, 0.3, 0.3, quasi_global=is_quasi_global, local_steps=3
    )
    np.testing.assert_allclose(u, u_expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
    torch.testing.assert_close(X, X_expected, rtol=0, atol=1e-10)


def test_rounds_of_resnet20_equal_those_of_a_plain_loop(tmp_path):
    ready = prepared(
        tmp_path,
        *("model.name=resnet20", "data.batch_size=4", "fleet.devices=3", "training.rounds=4"),
        f"training.optimizer.weight_decay={DECAY}",
    )
    ours, X, _ = fleet_in_double(ready, tmp_path, 1.0, None)
    expected, X_expected, _ = plain_loop(ready, directed_ring(3), [0.05] * 4, 1.0, None)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
    torch.testing.assert_close(X, X_expected, rtol=0, atol=1e-9)
