"""Parameter counts, layer counts and multiplications of reference.md, section 5, and gradients
through every model."""

import pytest
import torch
from torch import nn

from edgesim.models import (
    MODELS,
    EvoNormS0,
    SeededDropout,
    build_model,
    full_precision,
    seed_dropout_,
)
from edgesim.models.mobilenet import InvertedResidual
from edgesim.models.resnet import BasicBlock
from edgesim.scenario import catalog

COUNTS = {  # reference.md, section 5
    "resnet20": 273_258,
    "resnet54": 760_458,
    "resnet18": 11_186_442,
    "vgg11": 9_496_522,
    "mobilenet_v2": 2_314_466,
    # 3x3 convolutions 27*16 + 144*32 + 288*64, norms 3*(16+32+64), head 64*10 + 10.
    "small_cnn": 24_458,
    "resnet": 273_258,  # of depth 20 and width 16: resnet20
}


def build(name, image_shape=(3, 32, 32), norm="evonorm_s0", num_classes=10):
    generator = torch.Generator().manual_seed(1)
    return build_model(
        name,
        image_shape=image_shape,
        num_classes=num_classes,
        layers=full_precision(norm),
        generator=generator,
    )


def images(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def convolutions(model):
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


def forward_macs(model, image_shape):
    """Multiply-accumulates of convolutions and linear layers for one sample."""
    macs = 0

    def count(module, _inputs, output):
        nonlocal macs
        macs += module.weight[0].numel() * output[0].numel()

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    model(images(1, *image_shape))
    return macs


def test_every_model_has_a_count():
    assert set(COUNTS) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_parameter_counts(name):
    assert sum(p.numel() for p in build(name).parameters()) == COUNTS[name]


@pytest.mark.parametrize("name", MODELS)
def test_descriptions_tell_the_count(name):
    assert f"{COUNTS[name]:,} parameters" in catalog.MODELS.description(name)


def test_resnet20_has_86_tensors_21_convolutions_and_its_macs():
    model = build("resnet20")
    assert len(list(model.parameters())) == 86
    assert len(convolutions(model)) == 21
    assert round(forward_macs(model, (3, 32, 32)) / 1e6, 2) == 40.81


def test_resnet54_has_50_layers_and_its_macs():
    model = build("resnet54")
    unshortened = [conv for conv in convolutions(model) if conv.kernel_size == (3, 3)]
    assert len(unshortened) + 1 == 50  # and the linear layer
    assert round(forward_macs(model, (3, 32, 32)) / 1e6, 1) == 111.6


def test_mobilenet_halves_large_images_twice_more():
    """And so has no 1x1 shortcut from 16 to 24 channels: 16*24 weights and 3*24 of its norm."""
    small, large = build("mobilenet_v2"), build("mobilenet_v2", (3, 224, 224))
    counts = [sum(p.numel() for p in model.parameters()) for model in (small, large)]
    assert counts[0] - counts[1] == 16 * 24 + 3 * 24
    assert large.features(images(1, 3, 224, 224)).shape == (1, 1280, 7, 7)
    assert small.features(images(1, 3, 32, 32)).shape == (1, 1280, 4, 4)


@pytest.mark.parametrize("name", MODELS)
def test_a_norm_follows_every_convolution(name):
    leaves = [m for m in build(name).modules() if isinstance(m, nn.Conv2d | EvoNormS0)]
    assert [type(leaf) for leaf in leaves] == [nn.Conv2d, EvoNormS0] * (len(leaves) // 2)


@pytest.mark.parametrize("norm", ["batch", "group", "evonorm_s0"])
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns(name, norm):
    model = build(name, (3, 33, 40), norm, num_classes=7)
    seed_dropout_(model, 0)
    logits = model(images(2, 3, 33, 40))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 7, 9)])
def test_small_models_take_small_and_grey_images(shape):
    for name in ("resnet20", "small_cnn"):
        assert build(name, shape)(images(3, *shape)).shape == (3, 10)


@pytest.mark.parametrize("channels", [1, 3])
def test_activations_are_channels_last(channels):
    model = build("resnet20", (channels, 32, 32))
    strides = []
    for conv in convolutions(model):
        conv.register_forward_hook(lambda *hooked: strides.append(hooked[2].stride(1)))
    model(images(2, channels, 32, 32))
    assert strides == [1] * 21


def test_the_images_given_are_not_changed():
    x = images(2, 1, 8, 8)
    before = x.clone()
    build("small_cnn", (1, 8, 8), norm="batch")(x)
    assert torch.equal(x, before)


def test_a_step_gives_the_same_bits_wherever_its_memory_lies():
    model = build("resnet20")
    x = images(8, 3, 32, 32)
    gradients = []
    for offset in (0, 1, 3):
        held = [torch.empty(1000 * offset + 1) for _ in range(50)]
        shifted = torch.empty(x.numel() + offset)[offset:].view(x.shape).copy_(x)
        model.zero_grad()
        model(shifted).logsumexp(1).sum().backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
        del held
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


def test_resnet20_is_the_composition_of_r5():
    """norm(conv(norm(conv(x)))) + shortcut(x) in every block, then average and head."""
    model, x = build("resnet20"), images(2, 3, 32, 32)
    y = x
    for layer in model.features:
        if isinstance(layer, BasicBlock):
            first, norm_1, second, norm_2 = layer.branch
            short = y
            for part in layer.shortcut:
                short = part(short)
            y = norm_2(second(norm_1(first(y)))) + short
        else:
            y = layer(y)
    torch.testing.assert_close(model(x), model.head(y.mean((2, 3))))


def test_mobilenet_adds_its_shortcut_at_stride_one_only():
    model, x = build("mobilenet_v2").eval(), images(2, 3, 32, 32)
    y = x
    for layer in model.features:
        if isinstance(layer, InvertedResidual):
            strides = [conv.stride for conv in convolutions(layer.branch)]
            out = layer.branch(y)
            y = out + layer.shortcut(y) if strides == [(1, 1)] * 3 else out
        else:
            y = layer(y)
    torch.testing.assert_close(model(x), model.head(y.mean((2, 3))))


def test_the_head_of_vgg11_is_dropout_linear_relu_linear():
    head = build("vgg11").head
    assert [type(layer) for layer in head] == [SeededDropout, nn.Linear, nn.ReLU, nn.Linear]
