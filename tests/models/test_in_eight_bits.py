"""What of a module from outside is replaced by 8-bit layers, and what must stay as it is."""

from cost_models import int8
from torch import nn

from edgesim.models.in_eight_bits import replace_layers_
from edgesim.quant.compact_max_pool import CompactMaxPool2d
from edgesim.quant.layers import QuantizedConv2d, QuantizedLinear
from edgesim.quant.norms import QuantizedRangeBatchNorm

LAYERS = int8(norm="range_batch")


def types(module):
    return [type(child) for child in module]


def test_a_batch_norm_takes_the_relu_behind_it_along():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    gamma = model[1].weight
    whole, stays = replace_layers_(model, LAYERS)
    kinds = [QuantizedConv2d, QuantizedRangeBatchNorm, nn.Identity, CompactMaxPool2d]
    assert types(whole) == kinds
    assert whole[1].gamma is gamma
    assert stays == ()


def test_a_batch_norm_in_two_places_keeps_what_follows_it_in_each():
    norm = nn.BatchNorm2d(4)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 4, 3), norm)
    whole, stays = replace_layers_(model, LAYERS)
    kinds = [QuantizedConv2d, nn.BatchNorm2d, nn.ReLU, QuantizedConv2d, nn.BatchNorm2d]
    assert types(whole) == kinds
    assert "1 (BatchNorm2d)" in stays


def test_layers_with_hooks_stay_and_are_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm2d(4), nn.ReLU())
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    model[3].register_forward_pre_hook(lambda module, inputs: None)
    whole, stays = replace_layers_(model, LAYERS)
    assert types(whole) == [QuantizedLinear, nn.Linear, nn.BatchNorm2d, nn.ReLU]
    assert stays[0] == "1 (Linear)"
