"""NaN and infinity are refused wherever a layer meets them, with layer and tensor named."""

from __future__ import annotations

import pytest
import torch
from test_quantized_layers import EVERY_LAYER, activations, call, make, resnet20, step

from edgesim.quant.errors import NonFiniteError

BAD = pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])


@BAD
@EVERY_LAYER
@pytest.mark.parametrize("training", [True, False])
def test_activations_that_are_not_finite_are_refused(kind, bad, training):
    layer = make(kind).train(training)
    x = activations(kind)
    x.view(-1)[17] = bad
    with pytest.raises(NonFiniteError, match="activations of layer one hold NaN"):
        call(layer, kind, x)
    assert torch.cat([layer.input.low, layer.input.high]).isfinite().all(), (
        "the running range is not spoilt"
    )


@BAD
@EVERY_LAYER
def test_activations_that_are_not_finite_are_refused_in_evaluation_after_training(kind, bad):
    layer = make(kind)
    step(layer, kind)
    x = activations(kind)
    x.view(-1)[17] = bad
    with pytest.raises(NonFiniteError, match="activations of layer one"):
        call(layer.eval(), kind, x)


def test_a_running_range_that_is_not_finite_is_named_in_evaluation():
    layer = make("conv").eval()
    layer.input.high.fill_(float("inf"))
    with pytest.raises(NonFiniteError, match=r"\brunning ranges of layer one hold NaN"):
        layer(activations("conv"))


@BAD
def test_both_inputs_of_a_sum_are_checked(bad):
    x = activations("sum")
    y = x.clone()
    y[2, 3, 1, 1] = bad
    for pair in ((x, y), (y, x)):
        with pytest.raises(NonFiniteError, match="activations of layer one"):
            make("sum")(*pair)


@BAD
@pytest.mark.parametrize("weight_range", ["per_tensor", "per_out_channel"])
@pytest.mark.parametrize("kind", ["conv", "linear"])
def test_weights_that_are_not_finite_are_refused(kind, weight_range, bad):
    layer = make(kind, weight_range=weight_range)
    with torch.no_grad():
        layer.weight.view(-1)[5] = bad
    with pytest.raises(NonFiniteError, match="weights of layer one hold NaN"):
        layer(activations(kind))


@BAD
def test_weights_that_are_not_finite_are_refused_with_a_float_offset(bad):
    layer = make("conv", zero_point="float_offset")
    with torch.no_grad():
        layer.weight.view(-1)[5] = bad
    with pytest.raises(NonFiniteError, match="weights of layer one hold NaN"):
        layer(activations("conv"))


@BAD
@pytest.mark.parametrize(
    ("kind", "parameter"),
    [
        ("conv", "bias"),
        ("linear", "bias"),
        *(("range_evonorm", name) for name in ("v", "gamma", "beta")),
        *(("range_batch_norm", name) for name in ("gamma", "beta")),
    ],
)
@pytest.mark.parametrize("zero_point", ["integer", "float_offset"])
def test_parameters_that_are_not_finite_are_refused(kind, parameter, zero_point, bad):
    layer = make(kind, zero_point=zero_point)
    with torch.no_grad():
        getattr(layer, parameter)[3] = bad
    with pytest.raises(NonFiniteError, match="parameters of layer one hold NaN"):
        layer(activations(kind))


@BAD
@EVERY_LAYER
@pytest.mark.parametrize("zero_point", ["integer", "float_offset"])
def test_gradients_that_are_not_finite_are_refused(kind, zero_point, bad):
    layer = make(kind, zero_point=zero_point)
    y = call(layer, kind, activations(kind).requires_grad_())
    g = torch.ones(y.shape)
    g.view(-1)[11] = bad
    with pytest.raises(NonFiniteError, match="gradients of layer one hold NaN"):
        y.backward(g)


def test_gradients_are_refused_where_only_the_weights_want_them():
    layer = make("conv")
    y = layer(activations("conv"))
    with pytest.raises(NonFiniteError, match="gradients"):
        y.backward(torch.full_like(y, float("nan")))


@EVERY_LAYER
def test_a_range_that_is_too_wide_for_float32_is_refused(kind):
    """Its ends are finite, but a step between two codes would not be."""
    layer, x = make(kind), activations(kind)
    x.view(len(x), -1)[:, :2] = torch.tensor([-3e38, 3e38])
    with pytest.raises(NonFiniteError, match="activations of layer one"):
        call(layer, kind, x)


@pytest.mark.parametrize(
    ("layer", "parameter", "tensor"),
    [
        ("features.0", "weight", "weights"),
        ("features.1", "gamma", "parameters"),
        ("features.5.shortcut.0", "weight", "weights"),
        ("features.10.branch.3", "v", "parameters"),
        ("head", "bias", "parameters"),
    ],
)
def test_errors_of_a_model_name_the_layer(layer, parameter, tensor):
    model = resnet20()
    with torch.no_grad():
        getattr(model.get_submodule(layer), parameter).view(-1)[0] = float("inf")
    with pytest.raises(NonFiniteError, match=f"^{tensor} of layer {layer} hold NaN") as caught:
        model(torch.ones(1, 3, 8, 8))
    assert (caught.value.layer, caught.value.tensor) == (layer, tensor)
