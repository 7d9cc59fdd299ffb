"""Compact pooling is torch's pooling, and saves a byte for each output."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from edgesim.quant.compact_max_pool import CompactMaxPool2d

GEOMETRIES = [
    (2, 2, 0, False),
    (2, 2, 0, True),
    (3, 2, 1, False),
    (3, 1, 1, False),
    (2, 3, 0, True),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil_mode"), GEOMETRIES)
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 1, 7, 5), (3, 4, 5, 9)])
def test_results_and_gradients_are_those_of_torch(kernel, stride, padding, ceil_mode, shape):
    generator = torch.Generator().manual_seed(1)
    # Few distinct values: ties must go to the same entry as torch's.
    x = torch.randint(0, 4, shape, generator=generator).float()
    ours = x.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
    theirs = x.clone().requires_grad_()
    y = CompactMaxPool2d(kernel, stride=stride, padding=padding, ceil_mode=ceil_mode)(ours)
    expected = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)(theirs)
    assert torch.equal(y, expected)
    g = torch.randn(expected.shape, generator=generator)
    y.backward(g)
    expected.backward(g)
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil_mode"), GEOMETRIES)
def test_bits_are_those_of_torch_in_the_same_memory_layout(kernel, stride, padding, ceil_mode):
    """Sums of overlapping windows, negative zeros, infinities and NaN included."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(-2, 3, (2, 37, 9, 8), generator=generator).float()
    strange = torch.tensor([float("nan"), float("-inf"), float("inf"), -0.0])
    places = torch.randint(0, x.numel(), (400,), generator=generator)
    x.view(-1)[places] = strange.repeat(100)
    x[0, 0] = float("-inf")
    x = x.contiguous(memory_format=torch.channels_last)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = CompactMaxPool2d(kernel, stride=stride, padding=padding, ceil_mode=ceil_mode)(ours)
    expected = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)(theirs)
    g = torch.randn(expected.shape, generator=generator)
    g.view(-1)[::7] = -0.0
    g = g.contiguous(memory_format=torch.channels_last)
    y.backward(g)
    expected.backward(g)
    for actual, wanted in [(y, expected), (ours.grad, theirs.grad)]:
        assert actual.is_contiguous(memory_format=torch.channels_last)
        a, b = (t.detach().contiguous().view(torch.int32) for t in (actual, wanted))
        is_nan = wanted.detach().isnan()
        assert torch.equal(a[~is_nan], b[~is_nan])
        assert torch.equal(actual.isnan(), is_nan)


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_outputs_are_as_many_as_torchs(size, kernel, stride, ceil_mode):
    x = torch.zeros(1, 1, size + 2, size + 3)
    for padding in range(kernel // 2 + 1):
        pool = CompactMaxPool2d(kernel, stride=stride, padding=padding, ceil_mode=ceil_mode)
        theirs = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)
        assert pool(x).shape == theirs(x).shape


def test_a_byte_is_saved_for_each_output():
    saved = []
    x = torch.randn(2, 8, 16, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = CompactMaxPool2d(2, stride=2)(x)
    assert sum(t.nbytes for t in saved) == y.numel()
