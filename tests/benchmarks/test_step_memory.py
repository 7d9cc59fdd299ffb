"""What a step holds, against counts by hand."""

from pathlib import Path

import torch
from memory import SETTINGS, step_memory
from step_memory import measure_step_memory
from torch import nn

from edgesim.assembly.build import quantization_settings
from edgesim.learning.flat_model import FlatModel
from edgesim.models import EightBit, build_model, full_precision
from edgesim.quant.backends import make_backend
from edgesim.quant.reference import Reference


class Flatten(nn.Module):
    def forward(self, x):
        return x.flatten(1)


def measure(model, *shape):
    images = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    flat = FlatModel(model)
    labels = torch.zeros(shape[0], dtype=torch.int64)
    return measure_step_memory(flat, images, labels, torch.zeros_like(flat.parameters))


def test_a_linear_classifier_holds_its_input_and_its_log_probabilities():
    held = measure(nn.Sequential(Flatten(), nn.Linear(12, 5)), 4, 3, 2, 2)
    assert held.parameters == held.gradients == held.optimizer == 4 * (12 * 5 + 5)
    floats = held.activations[torch.float32]
    # 4 x 12 inputs and 4 x 5 log-probabilities; the loss keeps its total weight, one number.
    assert floats == 4 * (4 * 12 + 4 * 5 + 1)
    assert held.weight_codes == 0
    assert held.paper == held.faithful == 3 * held.parameters + sum(held.activations.values())


def test_a_storage_saved_twice_is_counted_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 5), nn.Linear(12, 5)

        def forward(self, x):
            return self.a(x.flatten(1)) + self.b(x.flatten(1))

    once = measure(nn.Sequential(Flatten(), nn.Linear(12, 5)), 4, 3, 2, 2)
    assert measure(Twice(), 4, 3, 2, 2).activations == once.activations


def eight_bit():
    settings = quantization_settings()
    return EightBit("range_evonorm", Reference(has_integer_zero=True), settings, conv_bias=True)


def test_resnet20_in_8_bits_holds_less_than_a_third_of_fp32():
    """reference.md, section 6: 3.35 to 3.6 times less by the paper's accounting, against a norm
    that saves its input.

    The fp32 model's EvoNorm-S0 saves its gate too.
    """
    held = {}
    for name, layers in (("fp32", full_precision("evonorm_s0")), ("int8", eight_bit())):
        generator = torch.Generator().manual_seed(1)
        model = build_model(
            "resnet20", image_shape=(3, 32, 32), num_classes=10, layers=layers, generator=generator
        )
        held[name] = measure(model, 32, 3, 32, 32)
    assert held["fp32"].paper > 3.4 * held["int8"].paper
    assert held["fp32"].faithful > 3.4 * held["int8"].faithful


def test_eight_bits_hold_a_byte_for_each_input_of_a_product_or_norm():
    layers = eight_bit()
    generator = torch.Generator().manual_seed(1)
    model = build_model(
        "small_cnn", image_shape=(1, 8, 8), num_classes=10, layers=layers, generator=generator
    )
    held, batch = measure(model, 6, 1, 8, 8), 6
    conv_in = 1 * 64 + 16 * 16 + 32 * 4
    norm_in = 16 * 64 + 32 * 16 + 64 * 4
    pooled = 16 * 16 + 32 * 4
    places = 3 * 8 * 2 * 16  # of extremes: 16 chunks of 8 groups in each norm, a byte each
    assert held.activations[torch.uint8] == batch * (conv_in + norm_in + pooled + places + 64)
    products = 16 * 9 + 32 * 16 * 9 + 64 * 32 * 9 + 64 * 10
    assert held.weight_codes == products
    # Besides: scales of norms and weights, parameters of norms, log-probabilities.
    floats = held.activations[torch.float32]
    assert floats == 4 * (3 * batch * 8 * 2 + 4 + 2 * (16 + 32 + 64) + batch * 10 + 1)
    assert held.faithful - held.paper == held.parameters * 3 // 4 + products


def test_the_page_has_what_is_counted():
    """Its columns: fp32 with EvoNorm-S0 and with Range EvoNorm; 8 bits by two accountings."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "results" / "speed.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| ResNet-20 | 78,"))
    integers = EightBit(
        "range_evonorm", make_backend("int8_cpu", SETTINGS), SETTINGS, conv_bias=True
    )
    layers = full_precision("evonorm_s0"), full_precision("range_evonorm"), integers
    fp32, with_range, int8 = (step_memory("resnet20", kind, 32, 32) for kind in layers)
    counted = fp32.paper, with_range.paper, int8.paper, int8.faithful
    assert [cell.strip() for cell in row.split("|")[2:6]] == [f"{held:,}" for held in counted]
