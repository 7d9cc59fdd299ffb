"""Work that is counted while layers run, against counts by hand."""

from dataclasses import replace

import pytest
import torch
from cost_models import SETTINGS, batch_of, flat_model, fp32, int8
from torch import nn

from edgesim.costs.errors import CostError
from edgesim.costs.work_meter import WorkMeter
from edgesim.learning.flat_model import FlatModel
from edgesim.quant.errors import NonFiniteError

# small_cnn on 1 x 8 x 8 pixels: three 3x3 convolutions on 64, 16 and 4 pixels, then 64 -> 10.
FIRST = 16 * 9 * 64
MACS = FIRST + 32 * 16 * 9 * 16 + 64 * 32 * 9 * 4 + 64 * 10


def metered(model, images, labels):
    meter = WorkMeter(model)
    with meter.watch(images.shape):
        model.loss_and_gradient(images, labels)
    return meter.work(images.shape)


def small(layers, batch_size=6):
    return metered(flat_model("small_cnn", (1, 8, 8), layers), *batch_of((1, 8, 8), batch_size))


def test_fp32_macs_are_those_by_hand_and_the_first_layer_has_no_input_gradient():
    work = small(fp32())
    assert work.forward.macs == work.forward.macs_fp32 == 6 * MACS
    assert work.input_gradient.macs == work.input_gradient.macs_fp32 == 6 * (MACS - FIRST)
    assert work.weight_gradient.macs == work.weight_gradient.macs_fp32 == 6 * MACS
    assert work.total.macs == 6 * (3 * MACS - FIRST)


@pytest.mark.parametrize(
    ("weight_gradient", "field"),
    [("fp32", "macs_fp32"), ("fp16", "macs_16bit"), ("bf16", "macs_16bit"), ("int8", "macs_int8")],
)
def test_in_8_bits_only_the_weight_gradient_may_be_wider(weight_gradient, field):
    work = small(int8(replace(SETTINGS, weight_gradient=weight_gradient)))
    assert work.forward.macs == work.forward.macs_int8 == 6 * MACS
    assert work.input_gradient.macs == work.input_gradient.macs_int8 == 6 * (MACS - FIRST)
    assert work.weight_gradient.macs == getattr(work.weight_gradient, field) == 6 * MACS


def test_a_depthwise_convolution_has_one_product_for_each_tap():
    work = metered(flat_model("mobilenet_v2", (3, 8, 8), fp32()), *batch_of((3, 8, 8), 2))
    by_name = {layer.layer.name: layer for layer in work.layers}
    # The second block widens 16 channels to 96 and filters each with 3x3 taps on 8x8 pixels.
    assert by_name["features.3.branch.2"].forward.macs == 2 * 96 * 9 * 64


@pytest.mark.parametrize("layers", [fp32(), int8()], ids=["fp32", "int8"])
def test_work_is_linear_in_the_batch_but_for_what_is_done_once_for_the_weights(layers):
    one, two, three = (small(layers, batch_size).total for batch_size in (2, 3, 4))
    for count in ("macs_fp32", "macs_int8", "elementwise_ops", "traffic_bytes"):
        a, b, c = (getattr(work, count) for work in (one, two, three))
        assert c - b == b - a
    assert 2 * one.macs == three.macs
    assert 2 * one.traffic_bytes > three.traffic_bytes


class Flat(nn.Sequential):
    """A subclass of a known container; what it does is not known."""


def linear_model():
    return FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3)))


def test_elementwise_work_and_traffic_of_a_linear_classifier_are_those_by_hand():
    work = metered(linear_model(), torch.randn(4, 3, 2, 2), torch.zeros(4, dtype=torch.int64))
    _, first, relu, second, loss = work.layers
    assert first.forward.macs == 4 * 12 * 5
    assert first.forward.elementwise_ops == 4 * 5  # the bias
    operands = 4 * 12 + 12 * 5 + 4 * 5
    assert first.forward.traffic_bytes == 4 * (operands + 5)
    assert first.input_gradient.macs == first.input_gradient.traffic_bytes == 0
    assert first.weight_gradient == first.forward  # sums of g where the forward pass adds the bias
    assert relu.forward.elementwise_ops == relu.input_gradient.elementwise_ops == 4 * 5
    assert relu.input_gradient.traffic_bytes == 3 * 4 * 4 * 5
    assert second.input_gradient.macs == 4 * 5 * 3
    assert second.input_gradient.traffic_bytes == 4 * (4 * 5 + 5 * 3 + 4 * 3)
    # Log-softmax: maximum, difference, exp, sum, difference; exp, difference, product.
    assert (loss.forward.elementwise_ops, loss.input_gradient.elementwise_ops) == (60, 36)


def test_codes_are_a_byte_of_traffic_and_cost_their_rounding():
    """A first 8-bit layer: no input gradient, and its weight gradient sees fp32."""
    work = small(int8(), 1).layers[1]
    x, w, y = 64, 16 * 9, 16 * 64
    assert work.forward.traffic_bytes == 5 * (x + w) + 4 * y
    # Input: range 2, scale, zero point, rounding, two ends. Weights: |w|, maximum, scale, rounding,
    # two ends. Output: zero point's share, scale.
    assert work.forward.elementwise_ops == 7 * x + 6 * w + 2 * y
    assert work.weight_gradient.traffic_bytes == x + 4 * y + 4 * w


def test_the_bias_of_an_8_bit_layer_is_added_forwards_and_summed_over_backwards():
    """The classifier, 64 -> 10 with 10 biases, on 2 images; nearest rounding."""
    work = small(int8(replace(SETTINGS, gradient_rounding="nearest")), 2).layers[-2]
    assert (work.layer.kind, work.layer.num_affine) == ("linear", 10)
    x, w, y = 2 * 64, 640, 2 * 10
    # As above, and each output plus its bias.
    assert work.forward.elementwise_ops == 7 * x + 6 * w + 2 * y + y
    assert work.forward.traffic_bytes == 5 * (x + w) + 4 * (y + 10)
    # The gradient to codes 7; sums of products, zero point's share and scale.
    assert work.input_gradient.elementwise_ops == 7 * y + 2 * x
    # Codes of x less their zero point, sums times the scale, the bias's sum of the gradient.
    assert work.weight_gradient.elementwise_ops == x + w + y
    assert work.weight_gradient.traffic_bytes == x + 4 * y + 4 * (w + 10)


def test_stochastic_rounding_costs_its_noise():
    nearest = small(int8(replace(SETTINGS, gradient_rounding="nearest"))).total
    stochastic = small(int8()).total
    # Gradients at 2 convolutions after the first, 1 linear layer and 3 norms; 12 hash operations
    # for a pair of entries, scaling, sum.
    entries = 6 * (32 * 16 + 64 * 4 + 10 + 16 * 64 + 32 * 16 + 64 * 4)
    assert stochastic.elementwise_ops - nearest.elementwise_ops == entries * (6 + 1 + 1)


@pytest.mark.parametrize("norm", ["batch", "group", "evonorm_s0", "range_evonorm", "range_batch"])
@pytest.mark.parametrize("make", [fp32, int8], ids=["fp32", "int8"])
def test_every_norm_has_counts_in_every_pass(norm, make):
    work = small(make(norm=norm))
    norms = [layer for layer in work.layers if layer.layer.name == "features.1"]
    assert len(norms) == 1
    for counts in (norms[0].forward, norms[0].input_gradient, norms[0].weight_gradient):
        assert counts.traffic_bytes > 0
        assert counts.macs == 0
    assert norms[0].total.elementwise_ops > 6 * 16 * 64 * 15


def test_a_norm_that_stays_fp32_in_an_8_bit_model_does_the_same_work_as_in_fp32():
    in_int8, in_fp32 = (small(make(norm="group")).layers[2] for make in (int8, fp32))
    assert in_int8 == in_fp32


def test_a_module_of_unknown_type_is_refused_with_its_name():
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(12, 5), nn.Softplus())))
    with pytest.raises(CostError, match=r"1\.1: modules of type Softplus have no counts"):
        WorkMeter(model)


def test_a_subclass_of_a_known_module_is_not_taken_for_it():
    with pytest.raises(CostError, match="the model: modules of type Flat"):
        WorkMeter(FlatModel(Flat(nn.Flatten(), nn.Linear(12, 5))))


def test_hooks_are_there_only_during_the_first_step_of_a_shape():
    model = flat_model("small_cnn", (1, 8, 8), fp32())
    images, labels = batch_of((1, 8, 8), 2)
    meter = WorkMeter(model)

    def hooks():
        modules = model.model.modules()
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)

    with meter.watch(images.shape):
        assert hooks() > 0
        model.loss_and_gradient(images, labels)
    assert hooks() == 0
    work = meter.work(images.shape)
    with meter.watch(images.shape):
        assert hooks() == 0
    assert meter.work(images.shape) is work


def test_metering_leaves_the_step_as_it_is():
    images, labels = batch_of((1, 8, 8), 2)
    plain, hooked = (flat_model("small_cnn", (1, 8, 8), int8()) for _ in range(2))
    loss, gradient = plain.loss_and_gradient(images, labels)
    with WorkMeter(hooked).watch(images.shape):
        watched_loss, watched_gradient = hooked.loss_and_gradient(images, labels)
    assert loss == watched_loss
    assert torch.equal(gradient, watched_gradient)


def test_only_one_training_step_can_be_watched():
    model = flat_model("small_cnn", (1, 8, 8), fp32())
    images, labels = batch_of((1, 8, 8), 2)
    meter = WorkMeter(model)
    with pytest.raises(CostError, match="0 forward passes"), meter.watch(images.shape):
        pass
    with pytest.raises(CostError, match="2 forward passes"), meter.watch(images.shape):
        [model.loss_and_gradient(images, labels) for _ in range(2)]
    with pytest.raises(CostError, match="an evaluation"), meter.watch(images.shape):
        model.evaluate([(images, labels)])
    with pytest.raises(CostError, match=r"\(2, 1, 8, 8\) was hooked"):
        meter.work(images.shape)


def test_a_step_that_fails_leaves_no_count_and_no_hooks():
    model = flat_model("small_cnn", (1, 8, 8), int8())
    images, labels = batch_of((1, 8, 8), 2)
    meter = WorkMeter(model)
    with pytest.raises(NonFiniteError), meter.watch(images.shape):
        model.loss_and_gradient(images * float("nan"), labels)
    with pytest.raises(CostError):
        meter.work(images.shape)
    with meter.watch(images.shape):
        model.loss_and_gradient(images, labels)
    assert meter.work(images.shape).forward.macs == 2 * MACS
