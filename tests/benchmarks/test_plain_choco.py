"""The paper's CHOCO-SGD in plain torch does what edgesim's own parts do."""

from __future__ import annotations

import numpy as np
import plain_choco
import plain_resnets
import pytest
import torch
from choco_forms import Gossip, Turn
from plain_choco import BATCH, DEVICES, FLEETS, Fleet, Samples, Training
from plain_resnets import Models

from edgesim.compression.compressors import Identity, TopK
from edgesim.data.partition import label_skew
from edgesim.gossip.choco import Choco
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import Sgd
from edgesim.learning.parameters import ParameterLayout
from edgesim.models import build_model, full_precision

RATE = 0.1


def edgesims(norm):
    """ResNet-20 of edgesim, and the column of each of its entries in the plain one's matrix."""
    gate = {"gate": "hard_sigmoid"} if norm == "range_evonorm" else {}
    module = build_model(
        "resnet20",
        image_shape=(3, 32, 32),
        num_classes=10,
        layers=full_precision(norm, **gate),
        generator=torch.Generator().manual_seed(2),
    )
    return FlatModel(module, torch.device("cpu")), module


def places_of(models, module):
    """Columns of the plain matrix in edgesim's order of entries."""
    columns = models.views(torch.arange(models.num_parameters)[None].double())
    in_its_order = [columns[name].flatten() for name, _ in plain_resnets.shapes()]
    sizes = [parameter.numel() for parameter in module.parameters()]
    assert [len(each) for each in in_its_order] == sizes
    return torch.cat(in_its_order).long()


class FixedSamples:
    """Batches of random images; the last sample of each is not one."""

    def __init__(self, rounds):
        generator = torch.Generator().manual_seed(3)
        shape = rounds, 4, DEVICES
        self.images = torch.randn(*shape, 3, 32, 32, generator=generator)
        self.labels = torch.randint(0, 10, shape, generator=generator)
        self.weight = torch.ones(4, DEVICES)
        self.weight[-1] = 0
        self.next = -1

    def batch(self):
        self.next += 1
        return self.images[self.next], self.labels[self.next], self.weight


@pytest.mark.parametrize("left_out", [0.0, 0.99])
@pytest.mark.parametrize("norm", ["evonorm_s0", "range_evonorm"])
def test_rounds_of_training_and_gossip_are_edgesims(norm, left_out):
    plain_norm = plain_resnets.NORMS["range" if norm == "range_evonorm" else "evonorm"]
    models, rounds = Models(plain_norm), 3
    start = models.initial(torch.Generator().manual_seed(4))
    start += 0.1 * torch.randn(start.shape, generator=torch.Generator().manual_seed(5))
    eta = 0.1 if left_out else 1.0
    samples = FixedSamples(rounds)
    training = Training(models, [Fleet(left_out, 0.0, eta, 0.0)], samples, start)
    training.rate.fill_(RATE)

    model, module = edgesims(norm)
    places = places_of(models, module)
    shapes = [parameter.shape for parameter in module.parameters()]
    compressor = TopK(keep=1 - left_out, values="fp32") if left_out else Identity(values="fp32")
    layout = ParameterLayout.from_shapes(shapes)
    choco = Choco(averaging_rate=eta, compressor=compressor, layout=layout)
    fleet = Gossip(choco, start[:, places].expand(DEVICES, -1).numpy())
    sgd = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)
    optimizers = [sgd.init(state.x) for state in fleet.states]
    for number in range(rounds):
        for device, (state, own) in enumerate(zip(fleet.states, optimizers, strict=True)):
            model.load_(state.x.clone(), model.buffers.clone())
            images, labels = samples.images[number, :3, device], samples.labels[number, :3, device]
            _, gradient = model.loss_and_gradient(images, labels)
            sgd.step_(own, state.x, gradient.clone(), RATE)
        for device in range(DEVICES):
            fleet.follow(Turn(device, {(device + 1) % DEVICES: 0.5}, ()))
        for device in range(DEVICES):
            fleet.follow(Turn(device, {}, ((device - 1) % DEVICES,)))
        training.round()
    expected = torch.stack([state.x for state in fleet.states])
    moved = (expected - start[:, places]).norm()
    assert (training.x[:, places] - expected).norm() < 1e-3 * moved


def test_one_node_is_a_step_with_all_batches():
    models = Models(plain_resnets.evonorm_s0)
    start = models.initial(torch.Generator().manual_seed(4))
    samples = FixedSamples(1)
    training = Training(models, [FLEETS["one-node"]], samples, start)
    training.rate.fill_(RATE)
    training.round()
    model, module = edgesims("evonorm_s0")
    places = places_of(models, module)
    state = start[0, places].clone()
    model.load_(state.clone(), model.buffers.clone())
    images, labels = (
        each[0, :3].transpose(0, 1).flatten(0, 1) for each in (samples.images, samples.labels)
    )
    _, gradient = model.loss_and_gradient(images, labels)
    sgd = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)
    sgd.step_(sgd.init(state), state, gradient.clone(), RATE)
    moved = (state - start[0, places]).norm()
    assert ((training.x[:, places] - state).norm(dim=1) < 1e-3 * moved).all()


@pytest.mark.parametrize("skew", [0.0, 0.4, 0.8, 0.9])
def test_shards_are_edgesims(skew):
    labels = np.random.default_rng(1).integers(0, 10, 5000)
    expected = label_skew(labels, DEVICES, skew, seed=7)
    for own, other in zip(plain_choco.shards(labels, skew, seed=7), expected, strict=True):
        assert np.array_equal(own, other)


def test_an_epoch_takes_each_sample_once(tmp_path, monkeypatch):
    images = np.arange(1000, dtype=np.uint8).repeat(32 * 32 * 3).reshape(1000, 32, 32, 3)
    labels = np.arange(1000) % 10
    monkeypatch.setattr(plain_choco, "read", lambda file: (images, labels))
    fleets = [FLEETS["one-node"], FLEETS["0/0.8"]]
    samples = Samples(tmp_path, fleets, 1, torch.device("cpu"))
    samples.shuffle()
    chosen = samples.order[samples.weight > 0].view(-1)
    at_one_node = samples.order[:DEVICES][samples.weight[:DEVICES] > 0]
    assert at_one_node.sort().values.tolist() == list(range(1000))
    assert len(chosen) == 1000 + sum(map(len, label_skew(labels, DEVICES, 0.8, seed=1)))
    inputs, answers, weight = samples.batch()
    assert inputs.shape == (BATCH, 2 * DEVICES, 3, 32, 32)
    assert torch.equal(answers, torch.from_numpy(labels)[samples.order[:, 0].T])
    assert torch.equal(weight, samples.weight[:, 0].T)
    means = torch.tensor(plain_choco.MEAN).view(3, 1, 1)
    pixels = (inputs * torch.tensor(plain_choco.STD).view(3, 1, 1) + means) * 255
    brightest = pixels.amax((2, 3, 4)).round().long()  # a crop has black borders
    assert torch.equal(brightest, samples.order[:, 0].T % 256)


def test_the_schedule_is_the_papers():
    rates = [plain_choco.rate_of(epoch, 200) for epoch in (0, 1, 99, 100, 149, 150, 199)]
    assert rates == pytest.approx([0.01, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
