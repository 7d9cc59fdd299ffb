"""Quantized layers: running ranges, seeds, switches of rounding, names."""

from __future__ import annotations

import numpy as np
import plain_quantization as plain
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from edgesim.models import EightBit, build_model
from edgesim.quant.arithmetic import Geometry
from edgesim.quant.errors import LayerInputError
from edgesim.quant.layers import (
    InputQuantizer,
    QuantizedConv2d,
    QuantizedLinear,
    QuantizedSum,
    name_layers_,
    seed_rounding_,
)
from edgesim.quant.norms import QuantizedRangeBatchNorm, QuantizedRangeEvoNorm
from edgesim.quant.reference import Reference

LAYERS = ["conv", "linear", "sum", "range_evonorm", "range_batch_norm"]
EVERY_LAYER = pytest.mark.parametrize("kind", LAYERS)


def make(kind, **changes):
    """One layer for activations of 8 channels, named `one`, with random parameters."""
    switches = plain.settings(**changes)
    arithmetic = Reference(has_integer_zero=switches.has_integer_zero)
    options = {"arithmetic": arithmetic, "settings": switches}
    match kind:
        case "conv":
            layer = QuantizedConv2d(8, 8, Geometry.square(3, padding=1), bias=True, **options)
        case "linear":
            layer = QuantizedLinear(8, 8, **options)
        case "sum":
            layer = QuantizedSum(arithmetic, switches)
        case "range_evonorm":
            layer = QuantizedRangeEvoNorm(8, groups=4, **options)
        case "range_batch_norm":
            layer = QuantizedRangeBatchNorm(8, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.requires_grad:
                parameter.normal_(1, 0.3, generator=generator)
    model = nn.ModuleDict({"one": layer})
    name_layers_(model)
    seed_rounding_(model, 1)
    return layer


def activations(kind, seed=0, samples=3):
    shape = (samples, 8) if kind == "linear" else (samples, 8, 4, 5)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def grid_for(layer, x):
    """Grid that a layer takes for its first input."""
    x_NCHW = x[:, :, None, None] if x.dim() == 2 else x
    return layer.input(x_NCHW, layer.input.layer_step()).grid


def call(layer, kind, x):
    return layer(x, x.flip(0) * 2) if kind == "sum" else layer(x)


def step(layer, kind, seed=0):
    """Output and gradients of one training step."""
    x = activations(kind, seed).requires_grad_()
    y = call(layer, kind, x)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed + 1))
    return y.detach(), torch.autograd.grad(y, [x, *layer.parameters()], g)


def running(quantizer):
    """Running minimum and maximum."""
    return torch.cat([quantizer.low, quantizer.high])


def sample_range(x):
    """Mean over samples of their minima and maxima."""
    extremes = [f(x.double().flatten(1), dim=1) for f in (torch.amin, torch.amax)]
    return [float(e.mean().float()) for e in extremes]


# --- ranges


@EVERY_LAYER
def test_the_running_range_is_a_tenth_of_the_old_and_nine_of_the_batch_but_first_the_batchs(kind):
    layer, expected = make(kind), None
    for seed in range(3):
        call(layer, kind, activations(kind, seed))
        batch = torch.tensor(sample_range(activations(kind, seed)))
        expected = batch if expected is None else 0.1 * expected + 0.9 * batch
    torch.testing.assert_close(running(layer.input), expected)


def test_both_inputs_of_a_sum_have_ranges_of_their_own():
    layer, x = make("sum"), activations("sum")
    layer(x, 2 * x)
    torch.testing.assert_close(running(layer.shortcut), 2 * running(layer.input))
    low, high = sample_range(x)
    torch.testing.assert_close(running(layer.input), torch.tensor([low, high]))


@EVERY_LAYER
def test_training_takes_the_range_of_the_batch_and_not_the_running_one(kind):
    fresh, seasoned = make(kind), make(kind)
    call(seasoned, kind, 10 * activations(kind, seed=5))
    x = activations(kind)
    assert torch.equal(call(fresh, kind, x), call(seasoned, kind, x))


def test_the_range_of_a_batch_is_the_mean_of_its_samples_and_clips_beyond():
    """reference.md, section 1.2: (0 + 0) / 2 to (1 + 3) / 2; the sample that reaches 3 ends at
    2."""
    x = torch.zeros(2, 8, 1, 2)
    x[0, 0, 0, 0], x[1, 0, 0, 0] = 1.0, 3.0
    layer = make("sum")
    y = layer(x, torch.zeros_like(x))
    assert layer.input.grid(x, layer.input.layer_step()).scale == np.float32(2) / np.float32(255)
    assert float(y.max()) == pytest.approx(2.0)


@EVERY_LAYER
def test_a_range_that_was_never_seen_is_that_of_the_batch(kind):
    layer, reference = make(kind).eval(), make(kind)
    for scale in (1, 3):
        x = scale * activations(kind)
        assert grid_for(layer, x) == grid_for(reference, x)
        assert running(layer.input).eq(0).all()


@EVERY_LAYER
def test_evaluation_takes_the_running_range_and_leaves_it_alone(kind):
    layer = make(kind)
    step(layer, kind)
    layer.eval()
    before = {name: b.clone() for name, b in layer.named_buffers()}
    low, high = (float(r) for r in running(layer.input))
    x = 5 * activations(kind, 9)
    call(layer, kind, x)
    assert grid_for(layer, x) == plain.grid_of(low, high)
    for name, buffer in layer.named_buffers():
        assert torch.equal(buffer, before[name])


@EVERY_LAYER
def test_a_sample_is_evaluated_the_same_alone_and_in_a_batch(kind):
    layer = make(kind)
    step(layer, kind)
    layer.eval()
    if kind == "sum":
        pair = activations(kind), activations(kind, 1)
        whole, first = layer(*pair), layer(*(t[:1] for t in pair))
    else:
        x = activations(kind)
        whole, first = layer(x), layer(x[:1])
    # the scales of a batch have a common grid (reference.md, section 1.2)
    if kind == "range_evonorm":
        atol = 0.02 * float(whole.detach().abs().max())
        torch.testing.assert_close(first, whole[:1], rtol=0, atol=atol)
    else:
        assert torch.equal(first, whole[:1])


@pytest.mark.parametrize("ranges", ["local", "gossiped"])
def test_gossiped_ranges_are_parameters_without_gradient_and_local_ones_buffers(ranges):
    """reference.md, section 1.5: two for each quantizer, which the reference code gossips."""
    for kind in LAYERS:
        layer = make(kind, ranges=ranges)
        parameters, buffers = dict(layer.named_parameters()), dict(layer.named_buffers())
        there, absent = (parameters, buffers) if ranges == "gossiped" else (buffers, parameters)
        for name in ("input.low", "input.high"):
            assert name in there
            assert name not in absent
            assert there[name].shape == (1,)
            assert not there[name].requires_grad


def test_range_momentum_is_the_weight_of_the_old_range():
    layer = make("conv", range_momentum=0.75)
    extremes = [sample_range(activations("conv", seed)) for seed in (1, 2)]
    for seed in (1, 2):
        layer(activations("conv", seed))
    expected = 0.75 * torch.tensor(extremes[0]) + 0.25 * torch.tensor(extremes[1])
    torch.testing.assert_close(running(layer.input), expected)


def test_forgotten_ranges_are_unseen():
    quantizer = make("conv").input
    quantizer(activations("conv"), quantizer.layer_step())
    quantizer.reset_ranges()
    grid = quantizer.eval().grid(torch.ones(1, 8, 2, 2), quantizer.layer_step())
    assert grid == plain.grid_of(0.0, 1.0)


def test_range_batch_norm_is_evaluated_with_running_statistics_in_8_bits():
    layer = make("range_batch_norm")
    step(layer, "range_batch_norm")
    layer.eval()
    x = activations("range_batch_norm", 4)
    grid = plain.grid_of(*running(layer.input).tolist())
    x_hat = plain.numbers_of(plain.codes_of(x.numpy(), grid), grid)
    s, gamma, beta = (
        plain.rounded(t.detach().numpy()).reshape(1, 8, 1, 1)
        for t in (layer.running_scale, layer.gamma, layer.beta)
    )
    mean = layer.running_mean.numpy().reshape(1, 8, 1, 1)
    expected = np.maximum((x_hat - mean) * s * gamma + beta, 0)
    torch.testing.assert_close(layer(x), torch.from_numpy(expected))


# --- layers are the functions of their parts


def test_a_linear_layer_is_a_convolution_of_one_pixel():
    assert make("linear").geometry == Geometry.square(1)


def test_a_layer_that_stands_alone_is_the_first_of_a_model_and_its_seed_is_zero():
    """Neither named nor seeded; gradients are rounded at random."""
    alone = QuantizedLinear(
        8, 8, arithmetic=Reference(has_integer_zero=True), settings=plain.settings()
    )
    of_model = make("linear")
    alone.load_state_dict(of_model.state_dict())
    seed_rounding_(of_model, 0)
    for ours, expected in zip(step(alone, "linear")[1], step(of_model, "linear")[1], strict=True):
        assert ours.equal(expected)


def test_a_linear_layer_is_the_product_with_its_codes():
    layer, x = make("linear"), activations("linear")
    grid = plain.grid_of(*sample_range(x))
    k, scales = plain.weight_codes(
        layer.weight.detach().numpy()[:, :, None, None], per_out_channel=False
    )
    centered = plain.codes_of(x.numpy(), grid) - int(grid.zero_point)
    sums = (centered @ k[:, :, 0, 0].T).astype(np.float32)
    expected = sums * (scales * np.float32(grid.scale)) + plain.rounded(layer.bias.detach().numpy())
    np.testing.assert_array_equal(layer(x).detach().numpy(), expected)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_sum_adds_the_numbers_of_both_codes_and_quantizes_its_gradient_once(rounding):
    layer = make("sum", activation_rounding=rounding)
    a, b = activations("sum").requires_grad_(), activations("sum", 1).mul(3).requires_grad_()
    seed = layer.input.layer_step().seed
    seed_rounding_(layer, 1)  # the same call again
    y = layer(a, b)
    expected = []
    for operand, place in ((a, 0), (b, 2)):
        x = operand.detach().permute(0, 2, 3, 1).contiguous().numpy()
        grid = plain.grid_of(*sample_range(operand.detach()))
        noise = plain.place_seed(seed, place) if rounding == "stochastic" else None
        expected.append(plain.numbers_of(plain.codes_of(x, grid, noise), grid))
    total = torch.from_numpy(expected[0] + expected[1]).permute(0, 3, 1, 2)
    assert torch.equal(y, total)

    g = activations("sum", 2)
    g_a, g_b = torch.autograd.grad(y, [a, b], g)
    g_NHWC = g.permute(0, 2, 3, 1).contiguous().numpy()
    grid = plain.grid_of(g_NHWC.min(), g_NHWC.max())
    g_hat = plain.numbers_of(plain.codes_of(g_NHWC, grid, plain.place_seed(seed, 1)), grid)
    assert torch.equal(g_a, torch.from_numpy(g_hat).permute(0, 3, 1, 2))
    assert torch.equal(g_a, g_b)


# --- seeds and switches


@EVERY_LAYER
def test_the_same_seed_gives_the_same_bits_and_another_one_another_gradient(kind):
    results = []
    for seed in (7, 7, 8):
        layer = make(kind)
        seed_rounding_(layer, seed)
        results.append(step(layer, kind))
    (y, first), (y_again, again), (y_other, other) = results
    assert torch.equal(y, y_again)
    assert torch.equal(y, y_other), "activations are rounded to nearest here"
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@EVERY_LAYER
def test_gradients_rounded_to_nearest_need_no_seed(kind):
    results = []
    for seed in (7, 8):
        layer = make(kind, gradient_rounding="nearest")
        seed_rounding_(layer, seed)
        results.append(step(layer, kind)[1])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@EVERY_LAYER
@pytest.mark.parametrize("stochastic", ["activation_rounding", "evaluation_rounding"])
def test_rounding_of_activations_is_chosen_for_training_and_for_evaluation(kind, stochastic):
    layer = make(kind, **{stochastic: "stochastic"})
    x = activations(kind)
    call(layer, kind, x)
    outputs = {}
    for mode in ("training", "evaluation"):
        layer.train(mode == "training")
        for seed in (1, 2):
            seed_rounding_(layer, seed)
            outputs[mode, seed] = call(layer, kind, x)
    depends = {
        m for m in ("training", "evaluation") if not torch.equal(outputs[m, 1], outputs[m, 2])
    }
    assert depends == {"training" if stochastic == "activation_rounding" else "evaluation"}


def test_every_input_of_a_model_has_a_seed_of_its_own():
    model = resnet20()
    seeds = []
    for seed in (1, 2):
        seed_rounding_(model, seed)
        seeds += [m.layer_step().seed for m in model.modules() if isinstance(m, InputQuantizer)]
    # reference.md, section 1.5 counts as many for the reference code: 21 convolutions, 21 norms, 9
    # sums of two, 1 head.
    assert len(seeds) == 2 * 61
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_seeding_a_model_without_quantized_layers_does_nothing():
    seed_rounding_(nn.Linear(2, 2), 1)


# --- names


def resnet20():
    switches = plain.settings()
    layers = EightBit("range_evonorm", Reference(has_integer_zero=True), switches, True)
    generator = torch.Generator().manual_seed(0)
    return build_model(
        "resnet20", image_shape=(3, 8, 8), num_classes=10, layers=layers, generator=generator
    )


def test_layers_of_a_built_model_know_their_names():
    model = resnet20()
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if isinstance(module, InputQuantizer):
            owner = modules[module.layer]
            assert module in (owner.input, getattr(owner, "shortcut", None)), name
    layers = {m.layer for m in modules.values() if isinstance(m, InputQuantizer)}
    assert len(layers) == 52  # 61 inputs, of which 9 sums have two
    assert {"head", "features.0", "features.2.branch.1", "features.5.shortcut.0"} <= layers
    assert "features.10.sum" in layers


# --- sums of other shapes


@pytest.mark.parametrize("shape", [(3, 160), (3, 20, 8), (3, 2, 4, 4, 5)])
def test_a_sum_of_any_shape_is_that_of_its_entries(shape):
    nearest = dict.fromkeys(("activation_rounding", "gradient_rounding"), "nearest")
    (y, (g,)), (flat_y, (flat_g,)) = (
        step_of_sum(make("sum", **nearest), activations("sum").view(size))
        for size in ((3, 8, 4, 5), shape)
    )
    assert flat_y.shape == flat_g.shape == shape
    torch.testing.assert_close(flat_y.view(y.shape), y, rtol=0, atol=0)
    torch.testing.assert_close(flat_g.view(g.shape), g, rtol=0, atol=0)


def step_of_sum(layer, x):
    x = x.clone().requires_grad_()
    y = layer(x, x.detach().flip(0) * 2)
    return y.detach(), torch.autograd.grad(y, [x], y.detach() ** 2)


@pytest.mark.parametrize("shapes", [((3, 8), (1, 8)), ((3, 8, 4, 4), (3, 8, 1, 1)), ((3,), (3,))])
def test_a_sum_of_unlike_branches_is_refused(shapes):
    with pytest.raises(LayerInputError, match="of one shape, samples first, not"):
        make("sum")(*(torch.ones(shape) for shape in shapes))


class Twice(nn.Module):
    """A layer that is called twice in a step."""

    def __init__(self):
        super().__init__()
        self.one = make("linear", activation_rounding="stochastic")

    def forward(self, x):
        return self.one(x), self.one(x)


def test_two_calls_in_a_step_have_noise_of_their_own():
    """With the same noise their errors would add up instead of cancelling in part."""
    model, x = Twice(), activations("linear")
    seed_rounding_(model, 1)
    first, second = model(x)
    assert not torch.equal(first, second)
    seed_rounding_(model, 1)
    assert torch.equal(model(x)[0], first)
    seed_rounding_(model, 1)
    assert torch.equal(model.one(x), first)


def test_what_is_computed_again_in_the_backward_pass_rounds_as_before():
    layer, x = make("linear", activation_rounding="stochastic"), activations("linear")
    gradients = []
    for again in (False, True):
        seed_rounding_(layer, 1)
        y = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        gradients.append(torch.autograd.grad(y.square().sum(), layer.weight)[0])
    assert torch.equal(*gradients)
    model = Twice()
    seed_rounding_(model, 1)
    y, _ = checkpoint(model, x, use_reentrant=False)
    with pytest.raises(LayerInputError, match=r"calls this layer several times"):
        y.sum().backward()
