"""Training on a GPU, where there is one: repeatable to the bit, and near the CPU's numbers."""

import pytest
import torch

from edgesim.assembly.build import quantization_settings
from edgesim.learning.accelerator import open_device
from edgesim.learning.flat_model import FlatModel
from edgesim.models import MODELS, EightBit, build_model, full_precision, seed_dropout_
from edgesim.quant.layers import seed_rounding_
from edgesim.quant.reference import Reference

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SETTINGS = quantization_settings()
INT8 = EightBit("range_evonorm", Reference(has_integer_zero=True), SETTINGS, conv_bias=True)
LAYERS = {"fp32": full_precision("evonorm_s0"), "int8": INT8}


def step(name, layers, device):
    """Loss and gradient of one step from the same start."""
    side = max(32, MODELS[name].min_side)
    generator = torch.Generator().manual_seed(1)
    module = build_model(
        name, image_shape=(3, side, side), num_classes=10, layers=layers, generator=generator
    )
    model = FlatModel(module, device)
    seed_dropout_(module, 1)
    seed_rounding_(module, 1)
    images = torch.randn(8, 3, side, side, generator=generator)
    return model.loss_and_gradient(images, torch.arange(8))


@pytest.mark.parametrize("precision", LAYERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_gives_the_same_bits_twice(name, precision):
    results = [step(name, LAYERS[precision], open_device("cuda")) for _ in range(2)]
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][1].device.type == "cpu"


@pytest.mark.parametrize("precision", LAYERS)
def test_a_step_is_near_the_processors(precision):
    loss, gradient = step("resnet20", LAYERS[precision], open_device("cuda"))
    expected_loss, expected = step("resnet20", LAYERS[precision], open_device("cpu"))
    assert loss == pytest.approx(expected_loss, rel=1e-3)
    assert torch.cosine_similarity(gradient, expected, dim=0) > 0.99
