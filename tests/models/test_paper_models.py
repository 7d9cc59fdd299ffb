"""The paper's models in both precisions, at the sizes of its images (reference.md, section 5)."""

from __future__ import annotations

import pytest
import torch

from edgesim.models import EightBit, build_model, full_precision, seed_dropout_
from edgesim.quant.layers import QuantizedConv2d, seed_rounding_
from edgesim.quant.range_evonorm_formulas import chunks_of
from edgesim.quant.reference import Reference
from edgesim.quant.settings import QuantizationSettings

SETTINGS = QuantizationSettings(
    zero_point="float_offset",
    weight_range="per_tensor",
    weight_gradient="fp32",
    activation_rounding="stochastic",
    evaluation_rounding="stochastic",
    gradient_rounding="stochastic",
    ranges="gossiped",
    range_momentum=0.1,
)
# Parameters in fp32; in 8 bits as the authors initialise them; scalars of gossiped ranges, two for
# each quantizer. A quantizer is before each convolution, norm and linear layer, and before both
# operands of a sum: of MobileNetV2 this is counted here, the others are in the reference.
COUNTS = {
    "resnet20": (273_258, 273_258, 122),
    "resnet54": (760_458, 760_458, 302),
    "vgg11": (9_496_522, 9_493_770, 36),
    "resnet18": (11_186_442, 11_186_442, None),
    "mobilenet_v2": (2_314_466, 2_314_466, None),
}


def build(name, precision, side=32):
    low = precision == "int8"
    layers = full_precision("evonorm_s0")
    if low:
        layers = EightBit("range_evonorm", Reference(has_integer_zero=False), SETTINGS, False)
    return build_model(
        name,
        image_shape=(3, side, side),
        num_classes=10,
        layers=layers,
        generator=torch.Generator().manual_seed(1),
        initialization="low_precision" if low else "full_precision",
    )


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_in_both_precisions_and_scalars_of_ranges(name):
    fp32, int8, ranges = COUNTS[name]
    full, low = (list(build(name, precision).parameters()) for precision in ("fp32", "int8"))
    assert sum(p.numel() for p in full) == fp32
    assert sum(p.numel() for p in low if p.requires_grad) == int8
    scalars = [p for p in low if not p.requires_grad]
    assert all(p.numel() == 1 for p in scalars)
    if ranges is not None:
        assert len(scalars) == ranges


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "mobilenet_v2"])
def test_at_224_pixels_the_last_map_has_7x7_pixels_and_the_head_takes_their_mean(name):
    """VGG-11 has both heads of the reference in one: the mean of 7x7 pixels, or of one."""
    model = build(name, "fp32", 224).eval()
    image = torch.randn((1, 3, 224, 224), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        features = model.features(image)
        assert features.shape[2:] == (7, 7)
        torch.testing.assert_close(model(image), model.head(features.mean((2, 3))))
    counted = sum(p.numel() for p in model.parameters())
    # MobileNetV2 halves large images in the second stage too, so it lacks a 1x1 shortcut there.
    assert counted == COUNTS[name][0] - (16 * 24 + 3 * 24 if name == "mobilenet_v2" else 0)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_a_step_at_224_pixels_in_8_bits_moves_every_parameter(name):
    model = build(name, "int8", 224)
    seed_dropout_(model, 1)
    seed_rounding_(model, 1)
    generator = torch.Generator().manual_seed(2)
    image = torch.randn((2, 3, 224, 224), generator=generator)
    model(image).logsumexp(1).sum().backward()
    gradients = {k: p.grad for k, p in model.named_parameters() if p.requires_grad}
    assert all(g is not None and g.isfinite().all() for g in gradients.values())
    depthwise = [
        f"{key}.weight"
        for key, layer in model.named_modules()
        if isinstance(layer, QuantizedConv2d) and layer.groups > 1
    ]
    assert len(depthwise) == (17 if name == "mobilenet_v2" else 0)
    assert all(gradients[key].abs().max() > 0 for key in depthwise)


def test_maps_of_large_images_have_14_chunks_where_16_do_not_divide_them():
    """MobileNetV2 at 224 pixels, last stages: 7x7 pixels (docs/reference.md, section 2)."""
    assert chunks_of(320 // 8 * 7 * 7) == 14
    assert chunks_of(1280 // 8 * 7 * 7) == 16
