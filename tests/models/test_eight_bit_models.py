"""Models in 8 bits: all are built and trained, initialised as R has it, and near to fp32."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy

from edgesim.models import (
    MODELS,
    NORMS,
    EightBit,
    ModelError,
    build_model,
    check_model,
    full_precision,
    seed_dropout_,
)
from edgesim.models.resnet import BasicBlock
from edgesim.quant.layers import (
    InputQuantizer,
    QuantizedConv2d,
    QuantizedLinear,
    QuantizedSum,
    seed_rounding_,
)
from edgesim.quant.norms import QuantizedRangeBatchNorm, QuantizedRangeEvoNorm
from edgesim.quant.reference import Reference
from edgesim.quant.settings import QuantizationSettings

R = {  # reference.md, section 12: the first of each switch
    "zero_point": "float_offset",
    "weight_range": "per_tensor",
    "weight_gradient": "fp32",
    "activation_rounding": "stochastic",
    "evaluation_rounding": "stochastic",
    "gradient_rounding": "stochastic",
    "ranges": "local",
    "range_momentum": 0.1,
}
EDGESIM = {
    **R,
    "zero_point": "integer",
    "activation_rounding": "nearest",
    "evaluation_rounding": "nearest",
}
PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "int8"])


def layers_of(precision="int8", norm="range_evonorm", *, conv_bias=True, **switches):
    if precision == "fp32":
        return full_precision(norm, "hard_sigmoid", conv_bias=conv_bias)
    settings = QuantizationSettings(**{**EDGESIM, **switches})
    arithmetic = Reference(has_integer_zero=settings.has_integer_zero)
    return EightBit(norm, arithmetic, settings, conv_bias)


def build(name, layers, image_shape=(3, 32, 32), seed=1, initialization="full_precision"):
    return build_model(
        name,
        image_shape=image_shape,
        num_classes=10,
        layers=layers,
        generator=torch.Generator().manual_seed(seed),
        initialization=initialization,
    )


def step(model, image_shape=(3, 32, 32), batch=2):
    """Gradients of one step, by parameter."""
    generator = torch.Generator().manual_seed(2)
    images = torch.randn((batch, *image_shape), generator=generator)
    seed_rounding_(model, 3)
    seed_dropout_(model, 3)
    model.zero_grad()
    cross_entropy(model(images), torch.arange(batch) % 10).backward()
    return [p.grad for p in model.parameters()]


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_a_step_in_8_bits(name):
    side = MODELS[name].min_side
    model = build(name, layers_of(), (3, side, side))
    gradients = step(model, (3, side, side))
    for (parameter, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert gradient.isfinite().all(), parameter
        assert gradient.any(), parameter
    for quantizer in (m for m in model.modules() if isinstance(m, InputQuantizer)):
        assert quantizer.low < quantizer.high, quantizer.layer


CHOICES = [
    *((name, "range_evonorm", "low_precision") for name in MODELS),
    *(("resnet20", norm, "full_precision") for norm in NORMS),
]


@pytest.mark.parametrize(("name", "norm", "initialization"), CHOICES)
def test_parameters_and_their_initial_values_are_those_of_fp32(name, norm, initialization):
    """The confound of reference.md, section 9.13 can be switched off, either way."""
    full, eight = (
        build(name, layers_of(p, norm), (3, 64, 64), initialization=initialization)
        for p in ("fp32", "int8")
    )
    pairs = zip(full.named_parameters(), eight.named_parameters(), strict=True)
    for (name_in_full, a), (name_in_eight, b) in pairs:
        assert name_in_full == name_in_eight
        assert torch.equal(a, b)
    for module in eight.modules():  # the first and the last layer included
        assert not isinstance(module, nn.Conv2d) or type(module) is QuantizedConv2d
        assert not isinstance(module, nn.Linear) or type(module) is QuantizedLinear


def test_sums_and_range_norms_are_in_8_bits():
    model = build("resnet20", layers_of(), (3, 8, 8))
    kinds = [type(m) for m in model.modules()]
    assert kinds.count(QuantizedSum) == 9
    assert kinds.count(QuantizedRangeEvoNorm) == 21
    other = build("resnet20", layers_of(norm="range_batch"), (3, 8, 8))
    assert [type(m) for m in other.modules()].count(QuantizedRangeBatchNorm) == 21


@PRECISIONS
@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_trains_in_both_precisions(norm, precision):
    model = build("small_cnn", layers_of(precision, norm), (1, 8, 8))
    gradients = step(model, (1, 8, 8), batch=4)
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)
    evaluated = model.eval()(torch.ones(2, 1, 8, 8))
    assert evaluated.isfinite().all()


@PRECISIONS
def test_vgg11_of_the_low_precision_code_has_no_biases_in_its_convolutions(precision):
    model = build("vgg11", layers_of(precision, conv_bias=False), initialization="low_precision")
    assert count(model) == 9_493_770  # reference.md, section 5
    assert count(build("vgg11", layers_of(precision))) == 9_496_522


def gradient(layers, initialization):
    """Of ResNet-20 as one vector."""
    model = build("resnet20", layers, (3, 16, 16), initialization=initialization)
    return torch.cat([g.flatten() for g in step(model, (3, 16, 16), batch=8)]).double()


@pytest.fixture(scope="module")
def fp32_gradients():
    """The same norm without 8 bits, by initialisation."""
    return {i: gradient(layers_of("fp32"), i) for i in ("full_precision", "low_precision")}


@pytest.mark.parametrize(
    ("initialization", "switches"),
    [
        ("low_precision", R),
        ("low_precision", EDGESIM),
        ("full_precision", R),
        ("full_precision", EDGESIM),
        ("full_precision", {"weight_range": "per_out_channel", "weight_gradient": "fp16"}),
        ("full_precision", {"gradient_rounding": "nearest", "weight_gradient": "bf16"}),
        ("full_precision", {"weight_gradient": "int8"}),
    ],
    ids=["R, low", "edgesim, low", "R", "edgesim", "per channel, fp16", "nearest, bf16", "int8"],
)
def test_the_gradient_points_where_that_of_fp32_points(fp32_gradients, initialization, switches):
    """Noise of 8 bits alone: an operation forgotten or done twice would turn it further."""
    eight = gradient(layers_of("int8", **switches), initialization)
    assert float(cosine_similarity(fp32_gradients[initialization], eight, dim=0)) > 0.98


# --- initialisation (reference.md, section 2, last paragraph)


def scales(model):
    """Gamma of every norm, by name of the norm."""
    return {
        name: module.gamma if hasattr(module, "gamma") else module.weight
        for name, module in model.named_modules()
        if hasattr(module, "gamma") or isinstance(module, nn.BatchNorm2d | nn.GroupNorm)
    }


@PRECISIONS
@pytest.mark.parametrize("norm", NORMS)
def test_residual_tails_begin_at_zero_and_the_head_is_narrow(norm, precision):
    model = build(
        "resnet20", layers_of(precision, norm), (3, 64, 64), initialization="low_precision"
    )
    tails = {f"{block}.branch.3" for block, m in model.named_modules() if isinstance(m, BasicBlock)}
    assert tails
    for norm_name, gamma in scales(model).items():
        assert gamma.eq(0 if norm_name in tails else 1).all(), norm_name
    head = model.head
    assert head.bias.eq(0).all()
    weight = head.weight.detach()
    # Standard error of a deviation: 0.01 / sqrt(2 n).
    assert float(weight.std()) == pytest.approx(0.01, abs=5 * 0.01 / sqrt(2 * weight.numel()))


@PRECISIONS
@pytest.mark.parametrize("name", ["vgg11", "mobilenet_v2"])
def test_scales_of_norms_begin_uniform(name, precision):
    """n uniform numbers: mean 1/2 with error 1 / sqrt(12 n), and none outside."""
    model = build(name, layers_of(precision), initialization="low_precision")
    gammas = torch.cat([gamma.detach() for gamma in scales(model).values()])
    assert 0 <= float(gammas.min()) < 0.01
    assert 0.99 < float(gammas.max()) < 1
    assert float(gammas.mean()) == pytest.approx(0.5, abs=5 / sqrt(12 * len(gammas)))
    for gamma in scales(model).values():
        assert gamma.std() > 0.1, "no norm was forgotten"


def test_convolutions_of_mobilenet_begin_as_torch_makes_them():
    model = build("mobilenet_v2", layers_of(), initialization="low_precision")
    for conv in (m for m in model.modules() if isinstance(m, nn.Conv2d)):
        weight, bound = conv.weight.detach(), 1 / sqrt(conv.weight[0].numel())
        assert float(weight.abs().max()) <= bound * (1 + 2**-23)
        spread = 5 * bound / sqrt(weight.numel())  # generous: the error of a deviation is smaller
        assert float(weight.std()) == pytest.approx(bound / sqrt(3), abs=spread)


def test_convolutions_and_heads_of_the_others_begin_as_in_full_precision():
    for name in ("vgg11", "resnet20"):
        models = [
            build(name, layers_of(), initialization=i) for i in ("full_precision", "low_precision")
        ]
        convs = [[m for m in model.modules() if isinstance(m, nn.Conv2d)] for model in models]
        assert all(torch.equal(a.weight, b.weight) for a, b in zip(*convs, strict=True))
        if name == "vgg11":
            heads = [list(model.head.parameters()) for model in models]
            assert all(torch.equal(a, b) for a, b in zip(*heads, strict=True))


def test_the_first_step_moves_out_of_zeroed_residual_tails():
    """With scale 0, a branch gets no gradient but its last norm's scale and shift do."""
    model = build("resnet20", layers_of(), (3, 8, 8), initialization="low_precision")
    step(model, (3, 8, 8))
    tail = model.get_submodule("features.2.branch.3")
    assert tail.gamma.grad.any()
    assert tail.beta.grad.any()
    assert not model.get_submodule("features.2.branch.0").weight.grad.any()


@PRECISIONS
@pytest.mark.parametrize("norm", NORMS)
def test_a_rectified_norm_never_moves_out_of_a_zeroed_tail(norm, precision):
    """ReLU gives 0 there, and its gradient is 0: so such initial values are refused."""
    model = build("resnet20", layers_of(precision, norm), (3, 8, 8), initialization="low_precision")
    step(model, (3, 8, 8))
    tail = model.get_submodule("features.2.branch.3")
    moves = any(parameter.grad.any() for parameter in tail.parameters())
    assert moves is not NORMS[norm].is_rectified


# --- evaluation


def test_evaluation_gives_the_same_bits_each_time_and_changes_nothing():
    model = build("resnet20", layers_of(), (3, 8, 8))
    step(model, (3, 8, 8))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    images = torch.randn((4, 3, 8, 8), generator=torch.Generator().manual_seed(5))
    model.eval()
    assert torch.equal(model(images), model(images))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_no_global_generator_is_used():
    state = torch.get_rng_state()
    step(build("small_cnn", layers_of(**R), (1, 8, 8)), (1, 8, 8))
    assert torch.equal(torch.get_rng_state(), state)


# --- refusals


class OddWidths(EightBit):
    """Asks for norms of 12 channels, whatever the architecture says."""

    def norm_act(self, channels):
        return super().norm_act(12)


def test_channels_that_do_not_fit_the_groups_are_refused_before_anything_is_built():
    eight = layers_of()
    odd = OddWidths(eight.norm, eight.arithmetic, eight.settings, True)
    with pytest.raises(ModelError, match="8 groups of channels, into which 12 channels can't"):
        check_model("small_cnn", (1, 8, 8), odd)
    with pytest.raises(ModelError, match="12 channels"):
        full_precision("range_evonorm").norm_act(12)
    for norm in ("evonorm_s0", "range_evonorm"):
        with pytest.raises(ModelError, match="12 channels"):
            layers_of(norm=norm).norm_act(12)


@PRECISIONS
@pytest.mark.parametrize("norm", ["batch", "range_batch"])
@pytest.mark.parametrize(("name", "side"), [("small_cnn", 4), ("resnet20", 4), ("resnet18", 32)])
def test_batch_norms_of_a_single_pixel_are_refused(name, side, norm, precision):
    with pytest.raises(ModelError, match="one pixel, which a batch norm can't take"):
        check_model(name, (3, side, side), layers_of(precision, norm))
    check_model(name, (3, side, side + 1), layers_of(precision, norm))
    check_model(name, (3, side, side), layers_of(precision, "range_evonorm"))


def test_unknown_norms_are_told_the_known_ones():
    with pytest.raises(ModelError, match="'range'; there are batch, group, evonorm_s0, range_evo"):
        full_precision("range")
