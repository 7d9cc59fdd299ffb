"""Counts against formulas of architectures, layers that really ran, and published counts."""

from dataclasses import replace
from functools import cache
from math import prod

import pytest
import torch
from architectures import planned
from cost_models import CASES, SETTINGS, batch_of, flat_model, fp32, int8
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from edgesim.costs.closed_form import closed_form
from edgesim.costs.describe import layer_of
from edgesim.costs.errors import CostError
from edgesim.costs.layer import NORM_KINDS
from edgesim.costs.layer_work import num_products
from edgesim.costs.model_form import ModelForm
from edgesim.costs.work_meter import WorkMeter
from edgesim.learning.flat_model import FlatModel
from edgesim.models import MODELS, NORMS
from edgesim.models.catalog import build_model
from edgesim.models.kind import ModelSize


def form_of(name, image_shape, settings=None, norm=None):
    default = "evonorm_s0" if settings is None else "range_evonorm"
    return ModelForm(
        name=name,
        image_shape=image_shape,
        num_classes=10,
        norm=norm or default,
        settings=settings,
    )


@cache
def ran(name, image_shape, batch_size, precision):
    """The model, and the work of a step that was run."""
    model = flat_model(name, image_shape, fp32() if precision == "fp32" else int8())
    meter = WorkMeter(model)
    images, labels = batch_of(image_shape, batch_size)
    with meter.watch(images.shape):
        model.loss_and_gradient(images, labels)
    return model, meter.work(images.shape)


def formulas(name, image_shape, batch_size, precision):
    settings = None if precision == "fp32" else SETTINGS
    return closed_form(form_of(name, image_shape, settings), batch_size)


def test_every_model_of_the_catalog_is_compared():
    assert {name for name, _, _ in CASES} == set(MODELS)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][1]}x{case[1][2]}")
def test_counted_macs_equal_the_closed_form(case, precision):
    (_, counted), by_formula = ran(*case, precision), formulas(*case, precision)
    assert counted.forward.macs == by_formula.step_work.forward.macs
    assert counted.input_gradient.macs == by_formula.step_work.input_gradient.macs
    assert counted.weight_gradient.macs == by_formula.step_work.weight_gradient.macs
    assert counted.total.macs == by_formula.step_work.total.macs


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][1]}x{case[1][2]}")
def test_the_layers_that_ran_are_those_of_the_formulas(case, precision):
    """So all their work is known before training: element-wise operations and traffic as well."""
    (model, counted), by_formula = ran(*case, precision), formulas(*case, precision)
    assert tuple(work.layer for work in counted.layers) == by_formula.layers
    assert counted.total == by_formula.step_work.total
    assert by_formula.num_trainable == model.num_trainable
    assert by_formula.flat_shapes == model.layout.shapes


def assert_planned(form, batch_size):
    counts, plan = closed_form(form, batch_size), planned(form, batch_size)
    assert counts.layers == tuple(plan.layers)
    assert counts.parameter_shapes == tuple(plan.parameter_shapes)
    assert counts.num_quantizers == plan.num_quantizers
    forward = plan.macs_per_sample * batch_size
    assert counts.step_work.forward.macs == counts.step_work.weight_gradient.macs == forward
    first = plan.first_macs_per_sample * batch_size
    assert counts.step_work.input_gradient.macs == forward - first


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][1]}x{case[1][2]}")
def test_counts_are_those_of_the_architectures_formulas(case, precision):
    name, image_shape, batch_size = case
    settings = None if precision == "fp32" else SETTINGS
    assert_planned(form_of(name, image_shape, settings), batch_size)


@pytest.mark.parametrize("conv_bias", [True, False])
@pytest.mark.parametrize("gate", ["sigmoid", "hard_sigmoid"])
@pytest.mark.parametrize("settings", [None, SETTINGS], ids=["fp32", "int8"])
def test_gates_and_biases_are_those_of_the_form(gate, conv_bias, settings):
    form = form_of("vgg11", (3, 32, 32), settings, "range_evonorm")
    assert_planned(replace(form, gate=gate, conv_bias=conv_bias), 2)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_formulas_know_every_norm(norm, precision):
    make, settings = (fp32, None) if precision == "fp32" else (int8, SETTINGS)
    model = flat_model("small_cnn", (1, 9, 11), make(norm=norm))
    meter = WorkMeter(model)
    images, labels = batch_of((1, 9, 11), 2)
    with meter.watch(images.shape):
        model.loss_and_gradient(images, labels)
    form = form_of("small_cnn", (1, 9, 11), settings, norm)
    assert_planned(form, 2)
    by_formula = closed_form(form, 2)
    assert tuple(w.layer for w in meter.work(images.shape).layers) == by_formula.layers


@pytest.mark.parametrize(("depth", "width"), [(8, 8), (14, 24), (33, 16)])
def test_formulas_know_resnets_of_any_size(depth, width):
    layers, generator = fp32(), torch.Generator().manual_seed(1)
    size = ModelSize(depth, width)
    model = FlatModel(
        build_model(
            "resnet",
            image_shape=(3, 8, 8),
            num_classes=10,
            layers=layers,
            generator=generator,
            size=size,
        )
    )
    meter = WorkMeter(model)
    images, labels = batch_of((3, 8, 8), 2)
    with meter.watch(images.shape):
        model.loss_and_gradient(images, labels)
    form = replace(form_of("resnet", (3, 8, 8)), depth=depth, width=width)
    assert_planned(form, 2)
    by_formula = closed_form(form, 2)
    assert tuple(w.layer for w in meter.work(images.shape).layers) == by_formula.layers
    assert by_formula.flat_shapes == model.layout.shapes
    # 6 n convolutions in blocks, the first one, the head, and two on shortcuts: reference.md, 5.
    convolutions = [layer for layer in by_formula.layers if layer.kind == "convolution"]
    assert len(convolutions) == 6 * ((depth - 2) // 6) + 1 + 2
    assert convolutions[0].output_shape[1] == width


def test_gossiped_ranges_follow_the_trained_parameters():
    settings = replace(SETTINGS, ranges="gossiped")
    model = flat_model("resnet20", (3, 8, 8), int8(settings))
    by_formula = closed_form(form_of("resnet20", (3, 8, 8), settings), 1)
    assert by_formula.num_quantizers == 61  # reference.md, section 1.5
    assert by_formula.flat_shapes == model.layout.shapes


# reference.md, section 5; forward MACs there are printed to four digits.
PUBLISHED = [
    ("resnet20", 32, 273_258, 40.81e6),
    ("resnet54", 32, 760_458, 111.6e6),
    ("resnet18", 224, 11_186_442, None),
    ("vgg11", 32, 9_496_522, None),
    ("mobilenet_v2", 32, 2_314_466, None),
    ("small_cnn", 32, 24_458, 2.8e6),
]


@pytest.mark.parametrize(("name", "side", "parameters", "macs"), PUBLISHED)
def test_published_counts(name, side, parameters, macs):
    by_formula = closed_form(form_of(name, (3, side, side)), 4)
    assert by_formula.num_trainable == parameters
    if macs is not None:
        assert by_formula.forward_macs_per_sample == pytest.approx(macs, rel=1e-2)


def test_resnet20_macs_and_activations_are_those_by_hand():
    """Sum over stages of width w on s x s pixels; reference.md, sections 5 and 6."""
    stem = 9 * 3 * 16 * 32 * 32
    first = 6 * 9 * 16 * 16 * 32 * 32
    second = 16 * 16 * (9 * 16 * 32 + 5 * 9 * 32 * 32 + 16 * 32)
    third = 8 * 8 * (9 * 32 * 64 + 5 * 9 * 64 * 64 + 32 * 64)
    forward = stem + first + second + third + 64 * 10
    by_formula = closed_form(form_of("resnet20", (3, 32, 32)), 32)
    assert by_formula.forward_macs_per_sample == forward == 40_813_184
    # reference.md, section 6: 3.918 GMAC
    assert 3 * by_formula.step_work.forward.macs == 3 * 32 * forward == 3_918_065_664
    assert by_formula.step_work.total.macs == 32 * (3 * forward - stem)
    # reference.md, section 6 counts the 10 logits, which the loss reads, among either.
    assert by_formula.product_inputs + by_formula.norm_inputs + 10 == 412_746
    kinds = {"convolution", "residual_sum", *NORM_KINDS}
    shapes = [layer.output_shape[1:] for layer in by_formula.layers if layer.kind in kinds]
    assert sum(map(prod, shapes)) + 10 == 487_434


def test_a_model_without_formulas_is_refused():
    with pytest.raises(CostError, match="no counts for a model named 'alexnet'"):
        closed_form(form_of("alexnet", (3, 32, 32)), 1)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(16, 32, 3), (2, 16, 50)),
        (nn.Conv1d(16, 32, 3), (16, 50)),
        (nn.Conv1d(16, 32, 5, stride=2, padding=4, dilation=2, groups=4), (3, 16, 41)),
        (nn.Conv2d(8, 4, (1, 5), stride=(2, 1)), (2, 8, 7, 9)),
        (nn.Conv2d(8, 4, 3), (8, 7, 9)),
    ],
    ids=["signals", "one signal", "strides and groups", "rectangle", "one image"],
)
def test_products_of_a_convolution_are_those_that_torch_counts(layer, shape):
    x = torch.randn(shape, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        y = layer(x)
    described = layer_of("conv", layer, x, y)
    assert 2 * num_products(described) == counter.get_total_flops()
