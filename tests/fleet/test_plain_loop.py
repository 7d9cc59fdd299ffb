"""The fleet equals a plain single-process loop of the same algorithm, round by round.

The loop below knows nothing of devices, edges, messages or flat models: torch.optim, one module per
device, and a dense mixing matrix (R§3.2, R§3.3). Both sides run in double precision, so that equal
means equal and not close.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from edgesim.models.catalog import build_model
from small_fleets import prepared
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from edgesim.assembly import FleetPlan, make_devices, make_flat_model
from edgesim.compression import Identity, TopK
from edgesim.data.batches import BatchStream
from edgesim.fleet.host import Host
from edgesim.gossip import FixedGraphChoco
from edgesim.learning.flat_model import FlatModel
from edgesim.streams import Purpose, torch_seed

ROUNDS = 30


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

    def write_rounds(self, device, rows):
        self.rows += [(row.round, row.device, row.loss) for row in rows]

    def write_snapshot(self, snapshot):
        raise AssertionError("no snapshot is due")

    def table(self):
        return [loss for _, _, loss in sorted(self.rows)]


def make_module(ready):
    """The common initial model."""
    generator = torch.Generator().manual_seed(torch_seed(ready.scenario.seed, Purpose.INIT))
    return build_model(
        ready.scenario.model.name,
        image_shape=ready.data.image_shape,
        num_classes=ready.data.num_classes,
        norm=ready.scenario.model.norm,
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


def plain_loop(ready, rounds, eta, keep):
    """Losses of every round and device, and the final parameters."""
    n = ready.scenario.fleet.devices
    W = (np.eye(n) + np.roll(np.eye(n), 1, axis=0)) / 2  # directed ring
    mixing = torch.from_numpy(W - np.eye(n))
    models = [make_module(ready) for _ in range(n)]
    sizes = [p.numel() for p in models[0].parameters()]
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        for model in models
    ]
    X_hat = torch.zeros(n, sum(sizes), dtype=torch.float64)
    losses, batches = [], streams(ready)
    for round_index in range(rounds):
        for model, optimizer, stream in zip(models, optimizers, batches, strict=True):
            images, labels = stream.batch(round_index)
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        X = torch.stack([parameters_to_vector(m.parameters()).detach() for m in models])
        X_hat += torch.stack([top_k(row, sizes, keep) for row in X - X_hat])
        X = X + eta * mixing @ X_hat
        for model, row in zip(models, X, strict=True):
            vector_to_parameters(row, model.parameters())
    return losses, X


def top_k(v, sizes, keep):
    if keep is None:
        return v
    parts = []
    for part in v.split(sizes):
        kept = part.abs().topk(max(1, int(len(part) * (1 - (1 - keep))))).indices
        parts.append(torch.zeros_like(part).index_copy(0, kept, part[kept]))
    return torch.cat(parts)


def fleet_in_double(ready, tmp_path, rounds, eta, keep):
    """The same by devices and a host."""
    plan = FleetPlan(ready.scenario, ready.data, ready.training, tmp_path)
    initial = make_flat_model(ready.scenario, ready.data)
    devices = make_devices(plan, dict(enumerate(ready.shards())), initial)
    model = FlatModel(make_module(ready))
    compressor = Identity("fp64") if keep is None else TopK(keep, "fp64")
    algorithm = FixedGraphChoco(averaging_rate=eta, compressor=compressor, layout=initial.layout)
    for device, stream in zip(devices, streams(ready), strict=True):
        device._batches = stream
        device._algorithm = algorithm
        device._gossip_state = algorithm.init(model.parameters.clone(), {})
        device._optimizer_state = device._optimizer.init(model.parameters)
        device._buffers = model.buffers.clone()
    archive = Losses()

    async def conduct():
        async def post(letter):
            return host.deliver(letter.data)

        host = Host(
            devices,
            [model],
            post=post,
            archive=archive,
            num_rounds=rounds,
            snapshot_rounds=frozenset(),
        )
        await host.run()

    asyncio.run(asyncio.wait_for(conduct(), 200))
    return archive.table(), torch.stack([device.snapshot().x for device in devices])


@pytest.mark.parametrize(("eta", "keep"), [(1.0, None), (0.1, 0.1)])
def test_rounds_of_the_small_cnn_equal_those_of_a_plain_loop(tmp_path, eta, keep):
    ready = prepared(tmp_path)
    ours, X = fleet_in_double(ready, tmp_path, ROUNDS, eta, keep)
    expected, X_expected = plain_loop(ready, ROUNDS, eta, keep)
    np.testing.assert_allclose(ours, expected, rtol=1e-10)
    torch.testing.assert_close(X, X_expected, rtol=0, atol=1e-11)


def test_rounds_of_resnet20_equal_those_of_a_plain_loop(tmp_path):
    ready = prepared(tmp_path, "model.name=resnet20", "data.batch_size=4", "fleet.devices=3")
    ours, X = fleet_in_double(ready, tmp_path, 4, 1.0, None)
    expected, X_expected = plain_loop(ready, 4, 1.0, None)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
    torch.testing.assert_close(X, X_expected, rtol=0, atol=1e-9)
