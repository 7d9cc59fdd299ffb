"""Work of an encoder's step against formulas of its architecture."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from edgesim.assembly.build import PLAIN, make_layers
from edgesim.costs.describe import known_layers, measured_layers
from edgesim.costs.measured import measured_work
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.work_meter import WorkMeter
from edgesim.learning.flat_model import FlatModel
from edgesim.models.dropout import seed_dropout_
from edgesim.models.own import OwnModelKind, build_own_model
from edgesim.scenario.files import scenario_of
from edgesim.study.notices.notices import listed

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="pip install 'edgesim[text]'"
)

N, T, L, D, H, F, V, K = 3, 8, 2, 16, 2, 24, 40, 4  # samples, tokens, blocks, width, heads, ...
SCENARIO = {
    "name": "counts",
    "fleet": {"devices": 2},
    "topology": {"kind": "ring"},
    "data": {"partition": {"kind": "iid"}, "batch_size": 8},
    "training": {"rounds": 1, "optimizer": {"lr": 0.1}},
    "gossip": {
        "algorithm": "choco",
        "averaging_rate": 1.0,
        "compressor": {"kind": "identity", "values": "fp32"},
    },
}


def model_layers(precision):
    model = {"name": "small_cnn", "precision": precision}
    return make_layers(scenario_of(SCENARIO | {"model": model}), PLAIN)


def model_of(precision):
    from edgesim.models.text.encoder import distilbert

    def make(input_shape, num_classes):
        return distilbert(
            input_shape,
            num_classes,
            vocabulary=V,
            layers=L,
            width=D,
            heads=H,
            hidden=F,
            positions=T,
        )

    inputs = torch.ones((N, 2, T), dtype=torch.int64)
    own = build_own_model(
        OwnModelKind(name="distilbert", make=make),
        input_shape=(2, T),
        num_classes=K,
        layers=model_layers(precision),
        seed=1,
        example=inputs,
    )
    return FlatModel(own, around_step=own.around_step), inputs


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_work_of_a_step_is_that_of_its_products(precision):
    """In 8 bits all products but those of the weight gradients are integers."""
    flat, inputs = model_of(precision)
    seed_dropout_(flat.leaf_modules, 0)
    _, _, work = MeteredModel(flat).loss_and_gradient(inputs, torch.zeros(N, dtype=torch.int64))
    linear = N * T * L * (4 * D * D + 2 * D * F) + N * (D * D + D * K)
    attention = N * L * 2 * T * T * D
    if precision == "fp32":
        assert work.macs_fp32 == 3 * (linear + attention)
        assert work.macs_int8 == 0
    else:
        assert work.macs_fp32 == linear
        assert work.macs_int8 == 2 * linear + 3 * attention
    assert work.elementwise_ops > 0


def test_both_precisions_have_the_same_parameters():
    shapes = {model_of(p)[0].layout for p in ("fp32", "int8")}
    assert len(shapes) == 1


def test_what_stays_in_fp32_is_named():
    model = model_of("int8")[0].model
    kinds = {said.rpartition("(")[2].rstrip(")") for said in model.stays_fp32}
    assert kinds.isdisjoint({"Linear", "LayerNorm", "Embedding", "MatrixProduct"})
    assert "GELUActivation" in kinds


class Outer(nn.Module):
    """Runs layers with closed forms, and in between one sum."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
        self.last = nn.Linear(5, K)

    def forward(self, x):
        return self.last(self.inner(x) + 1)


def test_measured_work_is_that_of_operations_outside_of_known_layers():
    """A container adds nothing; the inputs of layers, which are copied to measure, do not count."""
    own = build_own_model(
        OwnModelKind(name="outer", make=lambda *_: Outer()),
        input_shape=(6,),
        num_classes=K,
        layers=model_layers("fp32"),
        seed=1,
        example=torch.zeros(N, 6),
    )
    found = measured_work(own, frozenset(known_layers(own)), (N, 6))
    assert found.forward.elementwise_ops == N * 5
    assert measured_layers(own, found.parts) == ("the model (Outer)",)
    assert not measured_layers(own, found.parts - {""})


def test_containers_of_an_encoder_are_not_named():
    flat, inputs = model_of("fp32")
    seed_dropout_(flat.leaf_modules, 0)
    meter = WorkMeter(flat)
    with meter.watch(inputs.shape):
        flat.loss_and_gradient(inputs, torch.zeros(N, dtype=torch.int64))
    named = measured_layers(flat.model, meter.measured_parts)
    kinds = {said.rpartition("(")[2].rstrip(")") for said in named}
    assert {"AttentionProducts", "GELUActivation", "TransformerBlock"} <= kinds
    assert kinds.isdisjoint({"FFN", "Transformer", "ModuleList"})


def test_many_parts_of_a_model_are_told_by_their_types():
    parts = [f"block.{i}.act (GELU)" for i in range(6)]
    parts += [f"operators in the forward pass of block.{i} (Block)" for i in range(6)]
    parts.append("last (Tanh)")
    assert listed(parts) == "6 GELU, Tanh, 6 operators in the forward pass of Block"
    assert listed(parts[:2]) == "block.0.act (GELU), block.1.act (GELU)"
