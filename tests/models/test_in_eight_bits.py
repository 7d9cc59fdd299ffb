"""What of a module from outside is replaced by 8-bit layers, and what must stay as it is."""

import pytest
import torch
from cost_models import int8
from torch import nn

from edgesim.models.errors import ModelError
from edgesim.models.in_eight_bits import replace_layers_
from edgesim.quant.compact_max_pool import CompactMaxPool2d
from edgesim.quant.errors import LayerInputError
from edgesim.quant.layers import QuantizedConv1d, QuantizedConv2d, QuantizedLinear, name_layers_
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


CONVOLUTIONS = {
    "padded": (nn.Conv1d, {"padding": 2}),
    "stride, dilation, groups": (
        nn.Conv1d,
        {"stride": 2, "dilation": 3, "padding": 4, "groups": 2, "bias": False},
    ),
    "same": (nn.Conv1d, {"padding": "same"}),
    "same, even but dilated": (nn.Conv1d, {"kernel_size": 4, "padding": "same", "dilation": 2}),
    "valid": (nn.Conv1d, {"padding": "valid"}),
    "pointwise": (nn.Conv1d, {"kernel_size": 1}),
    "images, rectangle": (nn.Conv2d, {"kernel_size": (1, 5), "padding": (0, 2)}),
    "images, strides": (nn.Conv2d, {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
    "images, same": (nn.Conv2d, {"kernel_size": (3, 5), "padding": "same", "dilation": (2, 1)}),
}


@pytest.mark.parametrize(("kind", "options"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions_of_any_window_are_replaced_and_near_those_in_fp32(kind, options):
    torch.manual_seed(1)
    plain = kind(4, 6, **{"kernel_size": 3, **options})
    x = torch.randn(8, 4, 20) if kind is nn.Conv1d else torch.randn(8, 4, 9, 11)
    whole, stays = replace_layers_(kind(4, 6, **{"kernel_size": 3, **options}), LAYERS)
    assert type(whole) is {nn.Conv1d: QuantizedConv1d, nn.Conv2d: QuantizedConv2d}[kind]
    assert stays == ()
    whole.load_state_dict(plain.state_dict(), strict=False)
    results = []
    for layer in (plain, whole):
        leaf = x.clone().requires_grad_()
        y = layer(leaf)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        wanted = [leaf, *(p for p in layer.parameters() if p.requires_grad)]
        results.append((y, *torch.autograd.grad(y, wanted, g)))
    for expected, actual in zip(*results, strict=True):
        assert actual.shape == expected.shape
        assert (actual - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize(
    "options",
    [{"kernel_size": 4, "padding": "same"}, {"padding": 1, "padding_mode": "circular"}],
    ids=["unlike on both sides", "circular"],
)
def test_convolutions_padded_otherwise_stay(options):
    conv = nn.Conv1d(4, 6, **{"kernel_size": 3, **options})
    whole, stays = replace_layers_(conv, LAYERS)
    assert whole is conv
    assert stays == ("the model (Conv1d)",)


@pytest.mark.parametrize("shape", [(16, 4), (8, 4, 5)], ids=["features", "signals"])
def test_a_range_batch_norm_takes_signals_and_features(shape):
    whole, stays = replace_layers_(nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), LAYERS)
    assert stays == ()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    images = x.reshape(*shape[:2], 1, -1)
    other = QuantizedRangeBatchNorm(4, arithmetic=LAYERS.arithmetic, settings=LAYERS.settings)
    for mode in (True, False):
        whole.train(mode)
        other.train(mode)
        leaf, leaf_of_images = x.clone().requires_grad_(), images.clone().requires_grad_()
        y, y_of_images = whole(leaf), other(leaf_of_images)
        assert torch.equal(y, y_of_images.reshape(shape))
        if mode:
            y.square().sum().backward()
            y_of_images.square().sum().backward()
            assert torch.equal(leaf.grad, leaf_of_images.grad.reshape(shape))


@pytest.mark.parametrize(
    ("conv", "shape"), [(nn.Conv1d(4, 6, 3), (4, 20)), (nn.Conv2d(4, 6, 3), (4, 9, 11))]
)
def test_one_sample_without_its_axis_is_a_batch_of_one(conv, shape):
    layer, _ = replace_layers_(conv, LAYERS)
    x = torch.randn(shape)
    assert torch.equal(layer(x), layer(x[None])[0])


@pytest.mark.parametrize(
    ("conv", "shape", "due"),
    [
        (nn.Conv1d(4, 6, 3), (2, 5, 20), r"shape \(2, 5, 20\); must be \(samples, 4, length\)"),
        (nn.Conv1d(4, 6, 3), (2, 4, 20, 1), r"must be \(samples, 4, length\)"),
        (nn.Conv2d(4, 6, 3), (2, 5, 9, 9), r"must be \(samples, 4, height, width\)"),
    ],
)
def test_inputs_of_another_shape_are_refused_with_the_layers_name(conv, shape, due):
    whole, _ = replace_layers_(nn.Sequential(conv), LAYERS)
    name_layers_(whole)
    with pytest.raises(LayerInputError, match=f"layer 0: .*{due}"):
        whole(torch.randn(shape))


class Listed(nn.Module):
    """A layer that is an attribute, and called by a list."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.steps = [self.first, self.second]

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


def test_a_layer_that_is_called_by_a_list_does_not_stay_in_fp32_in_silence():
    whole, stays = replace_layers_(Listed(), LAYERS)
    assert stays == ("operators in the forward pass of the model (Listed)",)
    with pytest.raises(ModelError, match=r"first \(Linear\) is also called by .* an nn.ModuleList"):
        whole(torch.ones(2, 4))


def test_a_layer_with_a_forward_of_its_own_stays_and_is_named():
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].forward = lambda x: 2 * x
    whole, stays = replace_layers_(model, LAYERS)
    assert types(whole) == [nn.Linear]
    assert stays == ("0 (Linear)",)


@pytest.mark.parametrize(
    "options",
    [{"eps": 1.0}, {"momentum": 0.01}, {"track_running_stats": False}, {"affine": False}],
    ids=str,
)
def test_a_batch_norm_of_other_options_stays_and_is_named(options):
    model = nn.Sequential(nn.BatchNorm2d(4, **options), nn.ReLU())
    whole, stays = replace_layers_(model, LAYERS)
    assert types(whole) == [nn.BatchNorm2d, nn.ReLU]
    assert "0 (BatchNorm2d)" in stays


def test_a_batch_norm_with_statistics_of_an_earlier_training_stays():
    """Range BatchNorm has statistics of another kind, which would begin anew."""
    model = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())
    model[0].running_mean += 1
    whole, _ = replace_layers_(model, LAYERS)
    assert types(whole) == [nn.BatchNorm2d, nn.ReLU]


def test_the_8_bit_pooling_is_a_pooling_of_torchs():
    whole, _ = replace_layers_(nn.Sequential(nn.MaxPool2d(2)), LAYERS)
    assert isinstance(whole[0], nn.MaxPool2d)
    assert whole[0].kernel_size == whole[0].stride == 2


def test_a_layer_with_two_names_is_replaced_under_both():
    layer = nn.Linear(4, 4)
    whole, stays = replace_layers_(nn.Sequential(layer, nn.ReLU(), layer), LAYERS)
    assert types(whole) == [QuantizedLinear, nn.ReLU, QuantizedLinear]
    assert whole[0] is whole[2]
    assert stays == ("1 (ReLU)",)
