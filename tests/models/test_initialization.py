"""Initial parameters: distributions of reference.md, section 2, and nothing global touched."""

from math import sqrt

import pytest
import torch
from torch import nn

from edgesim.models import MODELS, NORMS, EvoNormS0, build_model, full_precision
from edgesim.models.initialization import initialize_


def build(name="resnet20", norm="evonorm_s0", seed=1):
    return build_model(
        name,
        image_shape=(3, 64, 64),
        num_classes=10,
        layers=full_precision(norm),
        generator=torch.Generator().manual_seed(seed),
    )


def bits(model):
    return b"".join(t.numpy().tobytes() for t in model.state_dict().values())


@pytest.mark.parametrize("norm", NORMS)
def test_same_generator_state_same_bits(norm):
    assert bits(build(norm=norm)) == bits(build(norm=norm))
    assert bits(build(norm=norm)) != bits(build(norm=norm, seed=2))


@pytest.mark.parametrize("name", MODELS)
def test_no_global_generator_is_used(name):
    state = torch.get_rng_state()
    build(name)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_set(name, norm):
    """Filled with NaN (and -1 where integer) beforehand, none may remain."""
    model = build(name, norm)
    for tensor in model.state_dict().values():
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)
    initialize_(model, torch.Generator())
    assert all((tensor.isfinite() & (tensor != -1)).all() for tensor in model.state_dict().values())


def test_convolutions_are_normal_with_variance_two_over_fan_out():
    convs = [m for m in build("resnet18").modules() if isinstance(m, nn.Conv2d)]
    for conv in convs:
        size, _ = conv.kernel_size
        expected = sqrt(2 / (size**2 * conv.out_channels))
        count = conv.weight.numel()
        weight = conv.weight.detach()
        # Standard errors: expected / sqrt(2 count) of the deviation, expected / sqrt(count) of the
        # mean; five of them, for twenty convolutions.
        assert float(weight.std()) == pytest.approx(expected, abs=5 * expected / sqrt(count))
        assert abs(float(weight.mean())) < 5 * expected / sqrt(count)


def test_linear_layers_are_uniform_within_one_over_the_root_of_fan_in():
    head = build("resnet18").head
    for tensor in (head.weight.detach(), head.bias.detach()):
        assert float(tensor.abs().max()) <= 1 / sqrt(512)
    # Of 5,120 uniform values one is beyond 99 % of the bound, but for a chance of e^-51.
    assert float(head.weight.detach().abs().max()) > 0.99 / sqrt(512)


def test_norms_begin_with_scale_one_shift_zero_slope_one():
    for norm in (m for m in build().modules() if isinstance(m, EvoNormS0)):
        assert norm.gamma.eq(1).all()
        assert norm.beta.eq(0).all()
        assert norm.v.eq(1).all()


def test_batch_statistics_begin_fresh():
    for norm in (m for m in build(norm="batch").modules() if isinstance(m, nn.BatchNorm2d)):
        assert norm.running_mean.eq(0).all()
        assert norm.running_var.eq(1).all()
        assert int(norm.num_batches_tracked) == 0


def test_a_module_without_a_rule_is_refused():
    with pytest.raises(TypeError, match="PReLU"):
        initialize_(nn.PReLU(), torch.Generator())
